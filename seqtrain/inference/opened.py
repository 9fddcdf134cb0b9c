"""A run's directory opened for use: its config checked, its weights fitting, nothing executed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seqtrain.config.check import check_config
from seqtrain.config.instantiate import make
from seqtrain.config.trust import trusted
from seqtrain.data.preprocess import Preprocessor
from seqtrain.data.tokenizers.recipes import Tokenizer
from seqtrain.errors import Unavailable, UserError
from seqtrain.files.atomic import exists
from seqtrain.files.untrusted import check_references, is_foreign
from seqtrain.models.base import SequenceModel
from seqtrain.runs import export
from seqtrain.runs.checkpoint import BEST, load, newest_valid, refuse_other
from seqtrain.runs.directory import Run
from seqtrain.runs.summary import Summary
from seqtrain.tasks.base import Task
from seqtrain.tasks.predictors import Loaded, Predictor, TextReader
from seqtrain.terminal import pasted
from seqtrain.training.adapters import adapt, merge
from seqtrain.training.checkpoint_check import Mismatch, alike, check_weights
from seqtrain.training.model_and_task import make_pair, on_meta
from seqtrain.training.transfer import copy_matching


@dataclass
class Opened:
    """A run opened for use: weights in, evaluation mode, nothing of Lightning."""

    run: Run
    config: DictConfig
    preprocessor: Preprocessor
    model: SequenceModel
    task: Task
    step: int

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of text, and of sources."""
        return self.preprocessor.tokenizer

    @property
    def answers_series(self) -> bool:
        """True if predictors give an answer to each series of a file."""
        return self.preprocessor.series is not None and bool(self.task.predictors)

    @property
    def loaded(self) -> Loaded:
        """The parts of the run that the task's predictors need."""
        tbptt = make(self.config.tbptt).evaluation
        return Loaded(self.model, self.preprocessor, self.config.data.max_length, tbptt)

    def predictor(self, name: str | None = None) -> Predictor[Any]:
        """Return the task's predictor of this name, by default its first. Raise UserError if there is none."""
        predictors = self.task.predictors
        reason = self.run.summary.reason
        if self.run.exported and not self.step and reason:  # a folder of the hub without a head of this task
            raise UserError(f"{reason}; begin a training with it, or use embed")
        if not predictors:
            raise UserError(f"run {self.run.path} is of task={self.task.name()}, which predicts nothing of texts")
        name = name or next(iter(predictors))
        if name not in predictors:
            can = ", ".join(predictors)
            raise UserError(f"{name}: run {self.run.path} is of task={self.task.name()}, which can {can}")
        return predictors[name](self.task, self.loaded)

    @property
    def text_reader(self) -> TextReader[Any]:
        """The task's reader for texts without a prediction."""
        return TextReader(self.task, self.loaded)

    @property
    def hash(self) -> str:
        """Hash of the weights and of what turns text into numbers."""
        digest = hashlib.blake2b(repr(sorted(self.preprocessor.hashes.items())).encode(), digest_size=16)
        for module in (self.model, self.task):
            for name, value in sorted(module.state_dict().items()):
                # Type and shape too: the bytes alone could be cut into other tensors.
                digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
                digest.update(value.contiguous().numpy().data)
        return digest.hexdigest()


def open_origin(path: Path | str) -> Run:
    """Return a run, an export, or a folder of the hub as the export that it is converted to.

    Raises:
        UserError: It is none of these.
    """
    if is_foreign(path):
        from seqtrain.hub.convert import converted  # here, since few runs begin with one

        path = converted(str(path))
    return Run.open(path, export="take")


def open_run(path: Path | str, checkpoint: str = "best") -> Opened:
    """Open a run directory; nothing in it can execute.

    Args:
        path: of a run, of its export, or of a folder of the Hugging Face hub.
        checkpoint: `best` or `last`.

    Raises:
        UserError: If it is not a run, was not trained yet, or holds weights or files that do not match its config.
    """
    run = open_origin(path)
    config = checked_config(run)
    preprocessor = Preprocessor.load(run.path, run.summary.hashes)
    if run.exported:
        config.pop("adapter", None)  # what it learned is in the weights
        # From the file's header, before it is read whole: a stranger's weights may be larger than memory.
        _check_fit(export.described(run.path), alike, run.path / export.WEIGHTS, config, preprocessor)
    file, saved = _saved(run, checkpoint)
    weights = saved.get("state_dict") if isinstance(saved, dict) else None
    # By type and not isinstance, since True is an int.
    if not isinstance(weights, dict) or type(saved.get("global_step")) is not int or saved["global_step"] < 0:
        raise UserError(f"checkpoint {file}: holds no weights of a step; it is not what a run saves")
    adapted = config.get("adapter") is not None
    if not adapted:
        _check_fit(weights, check_weights, file, config, preprocessor)
    model, task = make_pair(config, preprocessor)
    if adapted:
        _begin_adapted(model, run, config)
        _check_weights(weights, check_weights, file, model, task)  # only the parent says which tokens are new
    load_weights(weights, model, task)
    if adapted:
        merge(model)
    return Opened(run, config, preprocessor, model.eval(), task.eval(), saved["global_step"])


def _begin_adapted(model: SequenceModel, run: Run, config: DictConfig) -> None:
    """Give the model of a run the weights that the run began with, and its adapters as they were at first.

    Raises:
        UserError: The run's own copy of these weights is gone, or holds others.
    """
    path = run.path / export.PARENT
    words = f"{path}: the weights that the adapters of this run change"
    if not exists(path):
        raise UserError(f"{words} are missing; put the folder back")
    parent = open_run(path)
    if parent.hash != run.summary.parent:
        raise UserError(f"{words} are others now; put the run's own folder back")
    weights = {f"model.{name}": value for name, value in parent.model.state_dict().items()}
    with torch.no_grad():
        new_rows = copy_matching(model, None, weights, same_task=False, say=lambda line: None)
    adapt(model, config, new_rows)


def _saved(run: Run, checkpoint: str) -> tuple[Path, Any]:
    """Load the weights of a run, or of an exported run; return the file and its content."""
    if run.exported:
        return run.path / export.WEIGHTS, export.read(run.path)
    folder = run.path / "checkpoints"
    file = folder / BEST
    # A run that has not been validated yet has no best checkpoint; its newest is then the best that it has.
    if checkpoint != "best" or not exists(file):
        file = newest_valid(folder, lambda line: None, run=run.identity)
    if file is None:
        if run.summary.status == "finished":  # a resume would find nothing to do
            raise Unavailable(f"run {run.path} has lost its checkpoints; put {folder} back, or name another run")
        again = pasted("seqtrain", "resume", run.path)
        raise Unavailable(f"run {run.path} has no checkpoint yet: `{again}` trains it")
    saved = load(file)
    refuse_other(file, saved, run.identity)
    if file.name == BEST:
        _check_best_step(file, saved, run.summary)
    return file, saved


def _check_best_step(file: Path, saved: Any, summary: Summary) -> None:
    """Raise UserError if the best checkpoint of a finished run is not of the step that its summary calls the best."""
    # A run that goes on writes its checkpoint and its summary one after the other, so the two may differ for a while.
    if summary.status != "finished":
        return
    step = summary.best.get("step")
    if step is not None and step != saved.get("global_step"):
        raise UserError(
            f"checkpoint {file}: is of step {saved.get('global_step')}, and summary.json says that step {step} is the "
            "best; put the run's own file back, or use --checkpoint last"
        )


def _check_fit(
    weights: dict[str, torch.Tensor],
    check: Callable[[Any, Any, str], None],
    file: Path,
    config: DictConfig,
    preprocessor: Preprocessor,
) -> None:
    """Raise UserError if `check` finds that the weights do not match the config of their run."""
    # On the meta device tensors take no memory, but a million layers are a million Python objects even there.
    if config.model.get("num_layers", 1) > len(weights):
        raise UserError(_other_model(file))
    # Made there first, so that a config of absurd sizes takes no more memory than its checkpoint has.
    with on_meta():
        model, task = make_pair(config, preprocessor)
    _check_weights(weights, check, file, model, task)


def _check_weights(
    weights: dict[str, torch.Tensor],
    check: Callable[[Any, Any, str], None],
    file: Path,
    model: SequenceModel,
    task: Task,
) -> None:
    """Raise UserError if `check` finds that the weights are not those of model and task."""
    expected = {f"model.{key}": value for key, value in model.state_dict().items()}
    expected |= {f"task.{key}": value for key, value in task.state_dict().items()}
    try:
        check(weights, expected, "state_dict")
    except Mismatch as error:
        raise UserError(f"{_other_model(file)}: {error}") from None


def _other_model(file: Path) -> str:
    return f"checkpoint {file}: its weights are not those of the model that {file.parent.parent} describes"


def load_weights(state_dict: dict[str, torch.Tensor], model: SequenceModel, task: Task) -> None:
    """Load a checkpoint's weights, which the learner saves under the names "model" and "task", into both modules."""
    for name, module in (("model", model), ("task", task)):
        prefix = f"{name}."
        module.load_state_dict(
            {key.removeprefix(prefix): value for key, value in state_dict.items() if key.startswith(prefix)}
        )


def run_config(run: Run) -> DictConfig:
    """Return the config of a run, from its directory. Raise UserError if it is not a valid config."""
    try:
        return cast(DictConfig, OmegaConf.create(run.config))
    except OmegaConfBaseException as error:
        raise UserError(f"{run.path}: its config cannot be read: {error}") from None


def checked_config(run: Run) -> DictConfig:
    """Return the config of an untrusted run. Raise UserError for any name or value that is not allowed."""
    # Before OmegaConf sees it, since to resolve a reference is to follow it.
    check_references(run.config, run.path, trusted())
    config = run_config(run)
    try:
        check_config(config)
    except UserError as fault:
        # The first alone: a config that somebody broke on purpose can have thousands of faults.
        first, *others = fault.lines
        more = f" (the first of {len(others) + 1} faults)" if others else ""
        raise UserError(f"{run.path}: its config: {first}{more}") from None
    return config


def write_export(opened: Opened, target: Path) -> None:
    """Write the weights, the config and the tokenizers to a new folder `target`, completely or not at all.

    Raises:
        UserError: `target` exists, or cannot be written.
    """
    # One flat file: the names of the two modules keep their parameters apart.
    weights = {}
    for name, module in (("model", opened.model), ("task", opened.task)):
        for key, value in module.state_dict().items():
            weights[f"{name}.{key}"] = value
    export.write(opened.run, opened.preprocessor, weights, opened.step, target)
