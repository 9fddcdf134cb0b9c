"""A task as `seqtrain contract task=...` tests it: with its own or the requested data, and a small model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seqtrain.config import check
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError, merged

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from seqtrain.tasks.contract import TaskSubject

FOR_MODELS = ("model",)
FOR_TASKS = ("task", "model", "data", "tokenizer", "tbptt")
SMALL_DATA = 2000  # rows of synthetic data: enough for each label, or word, to be in each split
SHOWN = 4  # tokens that a sample adds


def check_overrides(overrides: Sequence[str], groups: Sequence[str]) -> None:
    """Raise UserError for overrides that have no effect without training: one line for each."""
    takes = ", ".join(groups)
    lines = []
    for text in overrides:
        if "=" in text and check.group_of(text).partition("@")[0] not in groups:
            lines.append(f"{text}: has no effect, since nothing is trained; leave it out (allowed: {takes})")
    if lines:
        raise UserError(*lines)


def names_task(overrides: Iterable[str]) -> bool:
    """Return True if the overrides name a task: then the task is checked instead of a model."""
    return any(check.group_of(text) == "task" for text in overrides)


def subject_of(overrides: Sequence[str], config_dirs: Sequence[Path]) -> tuple[TaskSubject, str]:
    """Return the task that the overrides choose, as the laws test it, and its first line of output.

    Raises:
        UserError: If the overrides are wrong, task, model and data do not fit, or the data cannot be read.
    """
    config, choices, small = _compose(overrides, config_dirs)

    from seqtrain.tasks.base import SampleOptions
    from seqtrain.training.compatibility import check_pair
    from seqtrain.training.data import make_data
    from seqtrain.training.model_and_task import make_pair
    from seqtrain.training.rehearsal import subject_of as rehearsed

    faults = check.signature_faults(config)
    if faults:
        raise merged(faults)
    check_pair(config)
    data = make_data(config, ("train", "validation"), say)
    model, task = make_pair(config, data.preprocessor, data.label_counts)
    options = SampleOptions(prompt="", length=SHOWN, temperature=1.0, top_k=None, top_p=None)
    name = f"task={choices['task']} on data={choices['data']} with model={choices['model']}"
    return rehearsed(data, model, task, options), " ".join([name, *small])


def _compose(
    overrides: Sequence[str], config_dirs: Sequence[Path]
) -> tuple[DictConfig, dict[str, str], tuple[str, ...]]:
    """Return the config of the task with a small model, the choices of its groups, and the reduced sizes."""
    from seqtrain.models.contract import SMALL

    composed = check.compose(overrides, config_dirs)
    config, given = composed.config, set(map(check.key_of, overrides))
    sizes = {f"model.{name}": size for name, size in SMALL.items()} | {"data.size": SMALL_DATA}
    small = []
    for key, size in sizes.items():
        group, _, name = key.partition(".")
        if name in config[group] and key not in given:
            config[group][name] = size
            small.append(f"{key}={size}")
    config.trainer.precision = "64-true"  # the laws compare sums over halves of a batch
    return config, composed.choices, tuple(small)
