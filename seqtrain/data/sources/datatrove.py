"""Files of datatrove's tokenizer: `NAME.ds` holds ids, `NAME.ds.index` the end of each document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Int

from seqtrain.data.sources.foreign_tokens import ForeignTokens, Layout, plain_file, whole_tokens
from seqtrain.data.token_store.tokens import Part
from seqtrain.errors import UserError
from seqtrain.files.atomic import listed

TYPES = {2: "<u2", 4: "<u4"}  # ids by their bytes


@dataclass(kw_only=True, eq=False)
class Datatrove(ForeignTokens):
    """Every .ds file of a folder, in the order of their names, or a single one.

    The token that ends a document is a token of that document.
    """

    document = "a document of datatrove"
    called = "datatrove"

    def layout(self, path: Path) -> Layout:
        files = [path]
        if path.is_dir():
            files = listed(path, "*.ds")
            if not files:
                raise UserError(f"{path}: no file of this folder ends in .ds; give the folder that datatrove wrote")
        parts = []
        indices = [
            plain_file(Path(f"{file}.index"), "where the documents of datatrove's .ds file end") for file in files
        ]
        for file, index in zip(files, indices, strict=True):
            ends = _ends(index)
            part = _part(plain_file(file, "ids, as datatrove writes them"), int(ends[-1]) if len(ends) else 0)
            parts.append(part)
        return Layout(parts, partial(_documents, parts, indices), [*files, *indices])


def _documents(parts: Sequence[Part], indices: Sequence[Path]) -> Int[np.ndarray, " offsets"]:
    """Return the beginning (offsets,) of each document of all files, and the end of the last one."""
    found = [np.zeros(1, dtype=np.int64)]
    before = 0
    for part, index in zip(parts, indices, strict=True):
        ends = _ends(index).astype(np.int64)
        if (np.diff(ends, prepend=0) < 0).any():
            raise UserError(f"{index}: the ends of its documents do not rise; it is damaged")
        found.append(before + ends)
        before += part.count
    return np.unique(np.concatenate(found))


def _ends(path: Path) -> np.ndarray:
    """Return the number of tokens (n,) up to the end of each document, mapped into memory."""
    size = path.stat().st_size
    if size % 8:
        raise UserError(f"{path}: ends within a number of eight bytes; it is cut off")
    if not size:  # nothing cannot be mapped
        return np.zeros(0, dtype="<u8")
    return np.memmap(path, dtype="<u8", mode="r")


def _part(path: Path, count: int) -> Part:
    """Return the part of a file that has `count` tokens; the bytes of a token follow from the file's size."""
    for width, dtype in TYPES.items():
        if path.stat().st_size == count * width:
            return whole_tokens(path, dtype, count=count)
    raise UserError(
        f"{path}: has {path.stat().st_size:,} bytes, and not {count:,} tokens of two or of four bytes, as its index "
        "says; it is cut off, or the index is of another file"
    )
