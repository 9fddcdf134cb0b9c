"""Sources that generate data from a seed: synthetic sequences, and sets of rows that are never split."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Literal, NamedTuple

from seqtrain.data.batching.splitmix64 import SplitMix64
from seqtrain.data.sources.base import SPLITS, Cut, Row, Source, Split
from seqtrain.errors import UserError

NOT_ASKED = "_"  # label of a word without a question, as CoNLL-U writes a missing value
LARGEST = 100_000  # maximum number of rows of a grammar: more would take long
MAX_DRAWS = 1000  # attempts to draw a sequence that no earlier split contains


class Lengths(NamedTuple):
    """Range of lengths, drawn uniformly."""

    shortest: int
    longest: int

    def draw(self, generator: SplitMix64) -> int:
        """Draw a length."""
        return self.shortest + generator.below(self.longest - self.shortest + 1)


@dataclass(kw_only=True, eq=False)
class Synthetic(Source):
    """Sequences of generated words; test may be longer than train, to measure length generalisation.

    A sequence may occur twice in train; validation and test contain no sequence of an earlier split.

    Attributes:
        size: Number of sequences in train.
        validation_size: Number of sequences in validation.
        test_size: Number of sequences in test.
        shortest: Minimum length.
        longest: Maximum length.
        test_shortest: Minimum length in test; None = as in train.
        test_longest: Maximum length in test; None = as in train.
        validation_lengths: The split whose lengths validation uses.
        seed: Seed of all random choices.
    """

    size: int = 10000
    validation_size: int = 1000
    test_size: int = 1000
    shortest: int
    longest: int
    test_shortest: int | None = None
    test_longest: int | None = None
    validation_lengths: Literal["train", "test"] = "train"
    seed: int = 0

    fields = ("text", "label")
    label_kind = "names"
    document = "a sequence"
    is_disjoint = True  # see `_draw_one`; the search for leaks is skipped
    called = ""  # name of the source in `describe`
    least = 1  # the smallest valid length

    def __post_init__(self) -> None:
        """Set the sizes and lengths; raise UserError if a length is too short, or the longest is below the shortest."""
        self._sizes: dict[Split, int] = dict(
            zip(SPLITS, (self.size, self.validation_size, self.test_size), strict=True)
        )
        train = self._checked("", self.shortest, self.longest)
        test = self._checked("test_", *_or_as_in_train(train, self.test_shortest, self.test_longest))
        # By default as in train: weights selected on the lengths of test would be fitted to them.
        validation = test if self.validation_lengths == "test" else train
        self._lengths: dict[Split, Lengths] = {"train": train, "validation": validation, "test": test}

    def _checked(self, prefix: str, shortest: int, longest: int) -> Lengths:
        # Checked here, because the table of valid ranges checks each option separately.
        if shortest < self.least:
            raise UserError(f"data.{prefix}shortest={shortest}: must be at least {self.least} for {self.called}")
        if longest < shortest:
            raise UserError(f"data.{prefix}longest={longest}: is below data.{prefix}shortest={shortest}")
        return Lengths(shortest, longest)

    @abstractmethod
    def example(self, generator: SplitMix64, length: int) -> tuple[list[str], list[str]]:
        """Return the words of a sequence of this length, and a label for each; NOT_ASKED where there is no question."""

    def rows(self, split: Split) -> Iterator[Row]:
        if not self.has(split):
            raise UserError(f"data.{split}_size=0: there is no {split} split; set it above 0")
        return map(dict, self._drawn[split])  # copies, because a caller may modify a row

    def has(self, split: Split) -> bool:
        return self._sizes[split] > 0

    def at_length(self, split: Split, length: int, most: int) -> dict[str, Any]:
        """Return the options of `data` with which a split has at most `most` sequences of this length.

        Train does not change, so the split still contains none of its sequences.

        Args:
            split: Validation or test.
            length: Length of the sequences.
            most: Maximum number of sequences.
        """
        return {
            "test_shortest": length,
            "test_longest": length,
            "validation_lengths": "test" if split == "validation" else self.validation_lengths,
            "validation_size": min(self.validation_size, most),
            "test_size": min(self.test_size, most) if split == "test" else 0,  # drawn last, so others do not need it
        }

    def describe(self) -> dict[str, Any]:
        # Only splits that are not empty.
        sizes, lengths = {}, {}
        for split in SPLITS:
            if self.has(split):
                sizes[split] = self._sizes[split]
                lengths[split] = list(self._lengths[split])
        return {"source": self.called, "seed": self.seed, "sequences": sizes, "lengths": lengths}

    @cached_property
    def _drawn(self) -> dict[Split, list[Row]]:
        """All rows, drawn for train first, so that the options of test do not change train."""
        # Our own generator, because a library's may change between versions.
        generator = SplitMix64(self.seed)
        before: set[str] = set()
        drawn: dict[Split, list[Row]] = {}
        for split in SPLITS:
            rows = []
            for _ in range(self._sizes[split]):
                rows.append(self._draw_one(generator, split, before))
            drawn[split] = rows
            # After the split: it may contain a sequence twice, as if every step drew new data.
            before.update(row["text"] for row in rows)
        return drawn

    def _draw_one(self, generator: SplitMix64, split: Split, before: set[str]) -> Row:
        for _ in range(MAX_DRAWS):
            # Draw the length again, too: all of the shortest sequences may be used.
            words, labels = self.example(generator, self._lengths[split].draw(generator))
            text = " ".join(words)
            if text not in before:
                return {"text": text, "label": " ".join(labels)}
        lengths = self._lengths[split]
        raise UserError(
            f"data.size={self._sizes['train']}: no sequence of {lengths.shortest} to {lengths.longest} is left for "
            f"{split} that earlier splits do not contain; use longer sequences, or a smaller size"
        )


def _or_as_in_train(lengths: Lengths, shortest: int | None, longest: int | None) -> tuple[int, int]:
    """Return the lengths of test; if only one end is given, the other is adjusted to it."""
    # Adjust the default of the other end instead of raising an error.
    if shortest is None:
        shortest = lengths.shortest if longest is None else min(lengths.shortest, longest)
    if longest is None:
        longest = max(lengths.longest, shortest)
    return shortest, longest


@dataclass(kw_only=True, eq=False)
class Generated(Source):
    """Generated rows in sets whose labels depend on each other; all are drawn when the first one is read.

    Attributes:
        size: Number of rows in all splits together, a multiple of the rows per set.
        seed: Seed of all random choices.
        validation_fraction: Fraction of the rows that is validation.
        test_fraction: Fraction of the rows that is test.
    """

    size: int
    seed: int = 0
    validation_fraction: float = 0.1
    test_fraction: float = 0.1

    fields = ("text", "label")
    called = ""  # name of the source in `describe`
    rows_called = "sentences"  # name of its rows in `describe`
    in_set = 1  # rows per set

    def __post_init__(self) -> None:
        """Set the cut; raise UserError if the size is not a multiple of a set, or is too large."""
        least = max(self.in_set, 2)
        if self.size % self.in_set or not least <= self.size <= LARGEST:
            multiple = {1: "", 2: "an even number "}.get(self.in_set, f"a multiple of {self.in_set} ")
            raise UserError(f"data.size={self.size}: must be {multiple}from {least} to {LARGEST}")
        self._sets = self.size // self.in_set
        self._cut = Cut(by="row", validation=self.validation_fraction, test=self.test_fraction)

    @abstractmethod
    def draw(self, generator: SplitMix64) -> Sequence[Row]:
        """Draw one set of rows; if it is empty, it is drawn again."""

    def keys(self, rows: Sequence[Row]) -> set[str]:
        """Return keys, by default the texts, that no two sets share, so that the answer cannot be memorised."""
        return {row["text"] for row in rows}

    def check(self) -> None:
        self._cut.check(self._sets)

    def rows(self, split: Split) -> Iterator[Row]:
        # Whole sets are in a split: one row of a set may reveal the others.
        sets = self._cut.rows(lambda _: iter(self._drawn), split)
        return map(dict, chain.from_iterable(sets))  # copies, because a caller may modify a row

    def has(self, split: Split) -> bool:
        return self._cut.has(split)

    def describe(self) -> dict[str, Any]:
        sizes = {split: len(list(self.rows(split))) for split in SPLITS if self.has(split)}
        return {"source": self.called, "seed": self.seed, self.rows_called: sizes}

    @cached_property
    def _drawn(self) -> Sequence[Sequence[Row]]:
        generator = SplitMix64(self.seed)
        seen: set[str] = set()
        sets: list[Sequence[Row]] = []
        while len(sets) < self._sets:
            rows = self.draw(generator)
            keys = self.keys(rows)
            if rows and not keys & seen:
                seen |= keys
                sets.append(rows)
        return sets


def phrases(text: str) -> list[str]:
    """Return the phrases between commas."""
    return [" ".join(phrase.split()) for phrase in text.split(",")]  # a line end counts as a space
