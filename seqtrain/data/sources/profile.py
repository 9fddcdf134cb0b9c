"""Statistics of a table's columns, by which the columns of labels and of text are detected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

MAX_DISTINCT = 5000  # maximum number of distinct labels
MAX_LABEL_WORDS = 4  # maximum number of words in a label, on average
FEWEST_ROWS = 4  # minimum number of rows to detect labels
SHARE_KNOWN = 0.5  # minimum fraction of a column's values that are labels of train, if it is the column of labels


@dataclass
class Profile:
    """Counts of a column's values."""

    rows: int = 0
    words: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    overflowed: bool = False  # True if there are more than MAX_DISTINCT distinct values
    numbers: int = 0  # rows whose value is a number

    # Beyond MAX_DISTINCT values are not counted: otherwise a column of sentences would fill the memory.
    def add(self, value: str) -> None:
        """Count the value of one more row."""
        self.rows += 1
        self.words += len(value.split())
        self.numbers += is_number(value)
        if not self.overflowed:
            self.counts[value] += 1
            self.overflowed = len(self.counts) > MAX_DISTINCT

    @property
    def is_numeric(self) -> bool:
        """True if all values are numbers."""
        return self.rows > 0 and self.numbers == self.rows

    @property
    def looks_like_labels(self) -> bool:
        """True if few short values repeat often.

        At least half of the words that begin sentences occur only once, which distinguishes text from labels.
        """
        if self.overflowed or self.rows < FEWEST_ROWS or self.words > MAX_LABEL_WORDS * self.rows:
            return False
        distinct = len(self.counts)
        once = sum(count == 1 for count in self.counts.values())
        return distinct >= 2 and 2 * distinct <= self.rows and 3 * once <= distinct

    def share_of(self, known: Collection[str]) -> float:
        """Return the fraction of the rows whose value is in `known`."""
        # A Counter returns 0 for a missing key and does not add it.
        return sum(self.counts[value] for value in known) / max(self.rows, 1)


def profiles(rows: Iterable[Sequence[str]], width: int) -> list[Profile]:
    """Return the profiles of the columns, over the rows with `width` values; the reader reports all other rows."""
    found = [Profile() for _ in range(width)]
    for row in rows:
        # A single broken row must not influence the detection.
        if len(row) == width:
            for column, value in zip(found, row, strict=True):
                column.add(value)
    return found


def label_places(columns: Sequence[Profile], known: Collection[str], is_number: bool) -> list[int]:
    """Return the columns, from 0, that may contain the labels.

    Args:
        columns: Profiles of all columns.
        known: The labels of train; empty if this is train.
        is_number: True if labels are numbers, each of which may occur once.
    """
    if is_number:
        return [place for place, column in enumerate(columns) if column.is_numeric]
    if known:
        return [place for place, column in enumerate(columns) if column.share_of(known) >= SHARE_KNOWN]
    return [place for place, column in enumerate(columns) if column.looks_like_labels]


def text_places(columns: Sequence[Profile], label: int) -> list[int]:
    """Return the columns, from 0, that may contain the text, without the column of labels."""
    others = [place for place in range(len(columns)) if place != label]
    if len(others) == 1:
        return others
    # Not text: numbers, single words, and columns with the same value in all rows.
    found = []
    for place in others:
        column = columns[place]
        if not column.is_numeric and column.words > column.rows and (column.overflowed or len(column.counts) > 1):
            found.append(place)
    return found


def is_number(value: str) -> bool:
    """Return True if a value spells a number."""
    try:
        float(value)
    except ValueError:
        return False
    return True
