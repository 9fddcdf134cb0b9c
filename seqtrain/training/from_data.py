"""Options with the value `auto`, set once from the training data, with a log line for each, and stored in the config.

They depend only on sizes (rows, words, steps of an epoch), never on the name of the data.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from omegaconf import DictConfig, OmegaConf

from seqtrain.data.sources.series import rows_of
from seqtrain.data.tokenizers.encoding import words
from seqtrain.data.tokenizers.recipes import least_count
from seqtrain.training.model_and_task import fields_of, task_class

if TYPE_CHECKING:
    from collections.abc import Mapping

    from seqtrain.data.preprocess import Rows
    from seqtrain.data.sources.base import Source, Split
    from seqtrain.training.splits import Data

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
    from seqtrain.training.session import max_steps
    from seqtrain.training.trainer import trainer_options

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
