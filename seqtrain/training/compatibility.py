"""Check which combinations of data, model, task and truncation of time work, and explain why others do not."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch
from omegaconf import DictConfig, OmegaConf

from seqtrain.config import check
from seqtrain.config.instantiate import make
from seqtrain.config.options import DEFAULT_LANES, origin_words, read_budget
from seqtrain.config.targets import resolve
from seqtrain.data.batching.plan import TBPTT
from seqtrain.data.sources.base import Source
from seqtrain.data.sources.tokens import TokenSource
from seqtrain.errors import UserError, did_you_mean, first_few
from seqtrain.models.base import Capability, SequenceModel, name_of
from seqtrain.tasks.base import Task
from seqtrain.tasks.least_squares import BeginsFitted, linear_order_of
from seqtrain.training.adapters import check_adapter
from seqtrain.training.compiled import check_compiled, recompute_blocks
from seqtrain.training.cost import check_model, state_size
from seqtrain.training.data import make_source
from seqtrain.training.model_and_task import (
    ReadsEither,
    fields_of,
    holds_values,
    make_model,
    make_task,
    on_meta,
    reads_values,
    task_class,
    writes_text,
)
from seqtrain.training.shipped import (
    Cell,
    compose_data,
    models,
    shipped,
    shipped_file,
    shipped_tasks,
    tasks,
    with_model,
)
from seqtrain.training.transfer import freeze


@runtime_checkable
class HasAnswers(Protocol):
    """A source whose answers are columns of its file."""

    def answers(self, field: str) -> Sequence[str]:
        """Return the answer of each sequence; raise UserError if there is no such column."""
        ...


WANTED = {
    Capability.CAUSAL: "causal hidden states",
    Capability.BIDIRECTIONAL: "bidirectional hidden states",
    Capability.STATEFUL: "a state that is carried from chunk to chunk",
    Capability.CONDITIONAL: "conditioning on a source",
    Capability.UNCONDITIONAL: "a start without a source",
    Capability.SEPARABLE: "two directions that can be read separately",
}


EARLY_STOPPING = "pytorch_lightning.callbacks.EarlyStopping"
NO_TEXT = "seqtrain.data.tokenizers.recipes.NoText"
OF_STORE = "seqtrain.data.tokenizers.recipes.OfStore"
LABELS = {
    "name": "one name",
    "names": "a name for each word",
    "number": "a number",
    "numbers": "a number for each word",
}  # text by kind
ANY_SIZE = 2  # tokens: size of a vocabulary that is enough for these checks
MORE_OR_LESS = {"max": "more", "min": "less"}  # which direction is better, as text


@runtime_checkable
class Remedies(Protocol):
    """A task with options that reduce what it requires of a model."""

    def remedy(self, model: SequenceModel) -> str | None:
        """Return task options that work with a model without the required capabilities, or None."""
        ...


def check_pair(config: DictConfig) -> None:
    """Raise UserError unless data, model, task and truncation of time fit, with one line per fault.

    Model and task are created on the meta device, so nothing is computed and no memory is used. The run creates its own
    once the data has determined vocabularies and labels.
    """
    size = config.tokenizer.get("size")
    # The data decides how many tokens a tokenizer without that option has.
    model, task, tbptt = _on_meta(config, size if isinstance(size, int) else ANY_SIZE)
    reason = incompatibility(model, task, tbptt, config.data.max_length)
    if reason is not None:
        fitting = _fitting_models(config, task, tbptt)
        # None: the model is not the cause, and the reason already says what to change.
        if fitting:
            reason = f"{reason}; models that do, as shipped: {_listed(fitting)}"
    reasons = [
        reason,
        _unreadable(config, task),
        _wrong_tokenizer(config, task),
        _needs_whole(config, task, tbptt),
        _uneven_lanes(config, task),
        _unsized_state(config, model),
    ]
    lines = list(filter(None, reasons))
    if lines:
        raise UserError(*lines)
    freeze(model, config.freeze)
    if not any(weight.requires_grad for weight in (*model.parameters(), *task.parameters())):
        raise UserError(
            f"freeze=[{first_few(config.freeze)}]: leaves nothing to train; freeze less, or give the head weights of "
            "its own"
        )
    if config.get("adapter") is not None:
        check_adapter(model, config)
    if config.trainer.compile == "blocks":
        check_compiled(model)
    if config.trainer.recompute == "blocks":
        recompute_blocks(model)
    check_model(config, model)


def _on_meta(config: DictConfig, vocab_size: int) -> tuple[SequenceModel, Task, TBPTT]:
    """Return model, task and truncation of time, created on the meta device to check their compatibility."""
    with on_meta():
        model = make_model(config, vocab_size)
        task = make_task(config, model, vocab_size)
    return model, task, make(config.tbptt)


def _unsized_state(config: DictConfig, model: SequenceModel) -> str | None:
    """Return why no width gives the model a state of the size required by a budget, or None."""
    if "state" not in read_budget(config.budget) or state_size(model) is not None:
        return None
    return (
        f"budget=state: model={name_of(model)} carries no state of a fixed size from chunk to chunk; use another "
        "model, or budget=params:NUMBER"
    )


def _listed(names: Sequence[str]) -> str:
    return first_few(names) or "none"


def _unreadable(config: DictConfig, task: Task) -> str | None:
    """Return why the task cannot read the data, with the data that it can read, or None."""
    source = make_source(config)
    fields = fields_of(task, source)
    if _reads(task, source):
        if isinstance(source, HasAnswers):
            source.answers(fields[-1])  # raises UserError if there is no such column
        return None
    if set(fields).issubset(source.fields) and source.label_kind is not None:
        others = [resolve(OmegaConf.load(shipped_file("task", name))._target_) for name in shipped_tasks()]
        fitting = [other.name() for other in others if "label" in other.fields and _reads(other, source)]
        return (
            f"task={task.name()}: reads {LABELS[task.label_kind]} as label, and {_data_words(config)} has "
            f"{LABELS[source.label_kind]}; tasks that read this data: {_listed(fitting)}; data for this task, as "
            f"shipped: {_listed(_readable_data(task))}"
        )
    return (
        f"task={task.name()}: needs rows with {' and '.join(fields)}, and {_data_words(config)} has "
        f"{' and '.join(source.fields)}; data that does, as shipped: {_listed(_readable_data(task))}"
    )


def _reads(task: Task | type[Task], source: Source) -> bool:
    """Return True if rows of the source have the fields that a task reads, and labels of its kind."""
    if "label" in task.fields and source.label_kind not in (None, task.label_kind):
        return False
    return set(fields_of(task, source)).issubset(source.fields)


def _data_words(config: DictConfig) -> str:
    """Return the name of the data: as in `data=...`, or its class if it is not a shipped source."""
    for name in shipped("data"):
        if OmegaConf.select(OmegaConf.load(shipped_file("data", name)), "_target_") == config.data._target_:
            return f"data={name}"
    return f"data {config.data._target_.rpartition('.')[2]}"


def _wrong_tokenizer(config: DictConfig, task: Task) -> str | None:
    """Return why the tokenizer does not fit what the task reads, or None."""
    # Read from the class, because creating the tokenizer may raise another fault, which is reported elsewhere.
    has_text = not reads_values(config) or writes_text(config)
    if getattr(resolve(config.tokenizer._target_), "reads_text", True) == has_text:
        return None
    if has_text:
        verb = "writes" if reads_values(config) else "reads"
        return f"tokenizer=none: task={task.name()} {verb} text; use tokenizer=bpe, word, char or byte"
    return f"tokenizer: task={task.name()} reads values, which have no tokens; use tokenizer=none"


def _readable_data(task: Task) -> list[str]:
    """Return the shipped data sets whose rows have the fields that the task reads."""
    names = []
    for name in shipped("data"):
        composed = compose_data(name)
        if "_target_" not in composed.data:  # batching.yaml, which the other files include
            continue
        with contextlib.suppress(UserError):  # the placeholders for its options may be invalid
            if _reads(task, make_source(composed)):
                names.append(name)
    return names


def _needs_whole(config: DictConfig, task: Task, tbptt: TBPTT) -> str | None:
    """Return why a task that reads examples cannot use this truncation of time, or None."""
    if task.streams:
        return None
    name = task.name()
    if tbptt.carry:
        return (
            f"tbptt.carry=true: task={name} reads each example independently, without an earlier state; use tbptt=whole"
        )
    if tbptt.reset != "never":
        return f"tbptt.reset={tbptt.reset}: task={name} reads each example independently; use tbptt=whole"
    if tbptt.recompute is not None:
        return (
            f"tbptt.recompute={tbptt.recompute}: task={name} reads each example independently, and only a stream is "
            "read in pieces; leave it out"
        )
    if tbptt.k1 != tbptt.k2:
        return f"tbptt.k1={tbptt.k1}: task={name} has one update for each batch of examples; leave tbptt.k1 out"
    if task.needs_whole is not None and tbptt.k2 < config.data.max_length:
        return (
            f"tbptt.k2={tbptt.k2}: task={name} cannot cut examples of up to data.max_length={config.data.max_length} "
            f"tokens, because {task.needs_whole}; leave tbptt.k2 out and use tbptt=whole"
        )
    return None


def _uneven_lanes(config: DictConfig, task: Task) -> str | None:
    """Return why the lanes of a stream cannot be distributed evenly, or None. Examples can always be distributed."""
    trainer, lanes = config.trainer, config.data.batch_size or DEFAULT_LANES
    devices = trainer.devices
    if devices == "all":  # not resolved until after these checks
        devices = torch.cuda.device_count()
    world = max(devices, 1) * trainer.num_nodes
    # Each lane carries a state, so every step reads all lanes, and every micro-batch the same number.
    if not task.streams or lanes % (trainer.accumulate * world) == 0:
        return None
    if world == 1:
        return (
            f"trainer.accumulate={trainer.accumulate}: data.batch_size={lanes} lanes cannot be split into "
            f"{trainer.accumulate} equal micro-batches; choose one that divides the other"
        )
    return (
        f"trainer.devices={trainer.devices}: data.batch_size={lanes} lanes cannot be distributed evenly over "
        f"{world} processes with trainer.accumulate={trainer.accumulate} micro-batches each; choose a multiple of "
        f"{world * trainer.accumulate}"
    )


def incompatibility(model: SequenceModel, task: Task, tbptt: TBPTT, max_length: int) -> str | None:
    """Return why model, task and truncation of time do not fit, or None.

    Args:
        model: Model, possibly on the meta device.
        task: Task, possibly on the meta device.
        tbptt: Truncation of time.
        max_length: Largest number of tokens of an example.
    """
    missing_flags = task.requires & ~model.capabilities
    missing = [words for flag, words in WANTED.items() if flag in missing_flags]
    if missing:
        reason = f"task={task.name()}: needs {' and '.join(missing)}, which model={name_of(model)} does not promise"
        remedy = task.remedy(model) if isinstance(task, Remedies) else None
        return reason if remedy is None else f"{reason}; use {remedy}"
    if linear_order_of(model) is not None and not isinstance(task, BeginsFitted):
        return f"model.fit=least_squares: task={task.name()} has no values to fit; use model.fit=trained"
    reason = task.incompatibility(model)
    if reason:
        return reason
    if tbptt.carry:
        return _cannot_carry(model)
    in_segments = not task.streams and task.needs_whole is None and tbptt.k2 < max_length
    if in_segments:
        return _cannot_read_segments(model, tbptt.k2, max_length)
    return _cannot_read_windows(model, task, tbptt, max_length)


def _cannot_read_windows(model: SequenceModel, task: Task, tbptt: TBPTT, max_length: int) -> str | None:
    """Return why a model cannot read windows or examples that each start from the initial state, or None."""
    if model.max_length is not None and tbptt.k2 > model.max_length:
        option = f"tbptt.k2={tbptt.k2}" if task.streams else f"data.max_length={max_length}"
        return _beyond_positions(option, model.max_length)
    in_parts = f"tbptt.k1={tbptt.k1}" if tbptt.k1 < tbptt.k2 else f"tbptt.recompute={tbptt.recompute}"
    if (tbptt.k1 < tbptt.k2 or tbptt.recompute is not None) and Capability.STATEFUL not in model.capabilities:
        return f"{in_parts}: a window is read in parts, from state to state, and model={name_of(model)} has no state"
    return None


def _cannot_carry(model: SequenceModel) -> str | None:
    """Return why a model cannot carry its state from chunk to chunk of a stream, or None."""
    if Capability.STATEFUL not in model.capabilities:
        return (
            f"tbptt.carry=true: needs a state that is carried from chunk to chunk, which model={name_of(model)} "
            "does not have"
        )
    if model.max_length is not None:
        return (
            f"tbptt.carry=true: a stream has no end, but model.positions=learned ends at {model.max_length}; "
            "use tbptt=windows, or, unless init_from brings the table, model.positions=rotary"
        )
    return None


def _cannot_read_segments(model: SequenceModel, k2: int, max_length: int) -> str | None:
    """Return why a model cannot read the examples `k2` tokens at a time, or None."""
    if Capability.STATEFUL not in model.capabilities:
        return (
            f"tbptt.k2={k2}: an example of up to data.max_length={max_length} tokens is read in pieces, which needs "
            f"a state that is carried from piece to piece, and model={name_of(model)} has none; "
            "leave tbptt.k2 out and use tbptt=whole"
        )
    if model.max_length is not None and max_length > model.max_length:
        return _beyond_positions(f"data.max_length={max_length}", model.max_length)
    return None


def _beyond_positions(option: str, most: int) -> str:
    """Return the message for an option that makes a model read more tokens than its table has positions."""
    return f"{option}: longer than the {most} positions of model.max_length; use at most {most}"


def _fitting_models(config: DictConfig, task: Task, tbptt: TBPTT) -> list[str]:
    """Return the shipped models that fit task and truncation; one with a changed option only if it must be changed."""
    by_default, changed = [], []
    for words in models():
        name, *options = words.split()
        # A model that this config cannot create, for example because its heads do not divide the width, does not fit.
        with on_meta(), contextlib.suppress(UserError):
            model = make_model(with_model(config, words), ANY_SIZE)
            if incompatibility(model, task, tbptt, config.data.max_length) is not None:
                continue
            if not options:
                by_default.append(words)
            elif name not in by_default:
                changed.append(words)
    return by_default + changed


def check_stopping(config: DictConfig) -> None:
    """Raise UserError if early stopping monitors an unmeasured metric: Lightning reports it late or never."""
    node = config.callbacks.get("early_stopping")
    if node is None or node._target_ != EARLY_STOPPING:
        return
    task = task_class(config)
    measured = [f"validation/{metric.name}" for metric in task.metrics]
    lines = []
    # A user's own task may not list its metrics; then no fault is known.
    if measured and node.monitor not in measured:
        lines.append(f"monitor={node.monitor}: is not measured{did_you_mean(node.monitor, measured)}")
    metric = task.metric(str(node.monitor).removeprefix("validation/"))
    if node.mode not in ("min", "max"):
        lines.append(f"mode={node.mode}: expected min or max")
    elif metric is not None and metric.better != node.mode:  # otherwise it would stop a training that improves
        more = MORE_OR_LESS[metric.better]
        lines.append(f"mode={node.mode}: {more} of {node.monitor} is better; use mode={metric.better}")
    if lines:
        raise UserError(*(f"callbacks.early_stopping.{line}" for line in lines))


def leave_out_tokenizer(config: DictConfig, overrides: Sequence[str]) -> None:
    """Set `tokenizer=none` in the config if a task of texts reads series of values and no tokenizer was given."""
    if not isinstance(task_class(config), ReadsEither) or not holds_values(config) or writes_text(config):
        return
    if not any(check.group_of(text) == "tokenizer" for text in overrides):
        # Set in the config, because the tokenizer that a task recommends is for text.
        config.tokenizer = {"_target_": NO_TEXT}


def check_average(config: DictConfig) -> None:
    """Raise UserError for an average of weights that are sharded over processes."""
    if config.callbacks.get("ema") is not None and config.trainer.strategy == "fsdp":
        raise UserError("callbacks.ema: averages whole weights, and trainer.strategy=fsdp shards them; use ddp")


def settle_tokenizer(config: DictConfig, overrides: Sequence[str]) -> None:
    """Set the tokenizer of a token store in the config.

    Raises:
        UserError: The tokenizer cannot be made, or one was given although `init_from` or the token store provides it.
    """
    make(config.tokenizer)
    if isinstance(make_source(config), TokenSource):
        # Set in the config, because the tokenizer that a task recommends for text would be wrong.
        config.tokenizer = {"_target_": OF_STORE}
        remedy = "the token store provides the tokenizer; leave it out"
    elif config.init_from is not None:
        remedy = f"init_from={origin_words(config.init_from)} provides the tokenizer; leave it out"
    else:
        return
    lines = [f"{text}: {remedy}" for text in overrides if check.group_of(text) == "tokenizer"]
    if lines:
        raise UserError(*lines)


def cells() -> Iterator[Cell]:
    """Yield every shipped model with every shipped task and truncation, as in their files or with an option changed."""
    configs = {}  # each composed once, not once per model
    for task, tbptt in itertools.product(tasks(), shipped("tbptt")):
        configs[task, tbptt] = check.compose([*f"task={task}".split(), f"tbptt={tbptt}"]).config
    for model in models():
        for (task, tbptt), config in configs.items():
            yield Cell(model, task, tbptt, _reason(with_model(config, model)))


def _reason(config: DictConfig) -> str | None:
    """Return the first incompatibility, or None."""
    model, task, tbptt = _on_meta(config, ANY_SIZE)
    reason = incompatibility(model, task, tbptt, config.data.max_length)
    return reason or _unreadable(config, task) or _needs_whole(config, task, tbptt)
