"""Tokens in files, as one sequence that is read on demand."""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from jaxtyping import Int, Shaped

from seqtrain.errors import UserError

MAX_MAPPED_BYTES = 1 << 26  # maximum bytes that stay mapped after reading, which count as the process's memory
FAULT_BYTES = 1 << 16  # bytes that Linux maps when a page of a file is touched for the first time


class TokenArray(ABC):
    """Token ids (n,), indexed by position, slice or array of positions, like a 1-D numpy array."""

    dtype: np.dtype  # of the arrays that are returned

    @abstractmethod
    def __len__(self) -> int:
        """Return n."""

    @abstractmethod
    def take(self, index: Int[np.ndarray, "*shape"]) -> Shaped[np.ndarray, "*shape"]:
        """Return the tokens at these positions, from 0 to n - 1."""

    @overload
    def __getitem__(self, index: slice) -> Any: ...
    @overload
    def __getitem__(self, index: np.ndarray) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: int) -> Any: ...
    def __getitem__(self, index: Any) -> Any:
        """Return the tokens at a position, slice or array of positions; `[::-1]` returns a view and reads nothing."""
        if isinstance(index, np.ndarray):
            return self.take(index)
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self))
            if index == slice(None, None, -1):
                return Reversed(self)
            return self.between(begin, end) if step == 1 else self.take(np.arange(begin, end, step))
        return self.take(np.array([range(len(self))[index]]))[0]

    def between(self, begin: int, end: int) -> Shaped[np.ndarray, " m"]:
        """Return the tokens (m,) from position `begin` up to `end`."""
        return self.take(np.arange(begin, max(begin, end)))

    def astype(self, dtype: Any) -> np.ndarray:
        """Return all tokens as an array in memory."""
        return self[:].astype(dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return all tokens as an array in memory; numpy calls this for operations that need an array."""
        return self[:] if dtype is None else self.astype(dtype)


class Reversed(TokenArray):
    """Tokens of another sequence in reverse order."""

    def __init__(self, tokens: TokenArray) -> None:
        self._tokens = tokens
        self.dtype = tokens.dtype

    def __len__(self) -> int:
        return len(self._tokens)

    def take(self, index: Int[np.ndarray, "*shape"]) -> Shaped[np.ndarray, "*shape"]:
        return self._tokens.take(len(self) - 1 - index)


class Stretch(TokenArray):
    """Tokens of another sequence in a range of positions."""

    def __init__(self, tokens: TokenArray, begin: int, end: int) -> None:
        self._tokens = tokens
        self._begin = begin
        self._count = end - begin
        self.dtype = tokens.dtype

    def __len__(self) -> int:
        return self._count

    def take(self, index: Int[np.ndarray, "*shape"]) -> Shaped[np.ndarray, "*shape"]:
        return self._tokens.take(index + self._begin)

    def between(self, begin: int, end: int) -> Shaped[np.ndarray, " m"]:
        return self._tokens.between(begin + self._begin, end + self._begin)


class Part(NamedTuple):
    """A range of a file that contains some of the tokens."""

    path: Path
    dtype: str  # as in the file: <u2, <u4 or another type of integers
    offset: int  # bytes before the first token
    count: int


class MappedTokens(TokenArray):
    """Concatenated tokens of several files, which are mapped when they are first read.

    Touched pages of a map count as memory of the process. They are released whenever they may exceed MAX_MAPPED_BYTES,
    but stay in the system's page cache, which shrinks when memory is needed.
    """

    def __init__(self, parts: Sequence[Part], vocab_size: int) -> None:
        """Set the files. `vocab_size`: every id is below it; a file with a larger id is damaged."""
        self.parts = tuple(part for part in parts if part.count)
        self.vocab_size = vocab_size
        self.dtype = np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)
        self._edges = np.cumsum([0, *(part.count for part in self.parts)])
        self._maps: dict[int, tuple[mmap.mmap, np.ndarray]] = {}
        self._touched = 0  # bytes that may have been mapped since the last release

    def __len__(self) -> int:
        return int(self._edges[-1])

    def take(self, index: Int[np.ndarray, "*shape"]) -> Shaped[np.ndarray, "*shape"]:
        # A row of a 2-D index is a run of consecutive tokens; the positions of a 1-D index may be anywhere.
        runs = index.shape[0] if index.ndim > 1 else index.size
        if len(self.parts) == 1:
            self._touch(0, runs * FAULT_BYTES)
            return self._checked(self._mapped(0)[index], 0)
        found = np.empty(index.shape, dtype=self.dtype)
        owner = np.searchsorted(self._edges, index, side="right") - 1
        for number in np.unique(owner).tolist():
            here = owner == number
            self._touch(number, min(int(here.sum()), runs) * FAULT_BYTES)
            found[here] = self._checked(self._mapped(number)[index[here] - self._edges[number]], number)
        return found

    def between(self, begin: int, end: int) -> Shaped[np.ndarray, " m"]:
        found = np.empty(max(end - begin, 0), dtype=self.dtype)
        if not len(found):
            return found
        first, last = np.searchsorted(self._edges, [begin, end - 1], side="right") - 1
        for number in range(int(first), int(last) + 1):
            low, high = int(self._edges[number]), int(self._edges[number + 1])
            here = slice(max(begin, low), min(end, high))
            self._touch(number, FAULT_BYTES + (here.stop - here.start) * self.dtype.itemsize)
            part = self._mapped(number)[here.start - low : here.stop - low]
            found[here.start - begin : here.stop - begin] = self._checked(part, number)
        return found

    def _mapped(self, number: int) -> np.ndarray:
        """Return the tokens of a part with the file's dtype."""
        if number not in self._maps:
            part = self.parts[number]
            with open(part.path, "rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            array = np.frombuffer(content, dtype=part.dtype, count=part.count, offset=part.offset)
            self._maps[number] = content, array
        content, array = self._maps[number]
        if content.size() < len(content):  # reading beyond the file's end would kill the process by SIGBUS
            raise UserError(f"{self.parts[number].path}: was truncated while it was read; restore the whole file")
        return array

    def _touch(self, number: int, num_bytes: int) -> None:
        """Count the bytes that reading from a part may map; release all maps if the total is too large."""
        size = self.parts[number].count * np.dtype(self.parts[number].dtype).itemsize
        self._touched += min(num_bytes, size)
        if self._touched > MAX_MAPPED_BYTES:
            for content, _ in self._maps.values():
                content.madvise(mmap.MADV_DONTNEED)
            self._touched = 0

    def _checked(self, tokens: np.ndarray, number: int) -> np.ndarray:
        """Return the tokens in the sequence's dtype; raise UserError if one is not an id of the vocabulary."""
        # Only the tokens that are read: checking all of them would take a pass over the text.
        if tokens.size and (int(tokens.max()) >= self.vocab_size or int(tokens.min()) < 0):
            wrong = next(token for token in tokens.reshape(-1).tolist() if not 0 <= token < self.vocab_size)
            raise UserError(
                f"{self.parts[number].path}: contains the token {wrong}, but the vocabulary has {self.vocab_size:,}; "
                "the file is damaged, or its tokens are from another tokenizer"
            )
        return tokens.astype(self.dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}}  # maps cannot be pickled; the other process creates its own


class Pages:
    """Releases a mapped file whenever reading it may have mapped MAX_MAPPED_BYTES; ignores an array in memory."""

    def __init__(self, array: Shaped[np.ndarray, "..."]) -> None:
        self._array = array
        self._touched = 0  # bytes that may have been mapped since the last release

    def touch(self, num_bytes: int) -> None:
        """Count the bytes that a read may have mapped."""
        content = self._array.base
        if not isinstance(content, mmap.mmap) or self._array.nbytes <= MAX_MAPPED_BYTES:
            return
        self._touched += num_bytes
        if self._touched > MAX_MAPPED_BYTES:
            content.madvise(mmap.MADV_DONTNEED)
            self._touched = 0


def map_key(array: Shaped[np.ndarray, "..."]) -> str | None:
    """Return a key of the mapped file, which changes when the file is written; None for an array in memory."""
    if not isinstance(array, np.memmap) or array.filename is None or not isinstance(array.base, mmap.mmap):
        return None
    path = Path(array.filename).resolve()
    about = path.stat()
    return f"{path} {about.st_size} {about.st_mtime_ns} {about.st_ino}"


def mapped_offsets(path: Path) -> Int[np.ndarray, " offsets"]:
    """Return the offsets of documents in a file, little-endian int64, as a read-only map."""
    return np.memmap(path, dtype="<i8", mode="r")
