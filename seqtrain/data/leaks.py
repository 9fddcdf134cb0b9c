"""Search for leaks: the share of a split that stands in train, or in the training text of a parent run.

A text is kept as a bounded sample of the hashes of its documents and stretches. Copies are found in it whole or
shifted: every stretch of 128 bytes has a hash, at any offset. The hashes themselves decide which are kept (bottom-k
sampling, Cohen and Kaplan 2007), so equal texts keep equal ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8, UInt64

from seqtrain.data.batching.splitmix64 import FIRST, mixed
from seqtrain.data.cache import Store
from seqtrain.data.leak_kinds import LIMITS, Kind, Leak
from seqtrain.errors import UserError
from seqtrain.files.atomic import atomic
from seqtrain.files.checked import read_checked

if TYPE_CHECKING:
    from seqtrain.data.preprocess import Rows

MIN_ASKED = 30  # hashes of a sample: of fewer, chance decides
MIN_CHARACTERS = 32  # of a document that is not short: short ones recur by themselves, as `good` among reviews
STRETCH_BYTES = 128  # some 20 words: boilerplate and quotations apart, so many words are hardly written twice
MAX_CACHED, MAX_KEPT = 1 << 16, 1 << 13  # hashes of each kind, in the cache and in a run's directory
MAX_CACHED_BYTES, MAX_FILE_BYTES = (8 * (1 + 3 * (2 + count)) for count in (MAX_CACHED, MAX_KEPT))
BLOCK_BYTES = 1 << 15  # that are hashed together: what fits into the processor's cache takes a third of the time
FORMAT = 1  # of the file
EVERY = 2**64 - 1  # the bound of a sample that holds all there are
END = b"\xff"  # between documents; no text holds this byte
# By byte: letters of ASCII are lower case, white space is all the same, and every byte has a number of its own.
NUMBERS = mixed(
    np.zeros(1, dtype=np.uint64),
    np.frombuffer(bytes(range(256)).lower().translate(bytes.maketrans(b"\t\n\v\f\r", b" " * 5)), dtype=np.uint8),
)
FACTORS = mixed(np.ones(1, dtype=np.uint64), np.arange(7)) | np.uint64(1)  # odd: no multiplication loses a bit


@dataclass(frozen=True)
class Sample:
    """The smallest of some hashes."""

    hashes: UInt64[np.ndarray, " n"]  # in order, each once
    bound: int = EVERY  # all hashes up to this one are there

    @property
    def size(self) -> float:
        """Number of hashes, including those that are not kept; an estimate if there are any."""
        return len(self.hashes) * (EVERY / self.bound)

    def up_to(self, bound: int) -> Sample:
        """Return the hashes that are at most `bound`."""
        count = np.searchsorted(self.hashes, np.uint64(bound), side="right")
        return Sample(self.hashes[:count], min(bound, self.bound))

    def cut(self, count: int) -> Sample:
        """Return the smallest `count` of them."""
        return self if len(self.hashes) <= count else self.up_to(int(self.hashes[count - 1]))

    def joined(self, other: Sample) -> Sample:
        """Return the hashes of both samples together, as far as both are known."""
        return Sample(np.union1d(self.hashes, other.hashes)).up_to(min(self.bound, other.bound))

    def found_in(self, known: Sample) -> tuple[int, int]:
        """Return how many of these hashes could be searched for in `known`, and how many were found."""
        asked = self.up_to(known.bound).hashes
        return len(asked), int(np.isin(asked, known.hashes, assume_unique=True).sum())


@dataclass(frozen=True)
class Sketch:
    """Samples of the hashes of a text's documents, of its short documents, and of its stretches."""

    samples: Mapping[Kind, Sample]
    whole: bool = True  # False where a part of the text is not known

    @classmethod
    def of(cls, texts: Iterable[str], *, lines: bool, count: int = MAX_CACHED) -> Sketch:
        """Read texts once, in memory that does not grow with them.

        Args:
            texts: Documents, one after another; one without a character is not a document.
            lines: True to count each line as a document, too, so that rows are found in a text with one row a line.
            count: Number of hashes of each kind that are kept.
        """
        samplers: dict[Kind, _Sampler] = {kind: _Sampler(count) for kind in LIMITS}
        parts: list[bytes] = []  # whose stretches are hashed together: one by one would take ten times as long
        size = 0
        for text in texts:
            for document in (text, *(text.splitlines() if lines and "\n" in text else ())):
                _add_document(document, samplers)
            for begin in range(0, len(text), BLOCK_BYTES):
                # A stretch over the edge of two blocks stands in the first; no character has less than a byte.
                part = text[begin : begin + BLOCK_BYTES + STRETCH_BYTES - 1].encode("utf-8", "surrogatepass")
                if len(part) >= STRETCH_BYTES:
                    parts.append(part)
                    size += len(part)
                if size >= BLOCK_BYTES:
                    samplers["text"].add(_stretch_hashes(parts))
                    parts, size = [], 0
        samplers["text"].add(_stretch_hashes(parts))
        return cls({kind: sampler.sample() for kind, sampler in samplers.items()})

    def cut(self, count: int) -> Sketch:
        """Return the same with at most `count` hashes of each kind."""
        return replace(self, samples={kind: sample.cut(count) for kind, sample in self.samples.items()})

    def unfinished(self) -> Sketch:
        """Return the same, marked as the sketch of a text that is not known completely."""
        return replace(self, whole=False)

    def joined(self, other: Sketch) -> Sketch:
        """Return the sketch of both texts together."""
        joined: dict[Kind, Sample] = {}
        for kind, sample in self.samples.items():
            joined[kind] = sample.joined(other.samples[kind])
        return Sketch(joined, self.whole and other.whole)

    def save(self, path: Path) -> None:
        """Write the sketch: a head, then for each kind the number of hashes, the bound, and the hashes."""
        numbers = [np.array([2 * FORMAT + self.whole], dtype="<u8")]
        for sample in self.samples.values():
            numbers += [np.array([len(sample.hashes), sample.bound], dtype="<u8"), sample.hashes.astype("<u8")]
        with atomic(path) as file:
            file.write(b"".join(part.tobytes() for part in numbers))

    @classmethod
    def load(cls, path: Path, limit: int = MAX_FILE_BYTES) -> Sketch:
        """Read what `save` wrote, of at most `limit` bytes.

        Raises:
            UserError: It is damaged, too large, or of another version.
            OSError: It is missing, or cannot be read.
        """
        content = read_checked(path, limit)
        samples: dict[Kind, Sample] = {}
        try:
            head, *rest = np.frombuffer(content, dtype="<u8").tolist()
            for kind in LIMITS:
                count, bound, *rest = rest
                samples[kind] = Sample(np.unique(np.array(rest[:count], dtype=np.uint64)), bound)
                rest = rest[count:]
                if len(samples[kind].hashes) != count or not bound or head // 2 != FORMAT:
                    raise ValueError("damaged")
        except ValueError:
            raise UserError(f"{path}: no sketch that this version can read") from None
        return cls(samples, bool(head % 2))


class _Sampler:
    """Collects hashes and keeps the smallest."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._kept = Sample(np.zeros(0, dtype=np.uint64))
        self._new: list[np.ndarray] = []
        self._waiting = 0

    def add(self, hashes: UInt64[np.ndarray, " n"]) -> None:
        """Add hashes."""
        hashes = hashes[hashes <= self._kept.bound]
        self._new.append(hashes)
        self._waiting += len(hashes)
        if self._waiting > 2 * self._count:
            self.sample()

    def sample(self) -> Sample:
        """Return the smallest of all hashes that were added."""
        hashes = np.sort(np.concatenate([self._kept.hashes, *self._new]))  # np.unique takes five times as long
        is_new = np.diff(hashes, prepend=~hashes[:1]) != 0
        self._kept = Sample(hashes[is_new], self._kept.bound).cut(self._count)
        self._new, self._waiting = [], 0
        return self._kept


def _stretch_hashes(parts: Sequence[bytes]) -> UInt64[np.ndarray, " m"]:
    """Return the hash of every stretch: those of 2 bytes, of 4 and so on, each combined from two of half its length."""
    content: UInt8[np.ndarray, " n"] = np.frombuffer(END.join(parts), dtype=np.uint8)
    if not len(content):
        return np.zeros(0, dtype=np.uint64)
    hashes = NUMBERS[content]
    for exponent, factor in enumerate(FACTORS):
        half = 1 << exponent
        hashes = hashes[:-half] * factor + hashes[half:]
    if len(parts) > 1:  # a stretch over the edge of two documents is text of neither
        ends = np.concatenate([[0], np.cumsum(content == END[0])])
        hashes = hashes[ends[STRETCH_BYTES:] == ends[:-STRETCH_BYTES]]
    # The sample goes by size: all bits shall have a say in the upper ones.
    hashes ^= hashes >> np.uint64(32)
    hashes *= np.uint64(FIRST)
    return hashes ^ (hashes >> np.uint64(32))


def _add_document(text: str, samplers: Mapping[Kind, _Sampler]) -> None:
    """Add the hash of a document to the sampler of its length; letter case and white space are ignored."""
    if len(text) > BLOCK_BYTES:  # its stretches tell more: of a whole book a letter may differ
        return
    words = " ".join(text.lower().split())
    if words:
        digest = hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        sampler = samplers["short documents" if len(words) < MIN_CHARACTERS else "documents"]
        sampler.add(np.frombuffer(digest, dtype=">u8").astype(np.uint64))


def sketches(rows: Rows, *, lines: bool = False, cache: Path | None = None) -> list[Sketch]:
    """Return the sketch of each field of a split, from the cache if it is there; `lines` is that of `Sketch.of`."""
    found = []
    for field, column in rows.columns.items():

        def write(folder: Path, field: str = field) -> None:
            Sketch.of((row[field] for row in rows.read()), lines=lines).save(folder / "sketch")

        def read(folder: Path) -> Sketch:
            return Sketch.load(folder / "sketch", MAX_CACHED_BYTES)

        found.append(Store(cache).entry("sketches", f"{column.hash}{' lines' * lines}", write, read))
    return found


def trained_text(rows: Rows, *, cache: Path | None = None) -> Sketch:
    """Return the sketch of a whole split, in which others are searched for."""
    return reduce(Sketch.joined, sketches(rows, lines=True, cache=cache))


def find_leak(fields: Sequence[Sketch], known: Sketch, choose: Callable[..., Leak] = min) -> Leak | None:
    """Return the share of a split that stands in the text of `known`; None if there is too little to tell.

    Args:
        fields: Sketch of each field of the split.
        known: Sketch of the text that is searched.
        choose: `min`: a pair counts if both of its sides stand there; `max`: if one of them does.
    """
    found = list(filter(None, (_field_leak(sketch, known) for sketch in fields)))
    return choose(found, key=_gravity, default=None)


def _field_leak(asked: Sketch, known: Sketch) -> Leak | None:
    """Return the gravest leak of a field."""
    samples, leaks = asked.samples, []
    for kind, sample in samples.items():
        # Short documents among longer ones are headings and the like.
        if kind == "short documents" and sample.size <= samples["documents"].size:
            continue
        count, found = sample.found_in(known.samples[kind])
        # With fewer documents, the share is exact only if all of them were asked.
        if count >= MIN_ASKED or (count and count >= sample.size):
            leaks.append(Leak(found / count, kind, count))
    return max(leaks, key=_gravity, default=None)


def _gravity(leak: Leak) -> tuple[float, int]:
    """Return the sort key of a leak: its share relative to the limit, then the number of hashes asked."""
    return leak.share / LIMITS[leak.kind], leak.asked
