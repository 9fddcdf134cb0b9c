"""Which data, model, task and cut of time go together, and in words why others do not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import torch
from omegaconf import DictConfig, OmegaConf

from seqtrain import conf  # pyright: ignore[reportAttributeAccessIssue]  # conf/ is mapped in by pyproject.toml
from seqtrain.config import check
from seqtrain.config.instantiate import make
from seqtrain.config.options import DEFAULT_LANES
from seqtrain.data.batching.plan import TBPTT
from seqtrain.errors import UserError, did_you_mean
from seqtrain.models.base import Capability, SequenceModel
from seqtrain.tasks.base import Task
from seqtrain.training.data import make_source
from seqtrain.training.memory import check_model
from seqtrain.training.model_and_task import make_model, make_task, task_class
from seqtrain.training.transfer import freeze

WANTED = {
    Capability.CAUSAL: "that no token sees a later one",
    Capability.BIDIRECTIONAL: "that every token sees every other",
    Capability.STATEFUL: "a state that goes on from chunk to chunk",
    Capability.CONDITIONAL: "that it goes on from a source",
    Capability.UNCONDITIONAL: "that it may start from nothing",
}


def check_pair(config: DictConfig) -> None:
    """UserError unless data, model, task and cut of time fit; asks a model on the meta device, so nothing is
    computed."""
    model, task, tbptt = _asked(config)
    reason = incompatibility(model, task, tbptt, config.data.max_length)
    if reason is not None:
        reason = f"{reason}; models that do, as shipped: {', '.join(_fitting(config, task)) or 'none'}"
    lines = list(
        filter(None, [reason, _unread(config, task), _needs_whole(config, task, tbptt), _uneven(config, task)])
    )
    if lines:
        raise UserError(*lines)
    freeze(model, config.freeze)
    if not any(weight.requires_grad for weight in (*model.parameters(), *task.parameters())):
        raise UserError(
            f"freeze=[{','.join(config.freeze)}]: leaves nothing to train; freeze less, or give the head weights of "
            "its own"
        )
    size = config.tokenizer.get("size")  # of the others only the data tells how many tokens they have
    with torch.device("meta"):
        check_model(config, make_model(config, size) if isinstance(size, int) else model)


def _asked(config: DictConfig) -> tuple[SequenceModel, Task, TBPTT]:
    """Model, task and cut of time that can only be asked what fits."""
    with torch.device("meta"):
        model = make_model(config, 2)
        task = make_task(config, model, 2)
    return model, task, make(config.tbptt)


def _unread(config: DictConfig, task: Task) -> str | None:
    """Why the task cannot read the data, with the data that it can read, or None."""
    source = make_source(config)
    missing = [field for field in task.fields if field not in source.fields]
    if not missing:
        return None
    name = type(task).__name__
    return (
        f"task={name}: needs rows with {' and '.join(task.fields)}, and data {type(source).__name__} "
        f"has {' and '.join(source.fields)}; data that does, as shipped: "
        f"{', '.join(_readable(task)) or 'none'}"
    )


def _readable(task: Task) -> list[str]:
    """The shipped data whose rows have what the task reads."""
    found = []
    for name in shipped("data"):
        composed = compose_data(name)
        if "_target_" in composed.data:  # a file that is no data by itself has none
            with contextlib.suppress(UserError):
                if set(task.fields) <= set(make_source(composed).fields):
                    found.append(name)
    return found


def compose_data(name: str) -> DictConfig:
    """The options of a shipped data set as its file gives them, with a word in place of what the user must say."""
    folder = Path(conf.__path__[0], "data")
    node = cast(DictConfig, OmegaConf.load(folder / f"{name}.yaml"))
    parents = [compose_data(parent).data for parent in node.pop("defaults", [])]
    merged = cast(DictConfig, OmegaConf.merge({}, *parents, node))
    for key in {*OmegaConf.missing_keys(merged), *(["path"] if "path" in merged else [])}:
        merged[key] = "x"
    return OmegaConf.create({"data": merged})


def _needs_whole(config: DictConfig, task: Task, tbptt: TBPTT) -> str | None:
    """Why time cannot be cut like this for a task that reads examples, or None."""
    if task.streams:
        return None
    name = type(task).__name__
    if tbptt.carry:
        return f"tbptt.carry=true: task={name} reads each example by itself, with no state before it; use tbptt=whole"
    if tbptt.reset != "never":
        return f"tbptt.reset={tbptt.reset}: task={name} reads each example by itself; use tbptt=whole"
    if tbptt.k1 != tbptt.k2:
        return f"tbptt.k1={tbptt.k1}: task={name} has one update for each batch of examples; leave tbptt.k1 out"
    if task.needs_whole is not None and tbptt.k2 < config.data.max_length:
        return (
            f"tbptt.k2={tbptt.k2}: task={name} cannot cut examples of up to data.max_length={config.data.max_length} "
            f"tokens, because {task.needs_whole}; leave tbptt.k2 out and use tbptt=whole"
        )
    return None


def _uneven(config: DictConfig, task: Task) -> str | None:
    """Why the lanes of a stream cannot be shared out evenly, or None; of examples any number can."""
    trainer, lanes = config.trainer, config.data.batch_size or DEFAULT_LANES
    devices = torch.cuda.device_count() if trainer.devices == "all" else trainer.devices
    world = max(devices, 1) * trainer.num_nodes
    if not task.streams or lanes % (trainer.accumulate * world) == 0:
        return None
    if world == 1:
        return (
            f"trainer.accumulate={trainer.accumulate}: data.batch_size={lanes} do not make {trainer.accumulate} equal "
            "micro-batches; choose one that divides the other"
        )
    return (
        f"trainer.devices={trainer.devices}: data.batch_size={lanes} cannot be shared out evenly to {world} processes "
        f"with trainer.accumulate={trainer.accumulate} micro-batches each; choose a multiple of "
        f"{world * trainer.accumulate}"
    )


def incompatibility(model: SequenceModel, task: Task, tbptt: TBPTT, max_length: int) -> str | None:
    """Why these three do not go together, or None; `max_length`: of an example."""
    name = type(model).__name__
    missing = [words for flag, words in WANTED.items() if flag in task.requires & ~model.capabilities]
    if missing:
        return f"task={type(task).__name__}: needs {' and '.join(missing)}, which model {name} does not promise"
    if reason := task.incompatibility(model):
        return reason
    if not task.streams and task.needs_whole is None and not tbptt.carry and tbptt.k2 < max_length:
        return _not_in_pieces(model, tbptt.k2, max_length)
    if not tbptt.carry:
        if model.max_length is not None and tbptt.k2 > model.max_length:
            read = f"data.max_length={max_length}" if not task.streams else f"tbptt.k2={tbptt.k2}"
            return f"{read}: longer than the {model.max_length} positions of model.max_length"
        if tbptt.k1 < tbptt.k2 and Capability.STATEFUL not in model.capabilities:
            return f"tbptt.k1={tbptt.k1}: a window is read in parts, from state to state, and model {name} has no state"
        return None
    if Capability.STATEFUL not in model.capabilities:
        return f"tbptt.carry=true: needs a state that goes on from chunk to chunk, which model {name} does not have"
    if model.max_length is not None:
        return (
            f"tbptt.carry=true: a stream has no end, but model.positions=learned ends at {model.max_length}; "
            "use tbptt=windows or model.positions=rotary"
        )
    return None


def _not_in_pieces(model: SequenceModel, k2: int, max_length: int) -> str | None:
    """Why a model cannot read the examples `k2` tokens at a time, or None."""
    if Capability.STATEFUL not in model.capabilities:
        return (
            f"tbptt.k2={k2}: an example of up to data.max_length={max_length} tokens is read in pieces, which needs "
            f"a state that goes on from piece to piece, and model {type(model).__name__} has none; "
            "leave tbptt.k2 out and use tbptt=whole"
        )
    if model.max_length is not None and max_length > model.max_length:
        return f"data.max_length={max_length}: longer than the {model.max_length} positions of model.max_length"
    return None


def _fitting(config: DictConfig, task: Task) -> list[str]:
    """The shipped models that fit the task and the cut of time, by default or with one option turned round."""
    names = []
    for words in _models():
        other = _with_model(config, words)
        with torch.device("meta"), contextlib.suppress(UserError):
            if incompatibility(make_model(other, 2), task, make(config.tbptt), config.data.max_length) is None:
                names.append(words)
    alone = [words for words in names if " " not in words]
    return alone + [words for words in names if words.split()[0] not in alone]


def check_stopping(config: DictConfig) -> None:
    """UserError for early stopping by what no validation measures: Lightning would tell at the first one, or never."""
    node = config.callbacks.get("early_stopping")
    task = task_class(config)
    measured = [f"validation/{metric.name}" for metric in task.metrics]
    if node is None or node._target_ != "pytorch_lightning.callbacks.EarlyStopping":
        return
    lines = []
    if measured and node.monitor not in measured:
        lines.append(f"monitor={node.monitor}: is not measured{did_you_mean(node.monitor, measured)}")
    metric = task.metric(str(node.monitor).removeprefix("validation/"))
    better = metric and metric.better
    if node.mode not in ("min", "max"):
        lines.append(f"mode={node.mode}: expected min or max")
    elif better not in (None, node.mode):  # it would stop a training because it gets better
        more = "more" if better == "max" else "less"
        lines.append(f"mode={node.mode}: {more} of {node.monitor} is better; use mode={better}")
    if lines:
        raise UserError(*(f"callbacks.early_stopping.{line}" for line in lines))


def check_tokenizer(config: DictConfig, overrides: Sequence[str]) -> None:
    """UserError for a tokenizer that cannot be made, or that a run with `init_from` would not take."""
    make(config.tokenizer)
    typed = [text for text in overrides if check.key_of(text).partition(".")[0] == "tokenizer"]
    if config.init_from is not None and typed:
        raise UserError(
            *(f"{text}: the tokenizer is that of init_from={config.init_from}; leave it out" for text in typed)
        )


def _with_model(config: DictConfig, words: str) -> DictConfig:
    """The configuration with another shipped model, and its option turned round."""
    name, *options = words.split()
    other = cast(DictConfig, OmegaConf.merge(config, {"model": None}))
    other.model = OmegaConf.load(Path(conf.__path__[0], "model", f"{name}.yaml"))
    other.merge_with_dotlist(options)
    return other


def _models() -> Iterator[str]:
    """Every shipped model, as it is and with the option turned round that decides which way it reads."""
    for name in shipped("model"):
        yield from (name, *_other_ways(name))


class Cell(NamedTuple):
    """One pair of model and task, and one cut of time."""

    model: str
    task: str
    tbptt: str
    reason: str | None  # why it is refused


def cells() -> Iterator[Cell]:
    """Every shipped model with every shipped task and cut of time, as their files say."""
    configs = {
        (task, tbptt): check.compose([f"task={task}", f"tbptt={tbptt}"]).config
        for task in shipped("task")
        for tbptt in shipped("tbptt")
    }
    for model in _models():
        for (task, tbptt), config in configs.items():
            yield Cell(model, task, tbptt, _reason(_with_model(config, model)))


def _other_ways(model: str) -> list[str]:
    """The model with the option that turns what it promises about directions round."""
    options = cast(DictConfig, OmegaConf.load(Path(conf.__path__[0], "model", f"{model}.yaml")))
    turned = {"bidirectional": False, "causal": True}
    return [
        f"{model} model.{key}={str(not default).lower()}"
        for key, default in turned.items()
        if options.get(key) is default
    ]


def shipped(group: str) -> list[str]:
    """The options of a group that come with seqtrain."""
    return sorted(path.stem for path in Path(conf.__path__[0], group).glob("*.yaml"))


def shipped_file(group: str, name: str) -> Path:
    """The file of an option of a group."""
    return Path(conf.__path__[0], group, f"{name}.yaml")


def _reason(config: DictConfig) -> str | None:
    """The first thing that `check_pair` has to say."""
    model, task, tbptt = _asked(config)
    reason = incompatibility(model, task, tbptt, config.data.max_length)
    return reason or _unread(config, task) or _needs_whole(config, task, tbptt)
