"""The allowed range of each number in a configuration: one table, checked by one loop before anything is built.

A lower limit is the smallest value that has an effect. An upper limit is the largest value that a machine could use:
a larger one would hang or exhaust memory without a message. Limits that depend on the data or on other options are
checked elsewhere.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from seqtrain.errors import UserError

MAX_STEPS = 10**8 - 1  # a checkpoint's name has 8 digits
MAX_TOKENS = 2**20  # read at a time, in parallel or in sequence
MAX_SEED = 2**32 - 1
MAX_TRIALS = 10**6
MAX_TRIALS_AT_A_TIME = 4096
MAX_PROCESSES = 1024  # per node
MAX_WIDTH = 2**17
MAX_LAYERS = 1024
MAX_VOCABULARY = 2**22
MAX_ROWS = 10**7  # of synthetic data
LEAST_STEP = 1e-12  # smallest learning rate: float32 has 7 digits


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, excluding the ends if `above` and `below` are set."""

    low: float
    high: float
    above: bool = False
    below: bool = False
    whole: bool = False
    others: tuple[float, ...] = ()  # further single numbers with a special meaning

    def holds(self, value: float) -> bool:
        """Return True if a number is in the range. nan never is."""
        if value in self.others:
            return True
        if self.whole and value % 1:
            return False
        if (self.above and value == self.low) or (self.below and value == self.high):
            return False
        return self.low <= value <= self.high

    def words(self) -> str:
        """Return the range for a message: `a whole number from 1 to 1,024`."""
        kind = "a whole number" if self.whole else "a number"
        special = "".join(f", or {number:g}" for number in self.others)
        low, high = _spelled(self.low), _spelled(self.high)
        if not self.above and not self.below:
            return f"{kind} from {low} to {high}{special}"
        lower = "above" if self.above else "from"
        upper = "below" if self.below else "up to"
        return f"{kind} {lower} {low}, {upper} {high}{special}"


def check_number(name: str, value: Any, allowed: Range) -> None:
    """Raise UserError unless an argument is a number in the range. None, for a default, is accepted."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if value is not None and not (is_number and allowed.holds(float(value))):
        raise UserError(f"{name}={value!r}: expected {allowed.words()}")


def check_numbers(name: str, values: Any, allowed: Range, least: int, reason: str) -> tuple[Any, ...]:
    """Return distinct numbers in ascending order.

    Args:
        name: Name of the argument, for messages.
        values: A list or tuple of numbers.
        allowed: Range of each number.
        least: Smallest number of distinct values.
        reason: Why fewer are not enough, for the message.

    Raises:
        UserError: If a number is not in the range, or if there are too few of them.
    """
    given = values if isinstance(values, list | tuple) else (values,)
    for value in given:
        check_number(name, value, allowed)
    if len({*given}) < least:
        typed = ",".join(f"{value:g}" for value in given)
        raise UserError(f"--{name} {typed}: give at least {least} {reason}")
    return tuple(sorted({*given}))


def _count(high: float, low: float = 1, **more: Any) -> Range:
    return Range(low, high, whole=True, **more)


SHARE = Range(0, 1)
PART = Range(0, 1, below=True)  # at 1 nothing would be left
POSITIVE_SHARE = Range(0, 1, above=True)
SOME = Range(1e-6, 1e6)
STEPS = _count(MAX_STEPS)
SEED = _count(MAX_SEED, 0)
TOKENS = _count(MAX_TOKENS)
COLUMN = _count(2**16, -(2**16))
RATE = Range(LEAST_STEP, 1e38)  # a rate that is too large fails visibly in training
AT_A_TIME = _count(MAX_TRIALS_AT_A_TIME)

# By path. For a list, the range of each number. Other values (null, all, auto) are checked by type only.
RANGES: dict[str, Range] = {
    "seed": SEED,
    "layer_decay": Range(1e-3, 1),
    "adapter.rank": _count(MAX_WIDTH),
    "adapter.alpha": SOME,
    # -- trainer
    "trainer.devices": _count(MAX_PROCESSES),
    "trainer.num_nodes": _count(2**16),
    "trainer.check_ranks_every": STEPS,
    "trainer.threads": _count(MAX_PROCESSES),
    "trainer.max_steps": STEPS,
    "trainer.max_epochs": _count(10**6),
    "trainer.max_seconds": Range(1e-3, 1e9),
    "trainer.accumulate": _count(2**16),
    "trainer.grad_clip": SOME,
    "trainer.validate_every": STEPS,
    "trainer.checkpoint_every": STEPS,
    "trainer.keep_last": _count(10**6),
    "trainer.keep_best": _count(10**6),
    "trainer.log_every": STEPS,
    # -- data
    "data.batch_size": TOKENS,
    "data.eval_lanes": TOKENS,
    "data.eval_batch_size": TOKENS,
    "data.batch_tokens": _count(2**24),
    "data.max_length": _count(MAX_TOKENS, 8),  # including special tokens
    "data.workers": _count(128, 0),
    "data.validation_fraction": PART,
    "data.test_fraction": PART,
    "data.folds": _count(1000, 2),
    "data.fold": _count(999, 0),
    "data.fold_seed": SEED,
    "data.mix_block": TOKENS,
    "data.vocab_size": _count(MAX_VOCABULARY),
    "data.end_of_text": _count(MAX_VOCABULARY, 0),
    "data.size": _count(MAX_ROWS),
    "data.seed": SEED,
    "data.length": _count(MAX_ROWS, 10),
    "data.noise": Range(0, 1e6),
    "data.missing_share": Range(0, 0.9, below=True),
    "data.season": _count(10**6),
    "data.rows": _count(10**12, 0),
    "data.terms": _count(20, 3),
    "data.validation_size": _count(MAX_ROWS, 0),
    "data.test_size": _count(MAX_ROWS, 0),
    "data.shortest": TOKENS,
    "data.longest": TOKENS,
    "data.test_shortest": TOKENS,
    "data.test_longest": TOKENS,
    "data.symbols": _count(2**16),
    "data.alphabet": _count(2**16, 2),
    "data.vocab": _count(2**16, 2),
    "data.most": _count(2**10),  # the source checks it against its number of objects
    "data.pairs": _count(2**14, 2),
    "data.power": SHARE,
    # Indices of a file's columns, from 0; negative ones count from the last.
    "data.column": _count(2**16),
    "data.source_column": _count(2**16),
    "data.target_column": _count(2**16),
    "data.token_column": COLUMN,
    "data.label_column": COLUMN,
    "data._recommend_.max_length": _count(MAX_TOKENS, 8),
    "data._recommend_.horizon": TOKENS,
    "data._recommend_.epochs": _count(1000),
    "data._recommend_.dropout": PART,
    "data._recommend_.tokenizer_size": _count(MAX_VOCABULARY, 256),
    # -- tokenizer
    "tokenizer.size": _count(MAX_VOCABULARY, 256),  # at least one token per byte value
    "tokenizer.max_size": _count(MAX_VOCABULARY),
    "tokenizer.min_count": _count(2**31),
    # -- tbptt
    "tbptt.k1": TOKENS,
    "tbptt.k2": TOKENS,
    "tbptt.recompute": TOKENS,
    # -- model: option names that models share
    "model.dim": _count(MAX_WIDTH),
    "model.embed_dim": _count(MAX_WIDTH),
    "model.num_layers": _count(MAX_LAYERS),
    "model.num_heads": _count(MAX_WIDTH),
    "model.dropout": PART,
    "mixer.num_heads": _count(MAX_WIDTH),
    "mixer.num_kv_heads": _count(MAX_WIDTH),
    "mixer.head_dim": _count(MAX_WIDTH),
    "mixer.key_dim": _count(MAX_WIDTH),
    "mixer.value_dim": _count(MAX_WIDTH),
    "mixer.state_dim": _count(MAX_WIDTH),
    "mixer.units": _count(MAX_WIDTH),
    "mixer.expand": _count(64),
    "mixer.betas": _count(2),
    "mixer.householders": _count(64),
    "mixer.conv": Range(2, 2**12, whole=True, others=(0,)),
    "mixer.window": _count(MAX_TOKENS, 0),
    "mixer.rotary_base": Range(1, 1e9, above=True),
    "model.forget_bias": Range(0, 100),  # above, a gate never closes
    "model.dim_feedforward": _count(2**20),
    "model.num_kv_heads": _count(MAX_WIDTH),
    "model.head_dim": _count(MAX_WIDTH),
    "model.norm_eps": Range(1e-30, 1),
    "model.rotary_base": Range(1, 1e9, above=True),
    "model.max_length": TOKENS,
    "model.num_segments": _count(2**16),
    "model.attention_window": _count(MAX_TOKENS, 0),
    "model.window": _count(2**20, 2),  # the state of each lane stores the whole window
    "model.kernel_size": _count(2**12, 2),  # size 1 sees no other token
    # -- task
    "task.norm_eps": Range(1e-30, 1),
    "task.mask_prob": Range(1e-3, 1, below=True),
    "task.mask_share": SHARE,
    "task.random_share": SHARE,
    "task.pseudo_examples": _count(10**6, 0),
    "task.label_smoothing": PART,
    "task.beam": _count(100),
    "task.length_penalty": Range(0, 100),
    "task.max_ratio": Range(0.01, 100),
    "task.dropout": PART,
    "task.temperature": Range(1e-3, 1e3),
    "task.group_size": _count(2**16, 2),  # a single row has no negatives
    "task.horizon": _count(10**5),
    "task.patch": _count(MAX_TOKENS),
    "task.class_weights": Range(0, 1e6),
    # -- optimizer
    "optimizer.lr": RATE,
    "optimizer.lr_rest": RATE,
    "optimizer.momentum": PART,
    "optimizer.dampening": PART,
    "optimizer.alpha": PART,
    "optimizer.rho": PART,
    "optimizer.betas": PART,
    "optimizer.eps": Range(1e-30, 1),
    "optimizer.weight_decay": Range(0, 100),
    # -- schedule
    "schedule.warmup": _count(MAX_STEPS, 0),
    "schedule.final": SHARE,
    "schedule.decay": POSITIVE_SHARE,
    "schedule.factor": Range(1e-6, 1, below=True),
    "schedule.patience": _count(10**6, 0),
    "schedule.cooldown": _count(10**6, 0),
    "schedule.threshold": PART,
    "schedule.min_lr": Range(0, 1e3),
    # -- callbacks
    "callbacks.samples.length": _count(100_000),
    "callbacks.samples.temperature": Range(1e-3, 1e3, others=(0,)),
    "callbacks.samples.top_k": _count(2**31),
    "callbacks.samples.top_p": POSITIVE_SHARE,
    "callbacks.samples.examples": _count(10_000),
    "callbacks.ema.decay": Range(0, 1, below=True),
    "callbacks.early_stopping.patience": _count(10**6, 0),
    "callbacks.early_stopping.min_delta": Range(0, 1e6),
    # -- sweeps
    "hydra.sweeper.n_trials": _count(MAX_TRIALS),
    "hydra.sweeper.seed": SEED,
    "hydra.sweeper.pruner.percentile": Range(0, 100, above=True, below=True),
    "hydra.sweeper.pruner.n_startup_trials": _count(MAX_TRIALS, 0),
    "hydra.sweeper.pruner.n_warmup_steps": _count(MAX_STEPS, 0),
    "hydra.sweeper.pruner.interval_steps": STEPS,
    "hydra.sweeper.pruner.n_min_trials": _count(MAX_TRIALS),
    "hydra.sweeper.pruner.min_resource": STEPS,
    "hydra.sweeper.pruner.reduction_factor": _count(10**6, 2),
    "hydra.sweeper.pruner.min_early_stopping_rate": _count(60, 0),
    "hydra.sweeper.pruner.bootstrap_count": _count(MAX_TRIALS, 0),
    "hydra.sweeper.sampler.n_startup_trials": _count(MAX_TRIALS, 0),
    "hydra.sweeper.sampler.n_ei_candidates": _count(10**5),
    "hydra.sweeper.sampler.population_size": _count(10**5, 2),
    "hydra.sweeper.sampler.mutation_prob": SHARE,
    "hydra.sweeper.sampler.crossover_prob": SHARE,
    "hydra.sweeper.sampler.swapping_prob": SHARE,
    "hydra.launcher.n_jobs": _count(1024, others=(-1,)),  # joblib: one per core
    "hydra.launcher.threads": _count(MAX_PROCESSES),
    "hydra.launcher.inner_max_num_threads": _count(MAX_PROCESSES),
    "hydra.launcher.verbose": _count(100, 0),
    "hydra.launcher.timeout": Range(1e-3, 1e9),
    "hydra.launcher.batch_size": AT_A_TIME,
    "hydra.launcher.timeout_min": _count(10**6),
    "hydra.launcher.nodes": _count(2**16),
    "hydra.launcher.tasks_per_node": _count(MAX_PROCESSES),
    "hydra.launcher.cpus_per_task": _count(MAX_PROCESSES),
    "hydra.launcher.gpus_per_node": _count(MAX_PROCESSES, 0),
    "hydra.launcher.gpus_per_task": _count(MAX_PROCESSES, 0),
    "hydra.launcher.cpus_per_gpu": _count(MAX_PROCESSES),
    "hydra.launcher.mem_gb": Range(0, 1e6, above=True),
    "hydra.launcher.array_parallelism": AT_A_TIME,
    "hydra.launcher.signal_delay_s": _count(10**6),
    "hydra.launcher.max_num_timeout": _count(10**6, 0),
}


KIND_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}

# Ranges of the options of predictions, on the command line and in Python.
ANSWER_RANGES: dict[str, Range] = {
    "length": _count(10**6),
    "temperature": Range(1e-6, 1e6, others=(0,)),
    "top_k": _count(MAX_VOCABULARY),
    "top_p": POSITIVE_SHARE,
    "seed": SEED,
    "num_samples": _count(1000),
    "repetition_penalty": Range(1e-3, 1e3),
    "beam": RANGES["task.beam"],
    "length_penalty": RANGES["task.length_penalty"],
}


def check_answer_options(**given: Any) -> None:
    """Raise UserError that names each prediction option that is not a number in its range."""
    lines = []
    for name, value in given.items():
        allowed = ANSWER_RANGES[name]
        kind = numbers.Integral if allowed.whole else numbers.Real  # NumPy's numbers included
        if isinstance(value, bool) or not isinstance(value, kind) or not allowed.holds(cast(float, value)):
            lines.append(f"{name}={value!r}: expected {allowed.words()}")
    if lines:
        raise UserError(*lines)


def check_own_options(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise UserError that names each task option whose value has another type than its default.

    Args:
        defaults: the default of each option of the task; None accepts any type.
        given: the given values, by option.
    """
    lines = []
    for name, value in given.items():
        default = defaults[name]
        if not _is_alike(value, default):
            lines.append(f"{name}={value!r}: expected {kind_words(default)}, like its default {default!r}")
    if lines:
        raise UserError(*lines)


def kind_words(default: Any) -> str:
    """Return a description of the values that an option with this default accepts."""
    if default is None:
        return "a number, a text, true or false"
    return KIND_WORDS.get(type(default), f"a value of type {type(default).__name__}")


def _is_alike(value: Any, default: Any) -> bool:
    """Return True if a value has a type that may replace this default. NumPy's numbers are accepted as numbers."""
    if isinstance(value, bool) or isinstance(default, bool):  # bool is a subclass of int
        return isinstance(value, bool) and (default is None or isinstance(default, bool))
    if isinstance(value, numbers.Real) and not math.isfinite(float(value)):
        return False
    if default is None:
        return isinstance(value, str | numbers.Real)
    for kind in (numbers.Integral, numbers.Real):  # Integral first: an int is a valid float, but not the reverse
        if isinstance(default, kind):
            return isinstance(value, kind)
    return isinstance(value, type(default))


def out_of_range(path: str, value: Any) -> str | None:
    """Return what was expected if a value of the right type is out of its range, else None."""
    if path.startswith("model.options."):
        path = f"mixer.{path.rpartition('.')[2]}"
    allowed = RANGES.get(path)
    if allowed is None:
        return None
    if isinstance(value, list):
        if all(map(allowed.holds, filter(is_number, value))):
            return None
        return f"expected a list, each item {allowed.words()}"
    if not is_number(value) or allowed.holds(value):
        return None
    return f"expected {allowed.words()}"


def is_number(value: Any) -> bool:
    """Return True if a value is a number; true and false are not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _spelled(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"
