"""Data of a run: source read, tokenised and laid out; options with the value `auto` are set from it.

These options depend only on sizes (rows, words, steps of an epoch), never on the name of the data. Each is set once,
reported in a line, and stored in the config.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol, get_args, runtime_checkable

import numpy as np
from omegaconf import DictConfig, OmegaConf

from seqtrain.config.instantiate import make, source_of
from seqtrain.config.options import Batching, origin_words
from seqtrain.config.preflight import ExpectsNumbers
from seqtrain.data.preprocess import Preprocessor, Rows, prepare_rows
from seqtrain.data.sources.base import LabelKind, Source, Split
from seqtrain.data.sources.series import rows_of
from seqtrain.data.tokenizers.encoding import words
from seqtrain.data.tokenizers.recipes import least_count
from seqtrain.errors import UserError
from seqtrain.tasks.base import Say, Task
from seqtrain.training.model_and_task import fields_of, make_pair, on_meta, reads_values, task_class, writes_text
from seqtrain.training.origins import shared_preprocessor
from seqtrain.training.session import max_steps
from seqtrain.training.splits import Data, ExampleData, SeriesData, StreamData
from seqtrain.training.trainer import trainer_options

AUTO = "auto"
EPOCHS = 5  # with dropout and a decaying learning rate, more epochs do not help; a task may set others
MIN_STEPS = 400  # five passes over a few hundred rows are too few steps to learn anything
MAX_STEPS = 20_000  # an hour or two; set trainer.max_steps for more
VALIDATIONS = 10  # per training
EXAMPLES = 16  # of mean length per step: with fewer the gradient is too noisy
MIN_TOKENS = 1024  # per step: short examples cost little


KEYS = ("tokenizer.min_count", "data.batch_tokens", "trainer.max_steps", "trainer.validate_every")


def open_keys(config: DictConfig) -> list[str]:
    """Return the options that are still `auto`."""
    return [key for key in (*KEYS, "optimizer.lr") if OmegaConf.select(config, key) == AUTO]


def dropout_note(config: DictConfig) -> list[str]:
    """Return the line with the dropout that the data recommends, if model and task use it."""
    dropout = (config.data.get("_recommend_") or {}).get("dropout")
    if dropout is None or not config.model.get("dropout") == config.task.get("dropout") == dropout:
        return []
    reason = "recommended for this data" if dropout else "synthetic data has no noise to memorise"
    return [f"model.dropout {dropout:g}, task.dropout {dropout:g}: {reason}"]


def resolve_tokenizer(config: DictConfig, source: Source) -> list[str]:
    """Set `tokenizer.min_count` if it is auto, before the tokenizer is made; return the line that reports it."""
    # With `init_from` no tokenizer is created, and its options are ignored.
    if config.tokenizer.get("min_count") != AUTO or config.init_from is not None:
        return []
    counts: Counter[str] = Counter()  # as the tokenizer will count them
    # Labels are not words that the model reads, and would count as frequent words.
    fields = [field for field in fields_of(task_class(config), source) if field not in ("values", "label")]
    for row in rows_of(source, "train"):
        counts.update(itertools.chain.from_iterable(words(row[field]) for field in fields))
    count = config.tokenizer.min_count = least_count(counts)
    single = sum(number == 1 for number in counts.values())
    share = single / max(sum(counts.values()), 1)
    if count > 1:
        reason = f"{share:.1%} of train's words occur once; they become <unk>, which is thus trained"
    elif single:
        reason = f"{share:.1%} of train's words occur once, too many to become <unk>, which is not trained"
    else:
        reason = "no word of train occurs only once; <unk> is not trained"
    return [f"tokenizer.min_count {count}: {reason}"]


def resolve_batch(config: DictConfig, rows: Mapping[Split, Rows]) -> list[str]:
    """Set `data.batch_tokens` if it is auto, before the data is laid out; return the line that reports it."""
    if config.data.batch_tokens != AUTO:
        return []
    train = rows["train"]
    each = [corpus.lengths for corpus in train.columns.values()]
    if train.series is not None:
        each += [(train.series.end - train.series.begin)[train.series.end > train.series.begin]]
    lengths = sum(np.minimum(lengths, config.data.max_length) for lengths in each)
    mean = math.ceil(np.mean(lengths))
    config.data.batch_tokens = max(EXAMPLES * mean, MIN_TOKENS)
    return [f"data.batch_tokens {config.data.batch_tokens:,}: the examples of train have {mean:,} tokens on average"]


def resolve_length(config: DictConfig, data: Data) -> list[str]:
    """Set `trainer.max_steps` and `trainer.validate_every` if they are auto; return a line for each.

    Call it after the data is laid out, which sets the steps of an epoch, and after a budget, which may set these
    options.
    """
    trainer, plan, lines = config.trainer, data.plan("train"), []
    if trainer.max_steps == AUTO:
        # The user has set another limit: a second one would end training before it.
        if trainer.max_epochs is not None or trainer.max_seconds is not None:
            trainer.max_steps = None
        else:
            advice = {**(config.task.get("_recommend_") or {}), **(config.data.get("_recommend_") or {})}
            trainer.max_steps = steps_for(
                plan.steps, advice.get("epochs", EPOCHS), least=advice.get("min_steps", MIN_STEPS)
            )
            lines.append(
                f"trainer.max_steps {trainer.max_steps:,}: {trainer.max_steps / plan.steps:.1f} epochs of "
                f"{plan.steps:,} steps"
            )
    if trainer.validate_every == AUTO:
        trainer.validate_every = max(plan.steps, MIN_STEPS // VALIDATIONS)  # with a time limit: once per epoch
        steps = max_steps(trainer_options(config), plan)
        if steps is not None:
            trainer.validate_every = math.ceil(steps / VALIDATIONS)
        lines.append(f"trainer.validate_every {trainer.validate_every:,}: the best validation is kept")
    return lines


def steps_for(steps_per_epoch: int, epochs: int = EPOCHS, *, least: int = MIN_STEPS) -> int:
    """Return the optimiser steps of a training whose epochs have `steps_per_epoch` steps."""
    return min(max(epochs * steps_per_epoch, least), MAX_STEPS)


MAX_UNKNOWN = 0.5  # maximum fraction of tokens unknown to a tokenizer from elsewhere


@runtime_checkable
class Arranges(Protocol):
    """A task that reads a split in another order than it is given."""

    def arrange(self, rows: Rows) -> Rows:
        """Return the rows of a split in reading order."""
        ...


@runtime_checkable
class HasNotes(Protocol):
    """A source that can report what it detected while reading."""

    def notes(self) -> list[str]:
        """Return what was detected in the data rather than set by an option, one line each; called after reading."""
        ...


def make_data(
    config: DictConfig,
    splits: Sequence[Split],
    say: Say,
    preprocessor: Preprocessor | None = None,
) -> Data:
    """Read the splits, tokenise them or load them from the cache, and lay them out.

    Args:
        config: Config that names source, tokenizer, task and layout.
        splits: Splits to read.
        say: Called with a line for each thing that was cut or comes from an earlier run.
        preprocessor: Preprocessor of the run, if it has one; else it is created from train.

    Returns:
        The data, with the run's only `tbptt`: plans, evaluation and cost all read it from there.
    """
    source, task_type = make_source(config), task_class(config)
    for line in resolve_tokenizer(config, source):
        say(line)
    if preprocessor is None:  # not when a run is loaded
        for line in dropout_note(config):
            say(line)
    origin = None
    key, taken = "init_from", config.init_from
    if taken is None:
        key, taken = "tokenizer.path", config.tokenizer.get("path")
    if preprocessor is None and taken is not None:
        try:
            origin = shared_preprocessor(taken)
        except UserError as fault:
            raise type(fault)(*(line if line.startswith(key) else f"{key}: {line}" for line in fault.lines)) from None
        is_of_values = reads_values(config)
        _check_origin(f"{key}={origin_words(taken)}", origin, task_type, is_of_values)
        if is_of_values and (origin.shared or not writes_text(config)):
            origin = None  # the scaling comes from the new train, and there is no text
        else:
            say(f"tokenizer: from {origin_words(taken)}")
    preprocessor, rows = prepare_rows(
        source,
        make(config.tokenizer),
        splits,
        fields_of(task_type, source),
        label_kind=task_type.label_kind,
        shared=config.task.get("shared_vocab", True),
        preprocessor=preprocessor,
        origin=origin,
        say=say,
    )
    for line in source.notes() if isinstance(source, HasNotes) else ():
        say(line)
    for line in resolve_batch(config, rows):
        say(line)
    _say_unknown(rows, say, None if origin is None else f"{key}={origin_words(taken)}")
    _say_empty(rows, say)
    # Not the task that trains: that one needs the label counts of the data laid out here.
    with on_meta():
        _, task = make_pair(config, preprocessor)
    if isinstance(task, Arranges):
        for split in rows:
            rows[split] = task.arrange(rows[split])
    layout: type[Data] = ExampleData
    if task.streams:
        layout = StreamData if preprocessor.series is None else SeriesData
    batching = Batching(**{key: config.data[key] for key in Batching.__annotations__})
    return layout(source, preprocessor, rows, batching, make(config.tbptt), config.seed, task, say)


def make_source(config: DictConfig) -> Source:
    """Return the source of `config.data`, without its options for lanes; the config may name a task."""
    source: Source = source_of(config.data)
    if "task" in config:
        task_type = task_class(config)
        # Any other value would be read as names: numbers would become indices into a list.
        if task_type.label_kind not in get_args(LabelKind):
            kinds = ", ".join(get_args(LabelKind))
            raise UserError(f"task={task_type.name()}: label_kind={task_type.label_kind!r}: expected one of {kinds}")
        if task_type.label_kind == "number" and isinstance(source, ExpectsNumbers):
            source.expect_numbers()
    return source


def _say_empty(rows: dict[Split, Rows], say: Say) -> None:
    """Log how many pairs have a side without a token. They are read like any other pair."""
    for split, split_rows in rows.items():
        for name, corpus in split_rows.columns.items():
            count = int((corpus.lengths == 0).sum())
            if count and len(split_rows.columns) > 1:
                total = len(corpus.lengths)
                say(f"{split}: {name} is empty in {count:,} of {total:,} pairs; they are kept")


def _say_unknown(rows: dict[Split, Rows], say: Say, given: str | None) -> None:
    """Log the share of <unk> tokens. `given` is the option that names the tokenizer's run, or None.

    Raises:
        UserError: Most of this text is unknown to that tokenizer.
    """
    unknown: dict[Split, int] = {}
    total: dict[Split, int] = {}
    for split, split_rows in rows.items():
        columns = split_rows.columns.values()
        unknown[split] = sum(corpus.num_unknown for corpus in columns)
        total[split] = sum(len(corpus.tokens) for corpus in columns)
    if given is not None:
        share = sum(unknown.values()) / sum(total.values())
        # Most tokens would be the same one, which is easy to predict, with a meaningless loss.
        if share > MAX_UNKNOWN:
            raise UserError(
                f"{given}: its tokenizer does not know {share:.0%} of this text; "
                "use a run on similar text, or one with tokenizer=bpe"
            )
        if share:
            say(f"{share:.1%} of the tokens are <unk> for the tokenizer of {given}")
        return
    # A tokenizer made from train knows all of train; in the other splits some tokens may be unknown.
    never = ", a token that never occurs in train; tokenizer.min_count=2 trains it" if unknown.get("train") == 0 else ""
    for split in rows:
        if split != "train" and unknown[split]:
            say(f"{split}: {unknown[split] / total[split]:.1%} of the tokens are <unk>{never}")


def _check_origin(words: str, origin: Preprocessor, task_type: type[Task], is_of_values: bool) -> None:
    """Raise UserError if one of the two runs reads series of values and the other text."""
    if (origin.series is not None) != is_of_values:
        theirs, ours = ("values", "text") if origin.series is not None else ("text", "values")
        raise UserError(
            f"{words}: that run reads {theirs}, but task={task_type.name()} reads {ours}; use a run that reads the same"
        )
