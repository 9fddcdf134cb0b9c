"""The interface of a task: the head, the named loss terms as sums and counts, and the descriptions of its results.

Reports, comparisons, curves and loggers use only these descriptions. `export` also checks the task's name, because each
foreign format fits certain tasks.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.data.values.fan import Fan
from seqtrain.errors import UserError
from seqtrain.models.base import Capability, SequenceModel, State

if TYPE_CHECKING:
    from seqtrain.data.batching.examples import Examples
    from seqtrain.data.batching.values import SeriesStream
    from seqtrain.data.preprocess import LabelKind, Preprocessor, Rows
    from seqtrain.tasks.predictors import Predictor

LossTerms = dict[str, tuple[Tensor, int]]
"""Named loss terms of a batch: the sum over targets, as a number or a table, and the count of these targets."""

Reduced = dict[str, tuple[Any, float]]
"""Loss terms of a whole split, added up over batches and processes; tables are nested lists."""

Say = Callable[[str], None]
"""Function that shows the user one line, such as `print`."""


def perplexity(loss: float) -> float:
    """Return exp of a mean loss in nats; a loss above 700 is clamped to 700, because exp would overflow."""
    return math.exp(min(loss, 700.0))


@dataclass(frozen=True)
class Facts:
    """Numbers that convert a loss per token into a loss per byte or word: means over the split."""

    bytes_per_token: float
    words_per_token: float | None  # None if the tokenizer's units are not words


@dataclass(frozen=True)
class Metric:
    """A number that a task measures on a split."""

    name: str
    better: Literal["min", "max"]
    unit: str  # printed after its value: `3.32 nats a token`
    tokenizer_free: bool = False  # True if runs with different tokenizers may be compared by it
    # True if it compares whole answers with labels or references, as accuracy or BLEU do. Then runs may be compared
    # even if they differ in tokenizer, in how much of an example they read, or in how they search for an answer.
    of_answers: bool = False
    signature: str | None = None  # exact definition, such as sacreBLEU's signature

    def __post_init__(self) -> None:
        # A typing error such as `maximum` would silently count as one direction, and might select the worst weights as
        # best.
        if self.better not in ("min", "max"):
            raise UserError(f"metric {self.name}: better={self.better!r}: expected min or max")


@dataclass(frozen=True)
class Sample:
    """The model's output for one example of validation: as a text for people, and in columns for tables.

    If there are several columns, the first is the input, `reference` or `label` the right answer, and the next one the
    model's output. Comparisons show the samples of runs side by side by these columns.
    """

    text: str
    columns: Mapping[str, str | float | bool] = field(default_factory=dict)  # none: the text is the only one
    fan: Fan | None = None  # for a forecast: the data of its plot

    def __post_init__(self) -> None:
        if not self.columns:
            object.__setattr__(self, "columns", {"text": self.text})


@dataclass(frozen=True)
class Baseline:
    """A predictor with little or no knowledge of sequences."""

    knows: str  # printed next to its numbers, such as `how often each token is`
    name: str | None = None  # its name in `better than the bigram`; None: results are not compared with it


@dataclass(frozen=True)
class SampleOptions:
    """The options of the samples that a model generates at a validation."""

    prompt: str
    length: int  # tokens
    temperature: float
    top_k: int | None
    top_p: float | None


class TaskData(nn.Module, ABC):
    """The data of a task: what it reads, how, and with which models."""

    requires: Capability
    fields: ClassVar[tuple[str, ...]] = ("text",)  # fields of a row that the task reads
    label_kind: ClassVar[LabelKind] = "name"  # kind of the field `label`, if the task reads it
    streams: bool = True  # True: reads one long text in chunks; False: reads each row independently
    needs_whole: ClassVar[str | None] = None  # reason why tbptt.k2 cannot cut its examples; None if it can

    def incompatibility(self, model: SequenceModel) -> str | None:
        """Return why a model with the required capabilities is incompatible, or None if it is compatible."""
        return None

    def edges(self, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
        """Return the special tokens that the task reads before and after a text."""
        return [tokenizer.start], []


class TaskLoss(nn.Module, ABC):
    """The loss of a task: its terms as sums and counts, and the metrics computed from them."""

    metrics: ClassVar[tuple[Metric, ...]] = ()  # all that `measure` may return, in the order of printing
    monitor: ClassVar[str] = "loss"  # the metric that selects the best checkpoint
    differentiated: tuple[str, ...] = ("loss",)  # loss terms whose means add up to the differentiated loss

    @abstractmethod
    def logits(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... V"]:
        """Return the raw outputs of the head for hidden states: scores, numbers or parameters."""

    @abstractmethod
    def evaluate(self, model: SequenceModel, batch: Any, state: State | None) -> tuple[LossTerms, State]:
        """Return the loss terms of a batch and the state after it; in training only the differentiated terms.

        Without a state the batch is read independently, and the returned state is not used. A task on a stream reads
        with `models.base.read(model, batch.tokens, state, batch.starts)`, which resets the state where a document
        begins.
        """

    @abstractmethod
    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        """Return metrics by name from the sums and counts of all terms; losses are in nats."""

    @abstractmethod
    def head_flops(self) -> float:
        """Return the floating-point operations of a forward pass of the head per target."""

    def baselines(self, train: Rows, split: Rows, preprocessor: Preprocessor, say: Say) -> dict[str, dict[str, float]]:
        """Return metrics of `split` of simple baselines that use little or no order, by name in `known_baselines`.

        `say`: called with a message for each baseline that was left out.
        """
        return {}


class TaskReport(nn.Module, ABC):
    """The report of a task: its predictors and samples, and the texts that accompany its results."""

    predictors: ClassVar[Mapping[str, type[Predictor]]] = MappingProxyType({})  # by name; the first is the default
    example_text: ClassVar[str] = "TEXT"  # placeholder of an input in the printed command `seqtrain predict RUN TEXT`
    known_baselines: ClassVar[Mapping[str, Baseline]] = MappingProxyType({})  # baselines that `baselines` may return
    compared_by: ClassVar[str | None] = None  # metric of verdicts and of progress; None: the monitor
    # Options that do not change what is measured. Runs that differ in another option of the task are not compared.
    trained_by: ClassVar[tuple[str, ...]] = ()  # they change training only, such as dropout
    answered_by: ClassVar[tuple[str, ...]] = ()  # they change the search for an answer, such as the width of a beam

    @abstractmethod
    def samples(
        self, model: SequenceModel, batch: Any, preprocessor: Preprocessor, options: SampleOptions
    ) -> Sequence[Sample]:
        """Return the model's output for each example of `batch`, or for a prompt: a stream of text has no batch."""


class Task(TaskData, TaskLoss, TaskReport):
    """Defines what a batch means, which the model does not know. This class reads streams.

    A task implements the members of its three parts. A command that needs more, such as the loss of each token, defines
    a `Protocol` in its own file. CONTRIBUTING.md lists these optional members.
    """

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
    def name(cls) -> str:
        """Return the task's name in messages: as in `task=...`, or the class name of a third-party task."""
        # The YAML file that chose a third-party class is unknown when a run is loaded, and its file may contain several
        # classes.
        package, _, module = cls.__module__.rpartition(".")
        return module if package == __package__ else cls.__name__

    @classmethod
    def said(cls) -> dict[str, Any]:
        """Return the task's description for a run's summary, which is then readable without the task's code."""
        measures = {metric.name: asdict(metric) for metric in cls.metrics}
        signatures = {name: measure.pop("signature") for name, measure in measures.items()}
        return {
            "task": cls.__name__,
            "monitor": [cls.monitor, cls.monitor_better()],
            "compared_by": cls.comparison(),
            "measures": measures,
            "trained_by": list(cls.trained_by),
            "answered_by": list(cls.answered_by),
            "signatures": {name: signature for name, signature in signatures.items() if signature is not None},
            "baseline_words": {name: asdict(baseline) for name, baseline in cls.known_baselines.items()},
            "example_text": cls.example_text,
        }


class ExampleTask(Task):
    """A task whose rows are examples that are read independently."""

    streams = False
    needs_whole = "each example is read whole"

    @abstractmethod
    def examples(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, seed: int) -> Examples:
        """Return the examples made from the rows of a split, each of at most `max_length` tokens."""

    def edges(self, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
        return [tokenizer.start], [tokenizer.separator]


class SeriesTask(ExampleTask):
    """A task that reads series of values: as examples, which are windows, or with tbptt.carry as a stream."""

    rows_ahead: int = 1  # rows after the last value whose known-ahead columns the task reads

    @abstractmethod
    def series_stream(self, rows: Rows, preprocessor: Preprocessor, *, context: int) -> SeriesStream:
        """Return the series of a split as a stream.

        Args:
            rows: The rows of the split.
            preprocessor: The preprocessor, which contains their scaling.
            context: Number of rows before the split that are read for the state they leave, and not predicted.
        """

    @abstractmethod
    def ahead(
        self, model: SequenceModel, features: Float[np.ndarray, "T F"], k2: int
    ) -> dict[str, Float[np.ndarray, "H C"]]:
        """Predict the scaled values after the end of a series.

        Args:
            model: The model, in evaluation mode.
            features: Features of the rows of one series, including `rows_ahead` rows after its last value.
            k2: Number of rows read at a time if state is carried.

        Returns:
            `forecast`. Probabilistic tasks add the bounds of intervals: `lower_80`, `upper_80`.
        """
