"""Check options that have no effect: raise if they contradict others, warn otherwise.

Only options on the command line are checked: a default that has no effect, in a short run or on other data, is fine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from omegaconf import DictConfig, OmegaConf

from seqtrain.config.check import key_of
from seqtrain.errors import UserError
from seqtrain.training.data import make_source
from seqtrain.training.from_data import AUTO
from seqtrain.training.model_and_task import idle_options, task_class

PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"
EARLY_STOPPING = "pytorch_lightning.callbacks.EarlyStopping"


@runtime_checkable
class KnowsIdle(Protocol):
    """A source some of whose options have no effect beside others."""

    def idle(self) -> dict[str, str]:
        """Return these options, each with the reason; may look at the files."""
        ...


@runtime_checkable
class KnowsEffects(Protocol):
    """A task some of whose options have no effect beside others."""

    @classmethod
    def without_effect(cls, options: Mapping[str, Any]) -> dict[str, str]:
        """Return these options, each with the reason."""
        ...


def check(config: DictConfig, overrides: Sequence[str]) -> None:
    """Raise UserError for options on the command line that have no effect in this run."""
    given = list(dict.fromkeys(map(key_of, overrides)))  # each once, in the order of the command line
    source = make_source(config)
    idle = source.idle() if isinstance(source, KnowsIdle) else {}
    reasons = {f"data.{key}": f"{reason}; leave it out" for key, reason in idle.items()}
    for key, reason in idle_options(config).items():
        reasons[f"model.{key}"] = f"{reason}; leave it out"
    reasons |= _of_other_layout(config) | _of_greedy_sampling(config) | _of_plateau(config)
    lines = [f"{key}: {reasons[key]}" for key in given if key in reasons]
    if lines:
        raise UserError(*lines)


def notes(config: DictConfig, overrides: Sequence[str]) -> list[str]:
    """Return a line for each value on the command line that has no effect in this run, as it is configured."""
    values = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
    given = set(map(key_of, overrides))
    reasons = dict(_beyond_the_end(values))
    task = task_class(config)
    if isinstance(task, KnowsEffects):
        for key, reason in task.without_effect(values["task"]).items():
            reasons[f"task.{key}"] = reason
    return [f"{key}={OmegaConf.select(config, key)}: {reason}" for key, reason in reasons.items() if key in given]


def _of_other_layout(config: DictConfig) -> dict[str, str]:
    """Return the options that apply only to a stream, or only to examples, if the task reads the other."""
    name = task_class(config).name()
    reasons: dict[str, str] = {}
    task = task_class(config)
    if task.streams or (task.reads_values() and config.tbptt.carry):
        useless = ["data.batch_tokens"]
        # For series, max_length is read before evaluation, and windows are shown; text has neither.
        if "values" not in task_class(config).fields:
            useless.append("callbacks.samples.examples")
            # With tbptt=whole the windows of a stream are as long as data.max_length says.
            if config.tbptt.k2 != config.data.max_length:
                useless.append("data.max_length")
        else:
            reasons["data.eval_lanes"] = (
                f"task={name} evaluates each series from its beginning to its end; leave it out"
            )
        remedy = "reads a stream, not examples; data.batch_size and tbptt.k2 say how much of it"
    else:
        useless = ["data.eval_lanes"]
        useless += [f"callbacks.samples.{key}" for key in ("prompt", "length", "temperature", "top_k", "top_p")]
        remedy = "reads examples, not a stream; data.batch_tokens and data.batch_size say how many"
    return reasons | dict.fromkeys(useless, f"task={name} {remedy}")


def _of_greedy_sampling(config: DictConfig) -> dict[str, str]:
    """Return the options of sampling that have no effect at temperature 0."""
    if OmegaConf.select(config, "callbacks.samples.temperature") != 0:
        return {}
    reason = "with callbacks.samples.temperature=0 nothing is drawn, the likeliest token is taken; leave it out"
    return {f"callbacks.samples.{key}": reason for key in ("top_k", "top_p")}


def _of_plateau(config: DictConfig) -> dict[str, str]:
    """Return `schedule.min_lr` if the learning rate begins at or below this minimum and so never falls."""
    known = config.optimizer._target_.startswith(("seqtrain.", "torch."))  # others may differ in meaning
    if config.schedule._target_ != PLATEAU or not known or config.optimizer.lr == AUTO:
        return {}
    rate = max(config.optimizer.lr, config.optimizer.get("lr_rest", 0))
    if config.schedule.min_lr < rate:
        return {}
    return {"schedule.min_lr": f"the learning rate begins at {rate:g} and could never fall; give a smaller one"}


def _beyond_the_end(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each key whose value is reached only after the last step, with the consequence."""
    trainer, schedule = values["trainer"], values["schedule"]
    steps = trainer["max_steps"]
    if not isinstance(steps, int) or not isinstance(trainer["validate_every"], int):
        return  # the time limit decides, or the data, which is not read yet
    end = f"the training ends at trainer.max_steps={steps}"
    if trainer["log_every"] > steps:
        yield "trainer.log_every", f"{end}, so only validations are recorded"
    if trainer["validate_every"] > steps:
        yield "trainer.validate_every", f"{end}, so only its last step is validated"
    if schedule["_target_"].startswith("seqtrain.") and schedule.get("warmup", 0) >= steps:
        yield "schedule.warmup", f"{end}, so optimizer.lr is never reached"
    validations = -(-steps // trainer["validate_every"])  # rounded up: the last step is validated, too
    after = f"{end}, after {validations} validation{'s' * (validations != 1)}"
    # Both wait for `patience` validations that are no better; torch's then falls at the next one.
    if schedule["_target_"] == PLATEAU and schedule["patience"] + 1 >= validations:
        yield "schedule.patience", f"{after}, so the learning rate never falls"
    stopping = values["callbacks"].get("early_stopping")
    if stopping and stopping["_target_"] == EARLY_STOPPING and stopping["patience"] >= validations:
        yield "callbacks.early_stopping.patience", f"{after}, so none is ever stopped early"
