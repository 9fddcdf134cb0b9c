"""Opening of a run's directory for use: checks its config and weights, and executes none of its content."""

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
    """A run opened for use: with its weights, in evaluation mode, without Lightning."""

    run: Run
    config: DictConfig
    preprocessor: Preprocessor
    model: SequenceModel
    task: Task
    step: int

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the input text; for a translation, that of the source language."""
        return self.preprocessor.tokenizer

    @property
    def answers_series(self) -> bool:
        """True if the predictors read the series of a file instead of texts."""
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
            raise UserError(f"{reason}; fine-tune it with init_from, or use embed")
        if not predictors:
            raise UserError(f"run {self.run.path}: task={self.task.name()} has no predictions")
        name = name or next(iter(predictors))
        if name not in predictors:
            can = ", ".join(predictors)
            raise UserError(f"{name}: not a prediction of run {self.run.path}, task={self.task.name()}; use {can}")
        return predictors[name](self.task, self.loaded)

    @property
    def text_reader(self) -> TextReader[Any]:
        """The task's reader of texts, without a prediction."""
        return TextReader(self.task, self.loaded)

    @property
    def hash(self) -> str:
        """Hash of the weights and of the preprocessing."""
        digest = hashlib.blake2b(repr(sorted(self.preprocessor.hashes.items())).encode(), digest_size=16)
        for module in (self.model, self.task):
            for name, value in sorted(module.state_dict().items()):
                # With dtype and shape: the same bytes could be split into other tensors.
                digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
                digest.update(value.contiguous().numpy().data)
        return digest.hexdigest()

    def write_export(self, target: Path) -> None:
        """Write the weights, the config and the tokenizers to a new folder `target`, atomically.

        Raises:
            UserError: `target` exists, or cannot be written.
        """
        # One flat file; parameter names are prefixed by `model.` or `task.`.
        weights = {}
        for name, module in (("model", self.model), ("task", self.task)):
            for key, value in module.state_dict().items():
                weights[f"{name}.{key}"] = value
        export.write(self.run, self.preprocessor, weights, self.step, target)


def open_origin(path: Path | str) -> Run:
    """Return a run or an export; a model folder of the Hugging Face hub is converted to an export first.

    Raises:
        UserError: The path is none of these.
    """
    if is_foreign(path):
        from seqtrain.hub.convert import converted  # imported here because it is rarely needed

        path = converted(str(path))
    return Run.open(path, export="take")


def open_run(path: Path | str, checkpoint: str = "best") -> Opened:
    """Open a run directory without executing anything in it.

    Args:
        path: Path of a run, of its export, or of a model folder of the Hugging Face hub.
        checkpoint: `best` or `last`.

    Raises:
        UserError: If it is not a run, was not trained yet, or contains weights or files that do not match its config.
    """
    run = open_origin(path)
    config = checked_config(run)
    preprocessor = Preprocessor.load(run.path, run.summary.hashes)
    if run.exported:
        config.pop("adapter", None)  # already merged into the weights
        # Check the file's header before reading the file: untrusted weights may be larger than memory.
        _check_fit(export.described(run.path), alike, run.path / export.WEIGHTS, config, preprocessor)
    file, saved = _saved(run, checkpoint)
    weights = saved.get("state_dict") if isinstance(saved, dict) else None
    # type() instead of isinstance(), because True is an int.
    if not isinstance(weights, dict) or type(saved.get("global_step")) is not int or saved["global_step"] < 0:
        raise UserError(f"checkpoint {file}: contains no weights with a step; it was not saved by a run")
    adapted = config.get("adapter") is not None
    if not adapted:
        _check_fit(weights, check_weights, file, config, preprocessor)
    model, task = make_pair(config, preprocessor)
    if adapted:
        _begin_adapted(model, run, config)
        _check_weights(weights, check_weights, file, model, task)  # shapes depend on which tokens are new to the parent
    load_weights(weights, model, task)
    if adapted:
        merge(model)
    return Opened(run, config, preprocessor, model.eval(), task.eval(), saved["global_step"])


def _begin_adapted(model: SequenceModel, run: Run, config: DictConfig) -> None:
    """Load the weights that a run with adapters started from, and add untrained adapters.

    Raises:
        UserError: The run's own copy of these weights is missing or has changed.
    """
    path = run.path / export.PARENT
    words = f"{path}: the weights that the adapters of this run change"
    if not exists(path):
        raise UserError(f"{words} are missing; restore the folder")
    parent = open_run(path)
    if parent.hash != run.summary.parent:
        raise UserError(f"{words} are not the original ones; restore the original folder")
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
    # Before the first validation there is no best checkpoint; use the newest.
    if checkpoint != "best" or not exists(file):
        file = newest_valid(folder, lambda line: None, run=run.identity)
    if file is None:
        if run.summary.status == "finished":  # resume would do nothing
            raise Unavailable(f"run {run.path} has lost its checkpoints; restore {folder}, or name another run")
        again = pasted("seqtrain", "resume", run.path)
        raise Unavailable(f"run {run.path} has no checkpoint yet; train it with `{again}`")
    saved = load(file)
    refuse_other(file, saved, run.identity)
    if file.name == BEST:
        _check_best_step(file, saved, run.summary)
    return file, saved


def _check_best_step(file: Path, saved: Any, summary: Summary) -> None:
    """Raise UserError if the best checkpoint of a finished run is from another step than its summary says."""
    # While a run trains, checkpoint and summary may differ, because they are written one after the other.
    if summary.status != "finished":
        return
    step = summary.best.get("step")
    if step is not None and step != saved.get("global_step"):
        raise UserError(
            f"checkpoint {file}: is from step {saved.get('global_step')}, but the best step in summary.json is {step}; "
            "restore the original file, or use --checkpoint last"
        )


def _check_fit(
    weights: dict[str, torch.Tensor],
    check: Callable[[Any, Any, str], None],
    file: Path,
    config: DictConfig,
    preprocessor: Preprocessor,
) -> None:
    """Raise UserError if `check` finds that the weights do not match the config of their run."""
    # Tensors on the meta device take no memory, but a million layers would still be a million Python objects.
    if config.model.get("num_layers", 1) > len(weights):
        raise UserError(_other_model(file))
    # Build on the meta device first: a config with absurd sizes then takes no memory.
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
    """Raise UserError if `check` finds that the weights do not match model and task."""
    expected = {f"model.{key}": value for key, value in model.state_dict().items()}
    expected |= {f"task.{key}": value for key, value in task.state_dict().items()}
    try:
        check(weights, expected, "state_dict")
    except Mismatch as error:
        raise UserError(f"{_other_model(file)}: {error}") from None


def _other_model(file: Path) -> str:
    return f"checkpoint {file}: its weights do not match the model in the config of {file.parent.parent}"


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
    # Check references before OmegaConf, which follows them.
    check_references(run.config, run.path, trusted())
    config = run_config(run)
    try:
        check_config(config)
    except UserError as fault:
        # Report the first only: a malicious config can have thousands of faults.
        first, *others = fault.lines
        more = f" (the first of {len(others) + 1} faults)" if others else ""
        raise UserError(f"{run.path}: its config: {first}{more}") from None
    return config
