"""A sketch of text: a bounded sample of the hashes of its documents and stretches.

Copies are found in it whole or shifted: every stretch of 128 bytes has a hash, at any offset. The hashes themselves
decide which are kept (bottom-k sampling, Cohen and Kaplan 2007), so equal texts keep equal ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8, UInt64

from seqtrain.data.batching.splitmix64 import FIRST, mixed
from seqtrain.errors import UserError
from seqtrain.files.atomic import atomic
from seqtrain.files.checked import read_checked

MIN_CHARACTERS = 32  # of a document that is not short: short ones recur by themselves, as `good` among reviews
STRETCH_BYTES = 128  # some 20 words: boilerplate and quotations apart, so many words are hardly written twice
MAX_CACHED, MAX_KEPT = 1 << 16, 1 << 13  # hashes of each kind, in the cache and in a run's directory
MAX_FILE_BYTES = 8 * (1 + 3 * (2 + MAX_KEPT))
BLOCK_BYTES = 1 << 15  # that are hashed together: what fits into the processor's cache takes a third of the time
FORMAT = 1  # of the file; the number after next says that all ancestors are in it
EVERY = 2**64 - 1  # the bound of a sample that holds all there are
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

    def cut(self, count: int) -> Sample:
        """Return the smallest `count` of them."""
        if len(self.hashes) <= count:
            return self
        return Sample(self.hashes[:count], int(self.hashes[count - 1]))

    def joined(self, other: Sample) -> Sample:
        """Return the hashes of both samples together, as far as both are known."""
        bound = min(self.bound, other.bound)
        return Sample(_up_to(np.union1d(self.hashes, other.hashes), bound), bound)

    def found_in(self, known: Sample) -> tuple[int, int]:
        """Return how many of these hashes could be searched for in `known`, and how many were found."""
        bound = min(self.bound, known.bound)
        asked = _up_to(self.hashes, bound)
        return len(asked), int(np.isin(asked, known.hashes, assume_unique=True).sum())


@dataclass(frozen=True)
class Sketch:
    """Samples of the hashes of a text's documents, of its short documents, and of its stretches."""

    documents: Sample
    short: Sample
    stretches: Sample
    whole: bool = True  # False where a part of the text is not known

    @classmethod
    def of(cls, texts: Iterable[str], *, lines: bool, count: int = MAX_CACHED) -> Sketch:
        """Read texts once, in memory that does not grow with them.

        Args:
            texts: Documents, one after another; one without a character is not a document.
            lines: True to count each line as a document, too, so that rows are found in a text with one row a line.
            count: Number of hashes of each kind that are kept.
        """
        documents, short, stretches = _Sampler(count), _Sampler(count), _Sampler(count)
        blocks = _Blocks(stretches)
        for text in texts:
            blocks.add(text)
            _add_document(text, documents, short)
            if lines and "\n" in text:
                for line in text.splitlines():
                    _add_document(line, documents, short)
        blocks.flush()
        return cls(documents.sample(), short.sample(), stretches.sample())

    def cut(self, count: int) -> Sketch:
        """Return the same with at most `count` hashes of each kind."""
        return Sketch(self.documents.cut(count), self.short.cut(count), self.stretches.cut(count), self.whole)

    def unfinished(self) -> Sketch:
        """Return the same, marked as the sketch of a text that is not known completely."""
        return Sketch(self.documents, self.short, self.stretches, whole=False)

    def joined(self, other: Sketch) -> Sketch:
        """Return the sketch of both texts together."""
        return Sketch(
            self.documents.joined(other.documents),
            self.short.joined(other.short),
            self.stretches.joined(other.stretches),
            self.whole and other.whole,
        )

    def save(self, path: Path) -> None:
        """Write the sketch: a head, then for each kind the number of hashes, the bound, and the hashes."""
        numbers = [np.array([2 * FORMAT + self.whole], dtype="<u8")]
        for sample in (self.documents, self.short, self.stretches):
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
        numbers = np.frombuffer(content[: len(content) // 8 * 8], dtype="<u8")
        damaged = UserError(f"{path}: no sketch that this version can read")
        if len(content) % 8 or not len(numbers) or int(numbers[0]) // 2 != FORMAT:
            raise damaged
        samples, place = [], 1
        for _ in range(3):
            head = numbers[place : place + 2].tolist()
            if len(head) < 2 or not head[1]:
                raise damaged
            place += 2 + head[0]
            hashes = numbers[place - head[0] : place].astype(np.uint64)
            if len(hashes) != head[0] or (hashes[1:] <= hashes[:-1]).any():
                raise damaged
            samples.append(Sample(hashes, head[1]))
        return cls(*samples, whole=bool(numbers[0] % 2))


class _Sampler:
    """Collects hashes and keeps the smallest."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._kept = Sample(np.zeros(0, dtype=np.uint64))
        self._new: list[np.ndarray] = []
        self._one_by_one: list[int] = []
        self._waiting = 0

    def add(self, hashes: UInt64[np.ndarray, " n"]) -> None:
        """Add many hashes."""
        if self._kept.bound != EVERY:
            hashes = hashes[hashes <= self._kept.bound]
        self._new.append(hashes)
        self._waiting += len(hashes)
        if self._waiting > 2 * self._count:
            self._merge()

    def add_one(self, value: int) -> None:
        """Add one hash."""
        if value <= self._kept.bound:
            self._one_by_one.append(value)
            if len(self._one_by_one) > self._count:
                self._merge()

    def sample(self) -> Sample:
        """Return the smallest of all hashes that were added."""
        self._merge()
        return self._kept

    def _merge(self) -> None:
        several = [self._kept.hashes, np.array(self._one_by_one, dtype=np.uint64), *self._new]
        hashes = np.sort(np.concatenate(several))  # np.unique would put a million of them into a table of its own
        hashes = hashes[np.concatenate([np.ones(min(len(hashes), 1), dtype=bool), hashes[1:] != hashes[:-1]])]
        self._kept = Sample(_up_to(hashes, self._kept.bound), self._kept.bound).cut(self._count)
        self._new, self._one_by_one, self._waiting = [], [], 0


class _Blocks:
    """Hashes the stretches of documents, many at a time: one by one, short documents would take ten times as long."""

    def __init__(self, sampler: _Sampler) -> None:
        self._sampler = sampler
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, text: str) -> None:
        """Add a document."""
        if 4 * len(text) < STRETCH_BYTES:  # no character has more bytes
            return
        before = b""
        for begin in range(0, len(text), BLOCK_BYTES):
            # The beginning of a stretch over the edge of two blocks stands in both.
            part = before + text[begin : begin + BLOCK_BYTES].encode("utf-8", "surrogatepass")
            before = part[1 - STRETCH_BYTES :]
            if len(part) >= STRETCH_BYTES:
                self._parts.append(part)
                self._size += len(part)
            if self._size >= BLOCK_BYTES:
                self.flush()

    def flush(self) -> None:
        """Hash the documents that were added."""
        if not self._parts:
            return
        hashes = _stretch_hashes(np.frombuffer(b"".join(self._parts), dtype=np.uint8))
        if len(self._parts) > 1:  # a stretch over the edge of two documents is text of neither
            owner = np.repeat(np.arange(len(self._parts)), [len(part) for part in self._parts])
            hashes = hashes[owner[: len(hashes)] == owner[STRETCH_BYTES - 1 :]]
        self._sampler.add(hashes)
        self._parts, self._size = [], 0


def _stretch_hashes(content: UInt8[np.ndarray, " n"]) -> UInt64[np.ndarray, " m"]:
    """Return the hash of every stretch: those of 2 bytes, of 4 and so on, each combined from two of half its length."""
    hashes = NUMBERS[content]
    for exponent, factor in enumerate(FACTORS):
        half = 1 << exponent
        hashes = hashes[:-half] * factor + hashes[half:]
    # The sample goes by size: all bits shall have a say in the upper ones.
    hashes ^= hashes >> np.uint64(32)
    hashes *= np.uint64(FIRST)
    return hashes ^ (hashes >> np.uint64(32))


def _add_document(text: str, documents: _Sampler, short: _Sampler) -> None:
    """Add the hash of a document to the sampler of its length; letter case and white space are ignored."""
    if len(text) > BLOCK_BYTES:  # its stretches tell more: of a whole book a letter may differ
        return
    words = " ".join(text.lower().split())
    if words:
        digest = hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=8)
        sampler = short if len(words) < MIN_CHARACTERS else documents
        sampler.add_one(int.from_bytes(digest.digest()))


def _up_to(hashes: UInt64[np.ndarray, " n"], bound: int) -> UInt64[np.ndarray, " m"]:
    """Return the ordered hashes that are at most `bound`."""
    return hashes[: np.searchsorted(hashes, np.uint64(bound), side="right")]
