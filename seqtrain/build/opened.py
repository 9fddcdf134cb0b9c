"""A run's directory opened for use: its config checked, its weights fitting, nothing executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seqtrain import export
from seqtrain.build.pair import make_pair
from seqtrain.check import check_config
from seqtrain.checkpoint import BEST, load, newest_valid
from seqtrain.data.rows import Vocabularies
from seqtrain.data.tokenizer import Tokenizer
from seqtrain.faults import Fault
from seqtrain.interface import SequenceModel
from seqtrain.runs import Run
from seqtrain.safety import check_references
from seqtrain.task import Task


@dataclass
class Opened:
    """A run opened for use: weights in, evaluation mode, nothing of Lightning."""

    run: Run
    config: DictConfig
    vocabularies: Vocabularies
    model: SequenceModel
    task: Task
    step: int

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of text, and of sources."""
        return self.vocabularies.tokenizer


def open_run(path: Path | str, trust: Sequence[str] = (), checkpoint: str = "best") -> Opened:
    """Opens a run directory with its `best` or its `last` checkpoint; nothing in it can execute."""
    run = Run.open(path, export="take")
    config = checked_config(run, trust)
    vocabularies = Vocabularies.load(run.path)
    vocabularies.check(run.path, run.summary.get("hashes", {}))
    file, saved = _saved(run, checkpoint)
    weights = _fitting(saved, file, config, vocabularies, trust)
    model, task = make_pair(config, vocabularies, trust)
    load_weights(weights, model, task)
    return Opened(run, config, vocabularies, model.eval(), task.eval(), saved["global_step"])


def _saved(run: Run, checkpoint: str) -> tuple[Path, Any]:
    """The file with the weights of a run, or of what was exported of one, and what it holds."""
    if run.exported:
        return run.path / export.WEIGHTS, export.read(run.path)
    folder = run.path / "checkpoints"
    file = folder / BEST if checkpoint == "best" else newest_valid(folder, lambda line: None)
    if file is None or not file.exists():
        file = newest_valid(folder, lambda line: None)
    if file is None:
        raise Fault(f"run {run.path} has no checkpoint yet: `seqtrain resume {run.path}` trains it")
    return file, load(file)


def _fitting(
    saved: Any, file: Path, config: DictConfig, vocabularies: Vocabularies, trust: Sequence[str]
) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint; Fault where they are not those that its run's config describes.

    Asked on the meta device, so that a config of absurd sizes takes no more memory than its checkpoint has.
    """
    weights = saved.get("state_dict") if isinstance(saved, dict) else None
    if not isinstance(weights, dict) or not isinstance(saved.get("global_step"), int):
        raise Fault(f"checkpoint {file}: holds no weights of a step; it is not what a run saves")
    misfit = Fault(f"checkpoint {file}: its weights are not those of the model that {file.parent.parent} describes")
    if config.model.get("num_layers", 1) > len(weights):
        raise misfit
    with torch.device("meta"):
        pair = make_pair(config, vocabularies, trust)
    shapes = {
        f"{name}.{key}": value.shape
        for name, module in zip(("model", "task"), pair, strict=True)
        for key, value in module.state_dict().items()
    }
    if shapes != {key: getattr(value, "shape", None) for key, value in weights.items()}:
        raise misfit
    return weights


def load_weights(state_dict: dict[str, torch.Tensor], model: SequenceModel, task: Task) -> None:
    """Puts a checkpoint's weights into model and task."""
    for name, module in (("model", model), ("task", task)):
        prefix = f"{name}."
        module.load_state_dict(
            {key.removeprefix(prefix): value for key, value in state_dict.items() if key.startswith(prefix)}
        )


def run_config(run: Run) -> DictConfig:
    """The config of a run, as its directory holds it; Fault where it holds what no config can."""
    try:
        return cast(DictConfig, OmegaConf.create(run.config))
    except OmegaConfBaseException as error:
        raise Fault(f"{run.path}: its config cannot be read: {error}") from None


def checked_config(run: Run, trust: Sequence[str]) -> DictConfig:
    """The config of a run that a stranger may have made; Fault for whatever it may not name or ask for."""
    check_references(run.config, run.path, trust)
    config = run_config(run)
    try:
        check_config(config, {}, trust=trust)
    except Fault as fault:
        first, *others = fault.lines
        more = f" (the first of {len(others) + 1} faults)" if others else ""
        raise Fault(f"{run.path}: its config: {first}{more}") from None
    return config
