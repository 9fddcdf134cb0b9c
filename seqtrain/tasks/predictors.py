"""Predictors of a trained model on texts: each gives one kind of answer, with its options and messages."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from seqtrain.data.batching.examples import ExampleBatch, by_length, padded
from seqtrain.data.batching.plan import TBPTT
from seqtrain.data.preprocess import Preprocessor
from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.models.base import SequenceModel
from seqtrain.terminal import is_unicode

if TYPE_CHECKING:
    from seqtrain.tasks.base import Task

T = TypeVar("T", bound="Task")
MAX_CHARACTERS = 160  # of a displayed text
MAX_TOKENS = 8192  # maximum tokens read at once by a model without a table of positions, to bound memory


@dataclass(frozen=True)
class Loaded:
    """A trained model and what is needed to run it on texts."""

    model: SequenceModel
    preprocessor: Preprocessor
    max_length: int  # maximum tokens of an example, as in training
    tbptt: TBPTT  # how evaluation truncates time

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of texts, and of sources."""
        return self.preprocessor.tokenizer


@dataclass(frozen=True)
class NamedSeries:
    """A series as input of a predictor."""

    name: str
    features: Float[np.ndarray, "T F"]  # as a model reads them


def question(item: str | NamedSeries) -> dict[str, str]:
    """Return the entry of an answer that identifies the input."""
    return {"text": item} if isinstance(item, str) else {"series": item.name}


def question_words(answer: Mapping[str, Any]) -> str:
    """Return the input of an answer as text for a person."""
    return answer["text"] if "text" in answer else answer["series"]


def shown_input(batch: ExampleBatch, lane: int, preprocessor: Preprocessor) -> str:
    """Return the input of an example for a table of samples: the text, or the number of the series in its split."""
    length = int(batch.lengths[lane])
    if preprocessor.series is not None:
        return f"validation series {int(batch.index[lane]) + 1} ({length:,} steps)"
    text = " ".join(preprocessor.tokenizer.decode(batch.tokens[lane, 1 : length - 1].tolist()).split())
    return text[:MAX_CHARACTERS]


@runtime_checkable
class WritesText(Protocol):
    """A task whose model reads one text and generates another: attention is drawn over both."""

    def attended(
        self, loaded: Loaded, text: str | NamedSeries, target: str | None
    ) -> tuple[list[int], list[Any] | None]:
        """Return the tokens of a target, by default the model's own, and those of its source."""
        ...


@runtime_checkable
class HidesTokens(Protocol):
    """A task whose texts may have hidden tokens."""

    def encode(self, tokenizer: Tokenizer, text: str) -> Int[np.ndarray, " n"]:
        """Return the ids of a text, without its edges."""
        ...


class TextReader(Generic[T]):
    """A reader of users' texts for a task: decides which part of a text is read, and which texts are rejected."""

    needs_text: ClassVar[bool] = True  # True if an empty text has no answer

    def __init__(self, task: T, loaded: Loaded) -> None:
        self.task = task
        self.loaded = loaded

    def encode(self, text: str) -> Int[np.ndarray, " n"]:
        """Return the ids (n,) of a text, without its edges."""
        if isinstance(self.task, HidesTokens):
            return self.task.encode(self.loaded.tokenizer, text)
        return self.loaded.tokenizer.encode(text)

    @property
    def longest(self) -> int | None:
        """Tokens of a text that are read, the rest is cut; None: all of them."""
        return None

    @property
    def room(self) -> int | None:
        """Maximum tokens of a text, above which there is no answer; None if any text fits, or is cut to fit."""
        positions = self.loaded.model.max_length
        if self.longest is not None or (positions is None and self.task.streams):
            return None
        if positions is not None and isinstance(self.task, WritesText):
            positions //= 2  # the other half is for the target, and `translate` does not read more
        before, after = self.task.edges(self.loaded.tokenizer)
        return (positions or max(MAX_TOKENS, self.loaded.max_length)) - len(before) - len(after)

    def reason(self, text: str) -> str | None:
        """Return the reason why this text has no answer, or None."""
        if self.loaded.preprocessor.series is not None:
            return "is a text, but the run reads series of values; give a file of them"
        if not is_unicode(text):
            return "contains half of a surrogate pair, which is not valid Unicode; leave it out"
        if not self.needs_text:
            return None
        ids, room = self.encode(text), self.room
        if not len(ids):
            return "contains no text"
        if room is None or len(ids) <= room:
            return None
        if self.loaded.model.max_length:
            return f"has {len(ids):,} tokens, but the model has only {room:,} positions"
        return f"has {len(ids):,} tokens, but a text is read at once and may have at most {room:,}"

    def batches(
        self, items: Sequence[str | NamedSeries]
    ) -> Iterator[tuple[Sequence[int], Shaped[Tensor, "B T *F"], Int[Tensor, " B"]]]:
        """Yield batches of texts with their edges, cut to `longest` tokens, or of series, grouped by similar length.

        Yields:
            Indices of some of the items, their tokens (B, T) or values (B, T, F), padded on the right, and their
            lengths (B,).
        """
        before, after = self.task.edges(self.loaded.tokenizer)
        rows = []
        for item in items:
            if isinstance(item, NamedSeries):
                rows.append(item.features[: self.loaded.max_length])
            else:
                rows.append(np.concatenate([before, self.encode(item)[: self.longest], after]).astype(np.int64))
        for lanes in by_length(rows):
            yield lanes, *padded([rows[lane] for lane in lanes])

    def cuts(self, text: str) -> bool:
        """Return True if only the beginning of the text is read."""
        return self.longest is not None and len(self.encode(text)) > self.longest


class Predictor(TextReader[T], ABC):
    """One kind of answer to texts."""

    takes: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # options of `seqtrain predict` with their defaults
    at_a_time: ClassVar[int] = 32  # number of texts that `seqtrain predict` passes at a time

    @abstractmethod
    def predict(self, texts: Sequence[str], *, first: int = 0, **options: Any) -> list[dict[str, Any]]:
        """Return the answer to each text as plain values, which include the text.

        Args:
            texts: The texts to answer.
            first: Number of texts answered before these, for random draws that depend on the index of a text.
            **options: Options in `takes`; each replaces its default.
        """

    @abstractmethod
    def words(self, answer: dict[str, Any]) -> str:
        """Format an answer for a person."""

    def without_effect(self, given: Mapping[str, Any]) -> dict[str, str]:
        """Return options that have no effect given the others, each with the reason and the remedy."""
        return {}


class Score(Predictor[T]):
    """A predictor of the surprisal of a text, token by token."""

    @abstractmethod
    def surprisals(self, ids: Int[np.ndarray, " n"]) -> list[float]:
        """Return the nats of each token of a text."""

    @abstractmethod
    def total(self, nats: float, loss: float, text: str) -> dict[str, float]:
        """Return the measures of the whole text, from the sum of its surprisals and their mean."""

    def encode(self, text: str) -> Int[np.ndarray, " n"]:
        return self.loaded.tokenizer.encode(text)

    def predict(self, texts: Sequence[str], *, first: int = 0, **options: Any) -> list[dict[str, Any]]:
        """Return `loss` in nats a token, the measures of `total`, `tokens` with their bits, and the count `unknown`.

        The spelling of unknown tokens is not counted.
        """
        return [{"text": text, **self._score(text)} for text in texts]

    def _score(self, text: str) -> dict[str, Any]:
        tokenizer, ids = self.loaded.tokenizer, self.encode(text)
        nats = self.surprisals(ids)
        loss = sum(nats) / len(nats)
        tokens = []
        for token, surprisal in zip(ids.tolist(), nats, strict=True):
            tokens.append({"text": tokenizer.token_text(token), "bits": surprisal / math.log(2)})
        unknown = ids.tolist().count(tokenizer.unknown)
        return {"unknown": unknown, "loss": loss, **self.total(sum(nats), loss, text), "tokens": tokens}

    def words(self, answer: dict[str, Any]) -> str:
        count = len(answer["tokens"])
        lines = [f"{answer['loss']:.4f} nats a token, {self.total_words(answer)}, {count} token{'s' * (count != 1)}"]
        if answer["unknown"]:
            lines[0] += f"; <unk>, whose spelling is not counted: {answer['unknown']}"
        for token in answer["tokens"]:
            lines.append(f"{token['bits']:8.3f} bits  {token['text']}")
        return "\n".join(lines)

    @abstractmethod
    def total_words(self, answer: dict[str, Any]) -> str:
        """Return the measures of `total` as text for a person."""
