"""Documents cut into stretches of at most `size` tokens, found by index without a table of all stretches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from seqtrain.data.cache import Store, durable
from seqtrain.data.token_store.tokens import Pages, map_key, mapped_offsets

SPAN = 64  # documents between two stored counts
SPANS_AT_A_TIME = 1 << 14  # spans counted at a time
FOUND_AT_A_TIME = 1 << 16  # stretches found at a time
TOUCHED_BYTES = 1 << 21  # bytes that Linux may map when one place of a file is read, if the file is in large pages
MAX_HELD = 1 << 20  # maximum number of stretches to keep in memory, where finding them is fastest
MAX_UNKEPT = 1 << 22  # up to this many documents, stretches are counted at every start, in less than 0.1 s


class Found(NamedTuple):
    """Places of stretches in a corpus."""

    begin: Int[np.ndarray, "*shape"]  # index of the first token in the corpus
    count: Int[np.ndarray, "*shape"]  # number of tokens
    document: Int[np.ndarray, "*shape"]  # index of the document


class Stretches:
    """All stretches of a corpus, in order; each has `size` tokens, and the last one of a document may be shorter.

    For many stretches, only the number of stretches before every SPAN documents is stored. If the documents are in a
    memory-mapped file, these numbers are in the cache: computed once, and shared by all processes.
    """

    def __init__(self, documents: Int[np.ndarray, " offsets"], size: int) -> None:
        """Count the stretches. `documents`: the start of each, and the end of the last; `size`: in tokens."""
        self.documents = documents
        self.size = size
        self._offsets = np.asarray(documents)  # the same memory; numpy slices a memmap slowly
        self._pages = Pages(documents)
        self._before = np.asarray(self._counts())
        self._held: Found | None = None  # all stretches, if they are few
        if len(self) <= MAX_HELD:
            self._held = self._find_run(0, len(self))

    def __len__(self) -> int:
        return int(self._before[-1])

    @property
    def key(self) -> str | None:
        """Key of the file that determines the stretches; None for documents in memory."""
        key = map_key(self.documents)
        return None if key is None else f"{key} {self.size}"

    def find(self, index: Int[np.ndarray, "*shape"]) -> Found:
        """Return the stretches with these indices, from 0 to len - 1."""
        if self._held is not None:
            return Found(*(column[index] for column in self._held))
        flat = index.reshape(-1)
        ends = np.append(np.flatnonzero(np.diff(flat) != 1) + 1, flat.size)  # ends of runs of consecutive indices
        if len(ends) * SPAN <= flat.size:
            parts = [self._find_run(int(flat[begin]), int(flat[end - 1]) + 1) for begin, end in pairwise([0, *ends])]
        else:
            edges = range(0, max(flat.size, 1), FOUND_AT_A_TIME)
            parts = [self._find(flat[begin : begin + FOUND_AT_A_TIME]) for begin in edges]
        return Found(*(np.concatenate(column).reshape(index.shape) for column in zip(*parts, strict=True)))

    def _find(self, index: Int[np.ndarray, " k"]) -> Found:
        # All documents of the spans of these stretches, span after span.
        spans = np.unique(np.searchsorted(self._before, index, side="right") - 1)
        places = np.minimum(spans[:, None] * SPAN + np.arange(SPAN + 1), len(self.documents) - 1)
        offsets = self._offsets[places]  # (spans, SPAN + 1)
        self._pages.touch(len(spans) * TOUCHED_BYTES)
        counts = -(-np.diff(offsets) // self.size)
        ends = (self._before[spans, None] + counts.cumsum(1)).reshape(-1)  # ascends, since the spans do
        row = np.searchsorted(ends, index, side="right")
        span, within = np.divmod(row, SPAN)
        begin = offsets[span, within] + (index - ends[row] + counts[span, within]) * self.size
        return Found(begin, np.minimum(self.size, offsets[span, within + 1] - begin), spans[span] * SPAN + within)

    def _find_run(self, first: int, end: int) -> Found:
        """Return the stretches from `first` up to `end`, which are consecutive, as are their documents."""
        after = int(np.searchsorted(self._before, end - 1, side="right"))
        span = int(np.searchsorted(self._before, first, side="right")) - 1
        offsets = self._offsets[span * SPAN : after * SPAN + 1]
        self._pages.touch(offsets.nbytes + TOUCHED_BYTES)
        sizes = np.diff(offsets)
        counts = -(-sizes // self.size)  # stretches of each document
        document = np.repeat(np.arange(span * SPAN, span * SPAN + len(counts)), counts)
        count = np.full(len(document), self.size)
        shorter = counts > 0
        count[counts.cumsum()[shorter] - 1] = (sizes - (counts - 1) * self.size)[shorter]
        begin = offsets[0] + count.cumsum() - count  # one ends where the next begins
        before = int(self._before[span])
        here = slice(first - before, end - before)
        return Found(begin[here], count[here], document[here])

    def _counts(self) -> Int[np.ndarray, " edges"]:
        """Return the number of stretches before each span, and the total (edges,); cached for many documents."""
        if self.key is None or len(self.documents) <= MAX_UNKEPT:
            return np.concatenate([[0], *self._count_spans()]).cumsum()

        def write(folder: Path) -> None:
            before = np.zeros(1, dtype=np.int64)
            with durable(folder / "before.bin") as file:
                for counts in self._count_spans():
                    before = np.concatenate([before[-1:], counts]).cumsum()
                    file.write(before[:-1].astype("<i8").tobytes())
                file.write(before[-1:].astype("<i8").tobytes())

        def read(folder: Path) -> Int[np.ndarray, " edges"]:
            before = mapped_offsets(folder / "before.bin")
            if len(before) != -(-(len(self.documents) - 1) // SPAN) + 1 or int(before[0]) != 0:
                raise ValueError("damaged")
            return before

        return Store().entry("stretches", f"{self.key} {SPAN}", write, read)

    def _count_spans(self) -> Iterator[Int[np.ndarray, " spans"]]:
        """Yield the number of stretches of each span, some spans at a time."""
        num_documents = SPAN * SPANS_AT_A_TIME
        for begin in range(0, len(self.documents) - 1, num_documents):
            offsets = self._offsets[begin : begin + num_documents + 1]
            counts = -(-np.diff(offsets) // self.size)
            yield np.add.reduceat(counts, np.arange(0, len(counts), SPAN))
            self._pages.touch(offsets.nbytes)
