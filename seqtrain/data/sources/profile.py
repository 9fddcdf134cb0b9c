"""What the columns of a table look like: which one holds labels, and which one text, told by their values alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

MAX_DISTINCT = 5000  # values: a column with more of them holds no labels
MAX_LABEL_WORDS = 4  # on the average
FEWEST_ROWS = 4  # of fewer nothing can be told
SHARE_KNOWN = 0.5  # of a column's values that are labels of train: from here on it is that of the labels


@dataclass
class Profile:
    """A column's values, counted."""

    rows: int = 0
    words: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    overflowed: bool = False  # more distinct values than are counted
    numbers: int = 0  # rows whose value is a number

    # Beyond so many values nothing is counted: a column of sentences would be held in memory.
    def add(self, value: str) -> None:
        """One row more."""
        self.rows += 1
        self.words += len(value.split())
        self.numbers += is_number(value)
        if not self.overflowed:
            self.counts[value] += 1
            self.overflowed = len(self.counts) > MAX_DISTINCT

    @property
    def is_numeric(self) -> bool:
        """Whether it holds numbers alone."""
        return self.rows > 0 and self.numbers == self.rows

    @property
    def looks_like_labels(self) -> bool:
        """Whether few short values come again and again.

        Of words at the beginning of sentences half or more stand there once: so much tells a text from labels.
        """
        if self.overflowed or self.rows < FEWEST_ROWS or self.words > MAX_LABEL_WORDS * self.rows:
            return False
        distinct = len(self.counts)
        once = sum(count == 1 for count in self.counts.values())
        return distinct >= 2 and 2 * distinct <= self.rows and 3 * once <= distinct

    def share_of(self, known: Collection[str]) -> float:
        """The part of its rows whose value is one of these."""
        # A Counter gives 0 for what it never saw, and does not come to hold it.
        return sum(self.counts[value] for value in known) / max(self.rows, 1)


def profiles(rows: Iterable[Sequence[str]], width: int) -> list[Profile]:
    """The columns of the rows that have so many values; others are told of by the reader."""
    found = [Profile() for _ in range(width)]
    for row in rows:
        # One broken row must not decide what the columns are.
        if len(row) == width:
            for column, value in zip(found, row, strict=True):
                column.add(value)
    return found


def label_places(columns: Sequence[Profile], known: Collection[str], is_number: bool) -> list[int]:
    """Which columns, from 0, may hold the labels.

    Args:
        known: the labels of train; empty where this is train.
        is_number: whether labels are numbers, of which any may stand once.
    """
    if is_number:
        return [place for place, column in enumerate(columns) if column.is_numeric]
    if known:
        return [place for place, column in enumerate(columns) if column.share_of(known) >= SHARE_KNOWN]
    return [place for place, column in enumerate(columns) if column.looks_like_labels]


def text_places(columns: Sequence[Profile], label: int) -> list[int]:
    """Which columns, from 0, may hold the text, where that is not the one of the labels."""
    others = [place for place in range(len(columns)) if place != label]
    if len(others) == 1:
        return others
    # A number, a name that stands once, or the same value everywhere is no text beside a sentence.
    found = []
    for place in others:
        column = columns[place]
        if not column.is_numeric and column.words > column.rows and (column.overflowed or len(column.counts) > 1):
            found.append(place)
    return found


def is_number(value: str) -> bool:
    """Whether a value spells a number."""
    try:
        float(value)
    except ValueError:
        return False
    return True
