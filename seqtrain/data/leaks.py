"""Search for leaks: the share of a split that also occurs in train, or in the training text of a parent run.

A text is represented by hashes of its rows, of their lines, and of every five consecutive lines, so exact duplicates
are found. Letter case and white space are ignored. Only the smallest hashes of a large text are kept: equal texts keep
equal hashes, and memory is bounded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt64

from seqtrain.data.cache import Store
from seqtrain.data.leak_kinds import LIMITS, Leak
from seqtrain.errors import UserError
from seqtrain.files.atomic import atomic
from seqtrain.files.checked import read_checked

if TYPE_CHECKING:
    from seqtrain.data.preprocess import Rows

MIN_ASKED = 30  # minimum number of hashes to search for: the share of fewer is too uncertain
MIN_CHARACTERS = 32  # shorter rows are short documents, which recur without a leak, such as `good` among reviews
MAX_CHARACTERS = 1 << 15  # longer rows, such as books, are not hashed as a whole, only their lines
MAX_CACHED, MAX_KEPT = 1 << 17, 3 << 13  # hashes in the cache, and in a run's directory
MAX_CACHED_BYTES, MAX_FILE_BYTES = (8 * (6 + count) for count in (MAX_CACHED, MAX_KEPT))
FORMAT = 2  # version of the file
STRETCH = 5  # consecutive lines; of code that is split by files, a tenth of the single lines recur
KINDS = (*LIMITS, "lines")  # single lines are part of the text that is searched, but are not searched for
EVERY = 2**64 - 1  # bound of a sketch with all hashes


@dataclass(frozen=True)
class Sketch:
    """All hashes of a text that are at most `bound`."""

    hashes: Mapping[str, UInt64[np.ndarray, " n"]]  # by kind; sorted, without duplicates
    bound: int = EVERY
    whole: bool = True  # False if a part of the text is not known

    @classmethod
    def of(cls, texts: Iterable[str], count: int = MAX_CACHED) -> Sketch:
        """Return the sketch of texts, which are read once; memory does not grow with their size.

        Args:
            texts: Rows of text. The lines of a row with several lines are hashed, too.
            count: Maximum number of hashes to keep.
        """
        kept: dict[str, set[int]] = {kind: set() for kind in KINDS}
        bound = EVERY
        for kind, number in _numbers(texts):
            if number <= bound:
                kept[kind].add(number)
            if sum(map(len, kept.values())) > 2 * count:
                bound //= 2
                kept = {kind: {number for number in numbers if number <= bound} for kind, numbers in kept.items()}
        hashes: dict[str, UInt64[np.ndarray, " n"]] = {}
        for kind, numbers in kept.items():
            hashes[kind] = np.sort(np.fromiter(numbers, dtype=np.uint64, count=len(numbers)))
        return cls(hashes, bound).cut(count)

    def together(self) -> UInt64[np.ndarray, " n"]:
        """Return the hashes of all kinds, sorted, without duplicates."""
        return reduce(np.union1d, self.hashes.values())

    def up_to(self, bound: int) -> Sketch:
        """Return the sketch with only the hashes that are at most `bound`."""
        hashes: dict[str, UInt64[np.ndarray, " n"]] = {}
        for kind, of_kind in self.hashes.items():
            hashes[kind] = of_kind[of_kind <= np.uint64(bound)]
        return replace(self, hashes=hashes, bound=min(bound, self.bound))

    def cut(self, count: int) -> Sketch:
        """Return the sketch with at most the `count` smallest hashes."""
        every = np.sort(np.concatenate(list(self.hashes.values())))
        return self if len(every) <= count else self.up_to(int(every[count]) - 1)

    def joined(self, other: Sketch) -> Sketch:
        """Return the sketch of both texts together, up to the smaller bound."""
        hashes: dict[str, UInt64[np.ndarray, " n"]] = {}
        for kind, of_kind in self.hashes.items():
            hashes[kind] = np.union1d(of_kind, other.hashes[kind])
        bound = min(self.bound, other.bound)
        return Sketch(hashes, whole=self.whole and other.whole).up_to(bound)

    def unfinished(self) -> Sketch:
        """Return the same, marked as the sketch of a text that is not known completely."""
        return replace(self, whole=False)

    def save(self, path: Path) -> None:
        """Write a head, the bound, the number of hashes of each kind, and the hashes."""
        head = [2 * FORMAT + self.whole, self.bound, *map(len, self.hashes.values())]
        with atomic(path) as file:
            file.write(np.concatenate([np.array(head, dtype="<u8"), *self.hashes.values()]).astype("<u8").tobytes())

    @classmethod
    def load(cls, path: Path, limit: int = MAX_FILE_BYTES) -> Sketch:
        """Read what `save` wrote, of at most `limit` bytes.

        Raises:
            UserError: It is damaged, too large, or of another version.
            OSError: It is missing, or cannot be read.
        """
        content = read_checked(path, limit)
        try:
            numbers = np.frombuffer(content, dtype="<u8").astype(np.uint64)
            head, bound, *counts = numbers[: 2 + len(KINDS)].tolist()
            rest = numbers[2 + len(KINDS) :]
            if head // 2 != FORMAT or len(counts) != len(KINDS) or sum(counts) != len(rest):
                raise ValueError("damaged")
        except ValueError:
            raise UserError(f"{path}: not a sketch that this version can read") from None
        parts = np.split(rest, np.cumsum(counts)[:-1])
        return cls(dict(zip(KINDS, map(np.unique, parts), strict=True)), bound, bool(head % 2))


def _numbers(texts: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield kind and hash of each row, and of the lines and stretches of rows that have several lines."""
    for text in texts:
        if len(text) <= MAX_CHARACTERS and (words := _words(text)):
            yield "short documents" if len(words) < MIN_CHARACTERS else "documents", _number(words)
        lines = list(filter(None, map(_words, text.splitlines())))
        if len(lines) > 1:
            for line in lines:
                yield "lines", _number(line)
            for begin in range(max(len(lines) - STRETCH + 1, 1)):
                yield "text", _number("\n".join(lines[begin : begin + STRETCH]))


def _words(text: str) -> str:
    """Return a text in lower case, with single spaces."""
    return " ".join(text.lower().split())


def _number(words: str) -> int:
    return int.from_bytes(hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def sketches(rows: Rows, *, cache: Path | None = None) -> list[Sketch]:
    """Return the sketch of each field of a split, from the cache if it is there."""
    found = []
    for field, column in rows.columns.items():

        def write(folder: Path, field: str = field) -> None:
            Sketch.of(row[field] for row in rows.read()).save(folder / "sketch")

        def read(folder: Path) -> Sketch:
            return Sketch.load(folder / "sketch", MAX_CACHED_BYTES)

        found.append(Store(cache).entry("sketches", f"{column.hash} {FORMAT}", write, read))
    return found


def trained_text(rows: Rows, *, cache: Path | None = None) -> Sketch:
    """Return the sketch of a whole split, in which other splits are searched for."""
    return reduce(Sketch.joined, sketches(rows, cache=cache))


def find_leak(fields: Sequence[Sketch], known: Sketch, choose: Callable[..., Leak] = min) -> Leak | None:
    """Return the share of a split that occurs in the text of `known`; None if the split has too few hashes.

    Args:
        fields: Sketch of each field of the split.
        known: Sketch of the text that is searched.
        choose: `min`: a pair is a leak if both of its sides occur there; `max`: if one of them does.
    """
    found = list(filter(None, (_field_leak(sketch, known) for sketch in fields)))
    return choose(found, key=_gravity, default=None)


def _field_leak(field: Sketch, known: Sketch) -> Leak | None:
    """Return the most serious leak of a field."""
    every, asked, leaks = known.together(), field.up_to(known.bound), []
    for kind in LIMITS:
        hashes = asked.hashes[kind]
        # Short documents among longer ones are often headings.
        if kind == "short documents" and len(hashes) <= len(asked.hashes["documents"]):
            continue
        # With fewer, the share is exact only if all hashes are searched for.
        if len(hashes) >= MIN_ASKED or (len(hashes) and asked.bound == EVERY):
            found = int(np.isin(hashes, every, assume_unique=True).sum())
            leaks.append(Leak(found / len(hashes), kind, len(hashes)))
    return max(leaks, key=_gravity, default=None)


def _gravity(leak: Leak) -> tuple[float, int]:
    """Return the sort key of a leak: its share relative to the limit, then the number of hashes searched for."""
    return leak.share / LIMITS[leak.kind], leak.asked
