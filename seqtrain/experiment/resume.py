"""Continuation of an interrupted run from its newest sound checkpoint, or extension of a finished one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from seqtrain.distributed import ranks
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError, did_you_mean
from seqtrain.experiment.start import Request, check_all, run_attempt
from seqtrain.files.atomic import listed
from seqtrain.runs.checkpoint import newest_sound, step_of, written_under
from seqtrain.runs.directory import Run
from seqtrain.runs.identity import LIMITS, MAY_CHANGE, digest, shown
from seqtrain.terminal import pasted

if TYPE_CHECKING:
    from omegaconf import DictConfig

# The destination of records does not affect the training.
SAFE_GROUPS = ("logger.",)


class Change(NamedTuple):
    """An option that a resume changes."""

    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.key}: {self.before} -> {self.after}"

    @property
    def extends(self) -> bool:
        """True if the option limits the training."""
        return self.key.startswith("trainer.max_")


def resume(path: str, overrides: list[str], command: tuple[str, ...]) -> Run:
    """Continue the run in `path`.

    Args:
        path: The run's directory.
        overrides: Options that change, such as trainer.max_steps.
        command: The command as it was typed, for the run's summary.

    Raises:
        UserError: If a change would make it another run, or there is nothing left to do.
    """
    from seqtrain.config import check
    from seqtrain.experiment import endings
    from seqtrain.experiment.story import Attempt
    from seqtrain.inference.opened import checked_config
    from seqtrain.training import budget

    with ranks.process_group() as here:
        run = Run.open(path)
        run.writes = here.first  # processes that met: one of them writes for all
        config = checked_config(run)

        def ready() -> tuple[list[Change], Path | None, int]:
            with endings.writing(run, f"`{pasted('seqtrain', 'resume', run.path)}`"):
                run.claim()
            budget.check_free(config, overrides)
            changed = _apply(config, overrides)
            config.run_dir = None  # for new runs only; the checks would report that it exists already
            check.check_config(config)
            check_all(config, Request(), begins=not listed(run.checkpoints, "step-*.ckpt"))
            newest = newest_sound(run.checkpoints, say, run=run.identity)
            checkpoint, step = None, 0
            if newest is None:
                _refuse_edited(run)
            else:
                checkpoint, step = newest[0], step_of(newest[0])
                changed += _edited_limits(config, changed, written_under(newest[1]))
            _refuse_pointless(run, config, changed, step)
            _say_lost(run, step)
            return changed, checkpoint, step

        # On each process, because each reads the checkpoint; an error in one ends all.
        changed, checkpoint, step = ranks.run_on_all(ready)
        for change in changed:
            say(str(change))
        say(f"run {run.path}: resumed from step {step}")
        run_attempt(run, config, Attempt(command, checkpoint, goes_on=True, extended=_extensions(changed, step)))
    return run


def _extensions(changed: list[Change], step: int) -> tuple[str, ...]:
    """Return the limits changed after the first step. Earlier steps followed the schedule of the old limits."""
    if not step:
        return ()
    return tuple(f"{change} at step {step}" for change in changed if change.extends)


def _say_lost(run: Run, step: int) -> None:
    """Print a warning if metrics.jsonl ends before the checkpoint. A run writes its records before the checkpoint."""
    reached, every = run.newest_step(), run.config["trainer"]["log_every"]
    if reached < step // every * every:  # the last step before the checkpoint that was to be recorded
        say(
            f"run {run.path}: metrics.jsonl ends at step {reached}, but the checkpoint is from step {step}: "
            "the records between them are lost; later ones are complete"
        )


def _refuse_edited(run: Run) -> None:
    """Raise UserError if the config of a run without a checkpoint was edited: the run would mix two configs.

    A run with a checkpoint is checked against the config in it.
    """
    if run.summary.identity not in (None, digest(run.config)):
        raise UserError(
            f"run {run.path}: its config.yaml was edited, which would make it another run; "
            "restore it, or start a new run"
        )


def _edited_limits(config: DictConfig, changed: list[Change], before: dict[str, Any]) -> list[Change]:
    """Return the limits edited in config.yaml since the checkpoint. Such an edit extends a run."""
    overridden = {change.key for change in changed}
    edited = []
    for name in LIMITS:
        key, limit = f"trainer.{name}", config.trainer[name]
        if key not in overridden and before.get(key, limit) != limit:
            edited.append(Change(key, shown(before[key]), limit))
    return edited


def _refuse_pointless(run: Run, config: DictConfig, changed: list[Change], step: int) -> None:
    """Raise UserError if there is no sound checkpoint to continue from, or nothing left to do after `step`."""
    if not step and listed(run.checkpoints, "step-*.ckpt"):  # the user decides whether to discard them
        raise UserError(
            f"run {run.path}: all checkpoints are damaged; move {run.checkpoints}/step-*.ckpt elsewhere to start again "
            "from step 0"
        )
    limit, summary = config.trainer.max_steps, run.summary
    if isinstance(limit, int) and limit < step:
        raise UserError(f"trainer.max_steps={limit}: run {run.path} is already at step {step}; set it above {step}")
    if summary.status != "finished":
        return
    if summary.ended_by == "early_stopping":
        raise UserError(
            f"run {run.path} is finished: early stopping ended it at step {step}; more steps have no effect"
        )
    if config.budget is not None:
        raise UserError(f"run {run.path} is finished: its budget is spent; start a new run with another one")
    seconds, limit = summary.seconds or 0.0, config.trainer.max_seconds
    if summary.ended_by == "seconds" and limit is not None and limit <= seconds:
        raise UserError(f"run {run.path} is finished: extend it with trainer.max_seconds=S above {seconds:g}")
    # `changed` also names limits that were edited in config.yaml.
    if not any(change.extends for change in changed):
        raise UserError(f"run {run.path} is finished: extend it with trainer.max_steps=N above {step}")


def _apply(config: DictConfig, overrides: list[str]) -> list[Change]:
    """Apply the overrides that may change; return those that change a value."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    changed = []
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise UserError(f"{override}: expected key=value")
        before = _value_at(config, key)
        if before is Unset:
            raise UserError(f"{key}: no such key in this run{did_you_mean(key, MAY_CHANGE)}")
        if key not in MAY_CHANGE and not key.startswith(SAFE_GROUPS):
            raise UserError(
                f"{key}: cannot change in a resumed run; only {', '.join(MAY_CHANGE)} and logger.* can; start a new run"
            )
        value = _value(text)
        if before == value:
            continue
        try:
            OmegaConf.update(config, key, value)
        except OmegaConfBaseException:  # a date, a set, half an interpolation
            raise UserError(f"{override}: not a valid config value; give a number, or text in quotes") from None
        changed.append(Change(key, before, value))
    return changed


class Unset:
    """Marker for a key that does not exist."""


def _value_at(config: DictConfig, key: str) -> Any:
    """Return the value of a key, or Unset if there is no such key or its name is malformed."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.select(config, key, default=Unset)
    except OmegaConfBaseException:
        return Unset


def _value(text: str) -> Any:
    # Parse as YAML, like config.yaml.
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UserError(f"{text}: cannot be parsed as YAML; give a number, or text in quotes") from None
