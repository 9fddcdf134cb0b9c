"""The indexed data sets of Megatron-LM: `NAME.bin` holds ids, `NAME.idx` where sequences and documents begin."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from seqtrain.data.sources.foreign_tokens import ForeignTokens, Layout, plain_file, whole_tokens
from seqtrain.errors import UserError

HEADER = struct.Struct("<9sQBQQ")  # mark, version, type of ids, sequences, entries of the list of documents
MARK, VERSION = b"MMIDIDX\x00\x00", 1
TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
"""The types of ids by the number that stands for them; those of real numbers are no tokens."""


class Megatron(ForeignTokens):
    """Pairs of a .bin and an .idx file, named by either of them or by what they have in common."""

    document = "a document of the index"
    called = "megatron"

    def __init__(
        self,
        *,
        path: str,
        validation_path: str | None = None,
        test_path: str | None = None,
        validation_fraction: float = 0.1,
        tokenizer: str | None = None,
        vocab_size: int | None = None,
    ) -> None:
        """As `ForeignTokens`; the index tells where documents end."""
        super().__init__(
            path=path,
            validation_path=validation_path,
            test_path=test_path,
            validation_fraction=validation_fraction,
            tokenizer=tokenizer,
            vocab_size=vocab_size,
            end_of_text=None,
        )

    def layout(self, path: Path) -> Layout:
        name = str(path)
        for ending in (".bin", ".idx"):
            name = name.removesuffix(ending)
        index = plain_file(Path(f"{name}.idx"), "the index of Megatron's NAME.bin")
        content = plain_file(Path(f"{name}.bin"), "the ids of Megatron's NAME.idx")
        found = _open_index(index)
        part = whole_tokens(content, found.dtype, count=found.num_tokens)
        return Layout([part], found.documents, [content, index])


class Index(NamedTuple):
    """An .idx file, mapped into memory."""

    path: Path
    dtype: str  # of the ids
    sizes: np.ndarray  # (n,) tokens of each sequence
    begins: np.ndarray  # (n,) bytes before each sequence
    firsts: np.ndarray  # (m,) the sequence with which each document begins, and their number

    @property
    def width(self) -> int:
        """Bytes of an id."""
        return np.dtype(self.dtype).itemsize

    @property
    def num_tokens(self) -> int:
        """By the last sequence alone."""
        return int(self.begins[-1]) // self.width + int(self.sizes[-1]) if len(self.sizes) else 0

    def documents(self) -> Int[np.ndarray, " offsets"]:
        """Where documents begin, and the end of the last one; UserError where sequences do not follow each other."""
        edges = np.concatenate([[0], np.cumsum(self.sizes, dtype=np.int64)])
        if (self.sizes < 0).any() or not np.array_equal(edges[:-1] * self.width, self.begins):
            raise UserError(f"{self.path}: its sequences do not stand one behind the other; write the data set again")
        if ((self.firsts < 0) | (self.firsts > len(self.sizes))).any():
            raise UserError(f"{self.path}: names sequences that it does not have; it is damaged")
        if (np.diff(self.firsts) < 0).any():
            raise UserError(f"{self.path}: its documents do not stand one behind the other; write the data set again")
        # The tokens begin and end somewhere, whatever belongs to a document.
        return np.unique(np.concatenate([edges[self.firsts], edges[[0, -1]]]))


def _open_index(path: Path) -> Index:
    """An index whose size is right; UserError for any other file."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(HEADER.size)
    if len(head) < HEADER.size or not head.startswith(MARK):
        raise UserError(f"{path}: is no index of Megatron-LM (it does not begin with MMIDIDX)")
    _, version, code, count, num_firsts = HEADER.unpack(head)
    if version != VERSION or code not in TYPES:
        raise UserError(
            f"{path}: version {version} with ids of type {code}: only version {VERSION} of integers is known"
        )
    # Of each sequence its length and where it begins; of each document a sequence. Modes of other media may follow.
    least = HEADER.size + count * (4 + 8) + num_firsts * 8
    if size not in (least, least + count):
        raise UserError(f"{path}: has {size:,} bytes, and {least:,} belong to what its head says; it is cut off")
    return Index(
        path,
        TYPES[code],
        _mapped(path, "<i4", HEADER.size, count),
        _mapped(path, "<i8", HEADER.size + count * 4, count),
        _mapped(path, "<i8", HEADER.size + count * 12, num_firsts),
    )


def _mapped(path: Path, dtype: str, offset: int, count: int) -> np.ndarray:
    if not count:  # nothing cannot be mapped
        return np.zeros(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=(count,))
