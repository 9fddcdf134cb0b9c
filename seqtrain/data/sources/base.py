"""The interface of data sources, and `Cut`, which splits validation and test off train if they are not given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from seqtrain.data.batching.splitmix64 import mixed
from seqtrain.errors import UserError

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
SplitBy = Literal["document", "position"]
NO_LABEL = "_"  # in place of a label at a word: CoNLL-U's mark for a missing value
LabelKind = Literal["name", "names", "number", "numbers"]  # of a row: one for the whole row, or one for each word
OF_WORDS = ("names", "numbers")  # kinds with one for each word
OF_NUMBERS = ("number", "numbers")
Row = dict[str, str]
"""One example: a string for each of its source's fields."""

Item = TypeVar("Item")


class Segment(NamedTuple):
    """A part of a document."""

    text: str
    ends: bool  # True if this is the last segment of its document


class Source(ABC):
    """Documents of text, or rows of several fields, in a fixed order, in up to three splits.

    Optional members, such as the method that lists options without effect, are in a `Protocol` next to their caller.
    CONTRIBUTING.md lists them.
    """

    document: str  # noun for a document or a row, for messages
    fields: tuple[str, ...] = ("text",)  # fields of a row: text; text and label; or source and target
    label_kind: LabelKind | None = None  # kind of `label`, if the source generates it; None: the files decide

    def check(self) -> None:  # noqa: B027 - a source that generates its data may have nothing to check
        """Check the source cheaply, before any work begins; raise UserError with all faults at once.

        A source that reads files checks them with the same code that `documents` uses.
        """

    def documents(self, split: Split) -> Iterator[str]:
        """Return the documents of a split (the text of its rows), in the same order every time.

        A source implements this or `rows`. Raises UserError if the source has no such split, or if its rows are pairs
        and not documents.
        """
        if "text" not in self.fields:
            raise UserError("data: contains pairs, not text; use task=translation, or other data")
        return (row["text"] for row in self.rows(split))

    def rows(self, split: Split) -> Iterator[Row]:
        """Return the rows of a split, with all of `fields`, in the order of `documents`; raise UserError as it does."""
        return ({"text": text} for text in self.documents(split))

    @abstractmethod
    def has(self, split: Split) -> bool:
        """Return True if the source has this split."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return a description of the data, as plain JSON for the run record."""


class Cut:
    """Splits validation and test off one sequence of documents or rows, the same way every time.

    By document or row: a pseudo-random choice that depends only on their number. By position: the concatenated text is
    cut by characters into train, validation and test, in this order; a document at a boundary is cut in two.
    """

    def __init__(
        self, *, by: SplitBy | Literal["row"], validation: float, test: float, given: Collection[Split] = ()
    ) -> None:
        """Check that the fractions are in [0, 1) and leave something to train on; 0 means no such split.

        `given`: splits that the source already has; their fractions are treated as 0.
        """
        if "validation" in given:
            validation = 0.0
        if "test" in given:
            test = 0.0
        check_fractions(validation, test)
        self.by = by
        self.given = given
        # Exact decimals: in floats 1 - 0.05 - 0.05 is below 0.9, which would move a character to another split.
        self.fractions = {"validation": Fraction(str(validation)), "test": Fraction(str(test))}
        self._size: int | None = None  # total size, once counted: characters if cut by position, else items

    def has(self, split: Split) -> bool:
        """Return True if this split is given, or is cut off from train."""
        return split == "train" or split in self.given or self.fractions[split] > 0

    def documents(self, read: Callable[[Split], Iterator[str]], split: Split) -> Iterator[str]:
        """Return the documents of `split`: its own if the split is given, else its part of train.

        Args:
            read: Returns all documents of a given split; called once more to measure train.
            split: The split.
        """
        if self.by != "position":
            return self.rows(read, split)
        segments = self.segments(lambda owner: (Segment(text, True) for text in read(owner)), split)
        return (text for text, _ in segments)

    def rows(self, read: Callable[[Split], Iterator[Item]], split: Split) -> Iterator[Item]:
        """Return the items of `split`, where items of any type stay whole; not for a cut by position."""
        if not self._cuts(split):
            return read(split)
        if self._size is None:
            self._size = sum(1 for _ in read("train"))  # one by one: the items need not fit into memory
        is_in_split = self._is_in(self._size, split)
        return (item for item, is_in in zip(read("train"), is_in_split, strict=True) if is_in)

    def segments(self, read: Callable[[Split], Iterator[Segment]], split: Split) -> Iterator[Segment]:
        """Return `documents` in segments; a document that is cut by position ends at the cut."""
        if not self._cuts(split):
            return read(split)
        if self._size is None:
            self._size = sum(len(text) if self.by == "position" else ends for text, ends in read("train"))
        if self.by == "position":
            return _segments_between(read("train"), *self._edges(self._size, split))
        return _segments_of(read("train"), self._is_in(self._size, split))

    def check(self, count: int) -> None:
        """Raise UserError if `count` documents cannot be split by these fractions."""
        if self.by != "position":
            self._sizes(count)

    def _cuts(self, split: Split) -> bool:
        """Return True if `split` is a part of train's files; raise UserError if it is neither given nor cut off."""
        if not self.has(split):
            raise no_split(split)
        is_given = split in self.given and split != "train"  # other splits may be cut off from train
        return not is_given and any(self.fractions.values())

    def _sizes(self, count: int) -> dict[str, int]:
        """Return the number of items in validation and in test."""
        sizes = dict.fromkeys(self.fractions, 0)
        for name, fraction in self.fractions.items():
            if fraction:
                sizes[name] = max(1, int(count * fraction))  # a split with a fraction above 0 is never empty
        if sum(sizes.values()) >= count:
            raise self._too_few(count)
        return sizes

    def _too_few(self, count: int) -> UserError:
        asked = [name for name, fraction in self.fractions.items() if fraction]
        unit = {"position": "character"}.get(self.by, self.by)
        problem = f"{count} {unit}{'s' * (count != 1)} cannot be split into train and {' and '.join(asked)}"
        if self.by == "document":
            return UserError(f"data.split_by=document: {problem}; use data.split_by=position")
        return UserError(f"data.{asked[0]}_fraction: {problem}; provide more data")

    def _is_in(self, count: int, split: Split) -> np.ndarray:
        """Return a mask (count,) bool of the items that belong to the split."""
        sizes, order = self._sizes(count), shuffled(count)
        owner = np.zeros(count, dtype=np.int8)  # index into SPLITS
        # In shuffled order validation comes first, then test: mark both as test, then overwrite the first part.
        owner[order[: sum(sizes.values())]] = SPLITS.index("test")
        owner[order[: sizes["validation"]]] = SPLITS.index("validation")
        return owner == SPLITS.index(split)

    def _edges(self, total: int, split: Split) -> tuple[int, int]:
        """Return begin and end (exclusive), in characters, of a split that is cut by position."""
        begin_of_test = 1 - self.fractions["test"]
        begin_of_validation = begin_of_test - self.fractions["validation"]
        edges = [0, int(total * begin_of_validation), int(total * begin_of_test), total]
        begin, end = edges[SPLITS.index(split) :][:2]
        if begin == end:
            raise self._too_few(total)
        return begin, end


def idle_cut(given: Mapping[Split, str]) -> dict[str, str]:
    """Return the cut options that have no effect because these splits are `given`, each with the reason."""
    idle = {}
    for split, option in given.items():
        if split != "train":
            idle[f"{split}_fraction"] = f"{split} is not cut off from train, since {option} is given"
    if {"validation", "test"} <= given.keys():
        idle["split_by"] = "nothing is cut off from train"
    return idle


def no_split(split: Split) -> UserError:
    """Return the error for a split that is neither given nor cut off."""
    return UserError(f"data.{split}_fraction=0: there is no {split} split; set data.{split}_fraction above 0")


def check_fractions(validation: float, test: float) -> None:
    """Raise UserError unless both fractions are in [0, 1) and leave something to train on."""
    for name, value in (("validation", validation), ("test", test)):
        if not 0 <= value < 1:
            raise UserError(f"data.{name}_fraction={value}: must be at least 0 and below 1")
    if validation + test >= 1:
        raise UserError(
            f"data.validation_fraction={validation} and data.test_fraction={test} leave nothing to train on"
        )


def shuffled(count: int) -> np.ndarray:
    """Return a pseudo-random order (count,) of 0..count-1 that depends only on `count`, not on numpy's version.

    Sorts the indices by the number that SplitMix64 returns for each.
    """
    return np.argsort(mixed(np.zeros(1, dtype=np.uint64), np.arange(count)), kind="stable")


def _segments_between(segments: Iterator[Segment], begin: int, end: int) -> Iterator[Segment]:
    """Yield the text between two character positions of the segments laid end to end."""
    position = 0
    is_open = False  # True within a document that has begun in this range and has not ended yet
    for text, ends in segments:
        # Positions relative to the segment's start, at least 0: a negative index would count from its end.
        part = text[max(begin - position, 0) : max(end - position, 0)]
        position += len(text)
        if part or (is_open and ends):
            is_open = not (ends or position >= end)
            yield Segment(part, not is_open)
        if position >= end:
            return


def _segments_of(segments: Iterator[Segment], is_in: np.ndarray) -> Iterator[Segment]:
    """Yield the segments of the documents that are in a split."""
    number = 0
    for segment in segments:
        if is_in[number]:
            yield segment
        number += segment.ends
