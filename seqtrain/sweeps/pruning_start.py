"""From which step on trials of a search may be stopped: none while its learning rate warms up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig

ASKED = "n_warmup_steps"  # the pruners' own option
NEVER = "optuna.pruners.NopPruner"


def first_step(warmup: int) -> int:
    """The first step at which a trial may be stopped.

    Args:
        warmup: steps of its learning rate's warm-up.
    """
    # One step at the full rate at least: before it the trial has shown nothing of that rate.
    if not warmup:
        return 0
    return warmup + 1


def waiting_line(config: DictConfig, pruner: Mapping[str, Any], searched: Collection[str]) -> str:
    """What is said once of a search: until when no trial is stopped; empty where nothing has to be waited for.

    Args:
        config: of one trial.
        pruner: the pruner's options.
        searched: keys in which trials differ.
    """
    if pruner["_target_"] == NEVER:
        return ""
    # A trial's own schedule decides, so no one number holds for all of them.
    steps = config.trainer.max_steps
    if not isinstance(steps, int) or any(key.startswith(("schedule", "trainer.max_")) for key in searched):
        return "each trial may be pruned only once its learning rate has warmed up, by its own schedule"
    first = first_step(_warmup(config, steps))
    if not first:
        return ""
    asked = pruner.get(ASKED, 0)
    if asked >= first:
        return ""  # a later start was asked for, and holds
    line = f"no trial is pruned before step {first}: until then its learning rate warms up"
    if asked:
        line += f"; hydra.sweeper.pruner.{ASKED}={asked} is earlier, and does not count"
    return line


def _warmup(config: DictConfig, max_steps: int) -> int:
    """The warm-up that the config's schedule has."""
    # These import torch, which only a search does in this process.
    from seqtrain.config.instantiate import make
    from seqtrain.training.optim.warmup import warmup_steps

    return warmup_steps(make(config.schedule), max_steps)
