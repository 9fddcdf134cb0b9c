"""Check of options on the command line that have no effect in the run. A default without effect is fine.

`check` raises for every idle option of source and model, and for options of a stream if the task reads examples, or the
reverse. `notes` returns a line for the task's `without_effect`, and for a warm-up that ends after the last step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from omegaconf import DictConfig, OmegaConf

from seqtrain.config.check import key_of
from seqtrain.config.instantiate import plain
from seqtrain.config.targets import resolve
from seqtrain.errors import UserError
from seqtrain.models.base import idle_of
from seqtrain.training.data import make_source
from seqtrain.training.model_and_task import task_class


@runtime_checkable
class RefusesIdle(Protocol):
    """A source whose options without effect, given the values of the others, are refused."""

    def idle(self) -> dict[str, str]:
        """Return these options, each with the reason; may read the files."""
        ...


@runtime_checkable
class NotesIdle(Protocol):
    """A task whose options without effect, given the values of the others, are allowed, with a line for each."""

    @classmethod
    def without_effect(cls, options: Mapping[str, Any]) -> dict[str, str]:
        """Return these options, each with the reason."""
        ...


def check(config: DictConfig, overrides: Sequence[str]) -> None:
    """Raise UserError for options on the command line that have no effect in this run."""
    given = list(dict.fromkeys(map(key_of, overrides)))  # without duplicates, in the order of the command line
    source = make_source(config)
    idle = source.idle() if isinstance(source, RefusesIdle) else {}
    reasons = {f"data.{key}": f"{reason}; leave it out" for key, reason in idle.items()}
    for key, reason in idle_of(resolve(config.model._target_), plain(config.model)).items():
        reasons[f"model.{key}"] = f"{reason}; leave it out"
    reasons |= _of_other_layout(config)
    lines = [f"{key}: {reasons[key]}" for key in given if key in reasons]
    if lines:
        raise UserError(*lines)


def notes(config: DictConfig, overrides: Sequence[str]) -> list[str]:
    """Return a line for each value on the command line that has no effect in this run, as configured."""
    values = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
    given = set(map(key_of, overrides))
    reasons = _beyond_the_end(values)
    task = task_class(config)
    if isinstance(task, NotesIdle):
        for key, reason in task.without_effect(values["task"]).items():
            reasons[f"task.{key}"] = reason
    return [f"{key}={OmegaConf.select(config, key)}: {reason}" for key, reason in reasons.items() if key in given]


def _of_other_layout(config: DictConfig) -> dict[str, str]:
    """Return the options that apply only to a stream, or only to examples, if the task reads the other."""
    task = task_class(config)
    name, reasons = task.name(), {}
    if task.streams or (task.reads_values() and config.tbptt.carry):
        useless = ["data.batch_tokens"]
        # For series, max_length is read before evaluation, and windows are shown as samples; text has neither.
        if not task.reads_values():
            useless.append("callbacks.samples.examples")
            # With tbptt=whole, data.max_length sets the length of a stream's windows.
            if config.tbptt.k2 != config.data.max_length:
                useless.append("data.max_length")
        else:
            reasons["data.eval_lanes"] = (
                f"task={name} evaluates each series from its beginning to its end; leave it out"
            )
        remedy = "reads a stream, not examples; data.batch_size and tbptt.k2 set how much of it is read at a time"
    else:
        useless = ["data.eval_lanes"]
        useless += [f"callbacks.samples.{key}" for key in ("prompt", "length", "temperature", "top_k", "top_p")]
        remedy = "reads examples, not a stream; data.batch_tokens and data.batch_size set how many are read at a time"
    return reasons | dict.fromkeys(useless, f"task={name} {remedy}")


def _beyond_the_end(values: dict[str, Any]) -> dict[str, str]:
    """Return `schedule.warmup` if it ends only after the last step, with the consequence."""
    steps, schedule = values["trainer"]["max_steps"], values["schedule"]
    known = isinstance(steps, int) and schedule["_target_"].startswith("seqtrain.")
    if not known or schedule.get("warmup", 0) < steps:
        return {}
    return {"schedule.warmup": f"the training ends at trainer.max_steps={steps}, so optimizer.lr is never reached"}
