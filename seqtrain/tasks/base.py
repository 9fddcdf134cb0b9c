"""The interface of a task: the head, the named loss terms as sums and counts, and the descriptions of its results.

Commands, reports, comparisons, curves and loggers loop over what a task says here; none of them asks which it is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.data.values.fan import Fan
from seqtrain.errors import UserError
from seqtrain.models.base import Capability, SequenceModel, State

if TYPE_CHECKING:
    from seqtrain.data.batching.examples import ExampleBatch, Examples
    from seqtrain.data.batching.values import SeriesStream
    from seqtrain.data.preprocess import LabelKind, Preprocessor, Rows
    from seqtrain.tasks.predictors import Loaded, Predictor

LossTerms = dict[str, tuple[Tensor, int]]
"""Named parts of a batch: each a sum over targets and the count of those targets; a table of sums is a part too."""

Reduced = dict[str, tuple[Any, float]]
"""Sums and counts of all parts of a split: numbers, and tables as nested lists."""

Say = Callable[[str], None]
"""Tells a person one line about what was done or left out, such as a print."""


def perplexity(loss: float) -> float:
    """Return exp of a mean loss in nats; a loss above 700 is clamped to 700, because exp would overflow."""
    return math.exp(min(loss, 700.0))


@dataclass(frozen=True)
class Facts:
    """The numbers that turn a loss per token into one per byte or word: means over the split that was read."""

    bytes_per_token: float
    words_per_token: float | None  # None where words are not the tokeniser's units


@dataclass(frozen=True)
class Metric:
    """One number that a task measures of a split."""

    name: str
    better: Literal["min", "max"]
    unit: str  # what stands behind a number of it: `3.32 nats a token`
    tokenizer_free: bool = False  # whether runs of different tokenizers may be held against each other in it
    # Whether it counts whole answers to examples, against labels or references: then neither the tokenizer, nor how
    # much of an example is read, nor how an answer is searched for changes what was asked.
    of_answers: bool = False

    def __post_init__(self) -> None:
        # Anything else would count as one of the two, and keep the worst weights as the best.
        if self.better not in ("min", "max"):
            raise UserError(f"metric {self.name}: better={self.better!r}: expected min or max")


@dataclass(frozen=True)
class Sample:
    """One example of what a model makes of validation: for people, and by columns for tables.

    Of several columns the first is what the model was given, `reference` or `label` is the right answer, and the next
    one what the model made of it: by that the samples of runs are set side by side.
    """

    text: str
    columns: Mapping[str, str | float | bool]
    fan: Fan | None = None  # the same as a picture, of a forecast


@dataclass(frozen=True)
class Baseline:
    """A predictor that knows little or nothing of sequences."""

    knows: str  # what stands beside its numbers: `how often each token is`
    name: str | None = None  # in a sentence: `better than the bigram`; None: no result is held against it


@dataclass(frozen=True)
class SampleOptions:
    """The options of the samples that a model generates at a validation."""

    prompt: str
    length: int  # tokens
    temperature: float
    top_k: int | None
    top_p: float | None


class Task(nn.Module, ABC):
    """Owns what a batch means; the model knows nothing of it. This one reads a stream; see `ExampleTask`."""

    streams: bool = True  # whether it reads one long text in chunks, or rows each by itself
    needs_whole: ClassVar[str | None] = None  # why tbptt.k2 does not cut what it reads; None where it does
    requires: Capability
    fields: ClassVar[tuple[str, ...]] = ("text",)  # of the rows that it reads
    label_kind: ClassVar[LabelKind] = "name"  # what the label of a row is, where it reads one
    specials: ClassVar[int] = 3  # tokens that stand for no text: start, separator, mask
    metrics: ClassVar[tuple[Metric, ...]] = ()  # all that `measure` may give, in the order in which they are said
    monitor: ClassVar[str] = "loss"  # the metric that says which weights are best
    compared_by: ClassVar[str | None] = None  # the metric of verdicts and of progress; None: the monitor
    signatures: ClassVar[Mapping[str, str]] = MappingProxyType({})  # how a metric was computed
    trained_by: ClassVar[tuple[str, ...]] = ()  # options that change training only; the others change what is measured
    answered_by: ClassVar[tuple[str, ...]] = ()  # options that change how an answer is searched for, not what is right
    known_baselines: ClassVar[Mapping[str, Baseline]] = MappingProxyType({})  # what `baselines` may give
    predictors: ClassVar[Mapping[str, type[Predictor]]] = MappingProxyType({})  # by name; the first is the default
    example_text: ClassVar[str] = "TEXT"  # what `predict` may be asked
    fits_linear: bool = False  # whether `first_weights` sets those of a model that is to begin as least squares
    direction: Literal["forward", "backward"] | None = None  # of a language model: which way it reads
    differentiated: tuple[str, ...] = ("loss",)  # the parts whose means are summed and descended

    @classmethod
    def metric(cls, name: str) -> Metric | None:
        """Return the metric of this name, or None if the task has none."""
        return next((metric for metric in cls.metrics if metric.name == name), None)

    @classmethod
    def monitor_better(cls) -> Literal["min", "max"]:
        """Return "min" if a smaller value of the monitor is better, else "max"."""
        found = cls.metric(cls.monitor)
        return found.better if found else "min"

    @classmethod
    def comparison(cls) -> str:
        """Return the name of the metric by which runs are compared and progress is shown."""
        return cls.compared_by or cls.monitor

    @classmethod
    def reads_values(cls) -> bool:
        """Return True if the task reads real values instead of tokens."""
        return "values" in cls.fields

    @classmethod
    def reads_stream(cls, carry: bool) -> bool:
        """Return True if the task reads a stream when time is cut with (`carry`) or without carried state."""
        return cls.streams

    @classmethod
    def name(cls) -> str:
        """Return the task's name in messages: as in `task=...`, or the class name of a third-party task."""
        # Which YAML chose a class of others is not known where a run is opened, and its file may hold several.
        room, _, module = cls.__module__.rpartition(".")
        return module if room == __package__ else cls.__name__

    @classmethod
    def said(cls) -> dict[str, Any]:
        """Return the task's description for a run's summary, which is then readable without the task's code."""
        return {
            "task": cls.__name__,
            "monitor": [cls.monitor, cls.monitor_better()],
            "compared_by": cls.comparison(),
            "measures": {metric.name: asdict(metric) for metric in cls.metrics},
            "trained_by": list(cls.trained_by),
            "answered_by": list(cls.answered_by),
            "signatures": dict(cls.signatures),
            "baseline_words": {name: asdict(baseline) for name, baseline in cls.known_baselines.items()},
            "example_text": cls.example_text,
        }

    @classmethod
    def without_effect(cls, options: Mapping[str, Any]) -> dict[str, str]:
        """Return the task's options that have no effect beside the others, each with the reason."""
        return {}

    def incompatibility(self, model: SequenceModel) -> str | None:
        """Return why a model with the required capabilities is incompatible, or None if it is compatible."""
        return None

    def no_distance(self) -> str | None:
        """Return the reason why a loss has no single distance from its input, so that none is measured; else None."""
        return None

    def remedy(self, model: SequenceModel) -> str | None:
        """Return task options that work with a model without the required capabilities, or None if there are none."""
        return None

    def arrange(self, rows: Rows) -> Rows:
        """Return the rows of a split in reading order; most tasks keep the given order."""
        return rows

    # -- loss and metrics ----------------------------------------------------------------------------------------

    @abstractmethod
    def logits(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... V"]:
        """Return unnormalised log-probabilities of the answers at each hidden state that has one."""

    @abstractmethod
    def evaluate(self, model: SequenceModel, batch: Any, state: State | None) -> tuple[LossTerms, State]:
        """Return the loss terms of a batch and the state after it; in training only the differentiated terms.

        Without a state the batch is read by itself, and the returned state is not used.
        """

    @abstractmethod
    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        """Return metrics by name from the sums and counts of all parts; losses are in nats."""

    def token_losses(
        self, model: SequenceModel, hidden: Float[Tensor, "B T D"], targets: Shaped[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        """Return the loss in nats of each token of a stream, from the hidden state before it; in float64.

        Raises:
            UserError: If the loss of the task is not one of single tokens.
        """
        raise UserError(f"task={self.name()}: has no loss of each token; tasks that have: next_token")

    def blank_targets(self, tokens: Shaped[Tensor, "B T *F"]) -> Shaped[Tensor, "B T *H"]:
        """Return targets shaped as those of a stream for `tokens`, to measure the memory that a step keeps."""
        return tokens

    @abstractmethod
    def head_flops(self) -> float:
        """Return the floating-point operations of a forward pass of the head per target."""

    def first_weights(self, model: SequenceModel, train: Rows, preprocessor: Preprocessor, say: Say) -> None:
        """Set weights of model and task before the first step from a closed-form fit on train; most tasks set none.

        `say`: receives a message on what was set.
        """

    # -- beside a result -----------------------------------------------------------------------------------------

    def chance(self, split: Rows, preprocessor: Preprocessor) -> dict[str, float]:
        """Return the expected metrics of a random guess among the possible answers; empty if they are unknown."""
        return {}

    def breakdown(self, totals: Reduced) -> dict[str, dict[str, float]]:
        """Return tables of an evaluation, such as a metric by length: the title of each, and a number for each row."""
        return {}

    def baselines(self, train: Rows, split: Rows, preprocessor: Preprocessor, say: Say) -> dict[str, dict[str, float]]:
        """Return metrics of `split` for simple baselines with little or no use of order, by name in `known_baselines`.

        `say`: receives a message on what was left out.
        """
        return {}

    @abstractmethod
    def show(
        self, model: SequenceModel, batch: Any, preprocessor: Preprocessor, options: SampleOptions
    ) -> Sequence[str]:
        """Return the model's output for each example of a batch, as text. A stream has a prompt instead of a batch."""

    def samples(
        self, model: SequenceModel, batch: Any, preprocessor: Preprocessor, options: SampleOptions
    ) -> Sequence[Sample]:
        """Return the samples of `show` with their columns: one column of text unless the task names others."""
        return [Sample(text, {"text": text}) for text in self.show(model, batch, preprocessor, options)]

    # -- texts ---------------------------------------------------------------------------------------------------

    def edges(self, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
        """Return the special tokens that the task reads before and after a text."""
        return [tokenizer.start], []

    def encode(self, tokenizer: Tokenizer, text: str) -> Any:
        """Return the ids (n,) of a text, without its edges."""
        return tokenizer.encode(text)

    def most_tokens(self, loaded: Loaded) -> int | None:
        """Return the most tokens of a text that can be read at once, without its edges; None if there is no limit."""
        if loaded.model.max_length is None:
            return None
        before, after = self.edges(loaded.tokenizer)
        return loaded.model.max_length - len(before) - len(after)

    def attended(self, loaded: Loaded, text: str, target: str | None) -> tuple[list[int], list[int] | None]:
        """Return the tokens whose attention is shown, and the source from which they are written, or None.

        Args:
            loaded: The model with its preprocessor.
            text: The text to read.
            target: The text to write, for tasks that write one. None: the text that the model itself writes.

        Raises:
            UserError: If `target` is given to a task that writes none.
        """
        if target is not None:
            raise UserError(f"attention: task={self.name()} writes no target; leave it out")
        before, after = self.edges(loaded.tokenizer)
        return [*before, *self.encode(loaded.tokenizer, text).tolist(), *after], None


class SeriesTask(Task):
    """A task that reads series of values: in windows, or as a stream."""

    rows_ahead: int = 1  # from the first one without a value on, of which it reads what is known ahead

    @abstractmethod
    def series_stream(self, rows: Rows, preprocessor: Preprocessor, *, context: int) -> SeriesStream:
        """Return the series of a split as a stream.

        Args:
            rows: The rows of the split.
            preprocessor: The preprocessor, which has their scaling.
            context: Number of rows before the split that are read for the state they leave, and not predicted.
        """

    @abstractmethod
    def examples(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, seed: int) -> Examples:
        """Return the windows of the series of a split."""

    def look_at(self, model: SequenceModel, batch: Any, limit: int) -> tuple[list[int], list[int] | None]:
        """Raise UserError: only an `ExampleTask` has tokens to draw attention over."""
        raise UserError("attention is drawn over tokens, and series have none")

    @abstractmethod
    def ahead(
        self, model: SequenceModel, features: Float[np.ndarray, "T F"], k2: int
    ) -> dict[str, Float[np.ndarray, "H C"]]:
        """Predict the scaled values after the end of a series.

        Args:
            model: The model, in evaluation mode.
            features: Features of the rows of one series, and of `rows_ahead` rows after its last value.
            k2: Number of rows that are read at a time if state is carried.

        Returns:
            `forecast`. Probabilistic tasks add the ends of intervals: `lower_80`, `upper_80`.
        """


class ExampleTask(Task):
    """A task whose rows are examples that are read each by itself."""

    streams = False
    needs_whole = "each example is read whole"

    @abstractmethod
    def examples(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, seed: int) -> Examples:
        """Return the examples that the rows of a split make, each of at most `max_length` tokens."""

    @abstractmethod
    def show(
        self, model: SequenceModel, batch: ExampleBatch, preprocessor: Preprocessor, options: SampleOptions
    ) -> Sequence[str]:
        """Return the model's output for each example of a batch, as text."""

    def look_at(self, model: SequenceModel, batch: Any, limit: int) -> tuple[list[int], list[int] | None]:
        """Return up to `limit` tokens of the first example to draw attention over, and its source if there is one."""
        return batch.tokens[0, :limit].tolist(), None

    def edges(self, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
        return [tokenizer.start], [tokenizer.separator]
