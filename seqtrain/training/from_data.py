"""Options that are `auto`, which follow from the training data: resolved once, said in a line each, kept in the config.

They follow from sizes alone (rows, words, steps of an epoch), never from which data it is.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from seqtrain.data.tokenizers.encoding import words
from seqtrain.data.tokenizers.recipes import least_count
from seqtrain.training.model_and_task import task_class

if TYPE_CHECKING:
    from seqtrain.data.sources.base import Source
    from seqtrain.training.splits import Data

AUTO = "auto"
EPOCHS = 5  # dropout as tasks of labels have it, and a rate that falls to 0: more passes are no better
MIN_STEPS = 400  # of a few hundred rows, five passes are too few steps to learn anything
MAX_STEPS = 20_000  # an hour or two; whoever has more data may ask for more
VALIDATIONS = 10  # in a training


KEYS = ("tokenizer.min_count", "trainer.max_steps", "trainer.validate_every")


def open_keys(config: DictConfig) -> list[str]:
    """The options that are yet to follow from the data."""
    return [key for key in KEYS if OmegaConf.select(config, key) == AUTO]


def resolve_tokenizer(config: DictConfig, source: Source) -> list[str]:
    """Sets `tokenizer.min_count` where it is auto; gives the line that says so. Before the tokenizer is made."""
    # With `init_from` no tokenizer is made, whatever the config says of it.
    if config.tokenizer.get("min_count") != AUTO or config.init_from is not None:
        return []
    counts: Counter[str] = Counter()  # as the tokenizer will count them
    # Labels are no words of the model, and would be counted as frequent ones.
    fields = [field for field in task_class(config).fields if field != "label"]
    for row in source.rows("train"):
        counts.update(itertools.chain.from_iterable(words(row[field]) for field in fields))
    count = config.tokenizer.min_count = least_count(counts)
    single = sum(number == 1 for number in counts.values())
    share = single / max(sum(counts.values()), 1)
    if count > 1:
        reason = f"{share:.1%} of train's words occur once, and stand for <unk>, which is so trained"
    elif single:
        reason = f"{share:.1%} of train's words occur once, too many to read them as <unk>, which is not trained"
    else:
        reason = "no word of train occurs only once; <unk> is not trained"
    return [f"tokenizer.min_count {count}: {reason}"]


def resolve_length(config: DictConfig, data: Data) -> list[str]:
    """Sets `trainer.max_steps` and `trainer.validate_every` where they are auto; gives a line for each.

    After the data is laid out, which says how many steps an epoch has, and after a budget, which may decide them.
    """
    from seqtrain.training.session import max_steps
    from seqtrain.training.trainer import trainer_options

    trainer, plan, lines = config.trainer, data.plan("train"), []
    if trainer.max_steps == AUTO:
        # Whoever set a bound of another kind means it: a second one would end training before it.
        if trainer.max_epochs is not None or trainer.max_seconds is not None:
            trainer.max_steps = None
        else:
            trainer.max_steps = steps_for(plan.steps)
            lines.append(
                f"trainer.max_steps {trainer.max_steps:,}: {trainer.max_steps / plan.steps:.1f} epochs of "
                f"{plan.steps:,} steps"
            )
    if trainer.validate_every == AUTO:
        trainer.validate_every = max(plan.steps, MIN_STEPS // VALIDATIONS)  # where the clock decides: each epoch
        steps = max_steps(trainer_options(config), plan)
        if steps is not None:
            trainer.validate_every = math.ceil(steps / VALIDATIONS)
        lines.append(f"trainer.validate_every {trainer.validate_every:,}: the best of the validations is kept")
    return lines


def steps_for(steps_per_epoch: int) -> int:
    """Optimiser steps of a training on so much data."""
    return min(max(EPOCHS * steps_per_epoch, MIN_STEPS), MAX_STEPS)
