"""Files of rows, by the split that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from seqtrain.data.sources.base import Cut, Row, Split
from seqtrain.data.sources.columns import Column
from seqtrain.data.sources.files import Format, TextFile, find
from seqtrain.errors import UserError, merged

CHECKED = 1 << 20  # characters of each file that the preflight reads
REPORTED = 8  # faulty files that the preflight names


class SplitFiles:
    """The files of each split that has a path of its own, and how to read them."""

    def __init__(
        self, paths: Mapping[Split, str | None], format: Format | Literal["auto"], columns: Sequence[Column]
    ) -> None:
        """Raises UserError for an empty path."""
        for split, path in paths.items():
            if path == "":
                raise UserError(f"{key_of(split)}=: an empty path; give a file, a glob or a folder")
        self.paths: dict[Split, str] = {split: path for split, path in paths.items() if path}
        self.format: Format | Literal["auto"] = format
        self.columns = columns

    def check(self, cut: Cut) -> None:
        """Reads the first part of every file; raises UserError with all that is wrong, or if train cannot be cut."""
        found: list[UserError] = []
        owner: dict[Path, Split] = {}
        for split in self.paths:
            try:
                files = self._files(split)
                faults, count = _check(files)
                found += faults
                found += self._shared(split, files, owner)
                if split == "train" and not faults and count is not None:
                    cut.check(count)
            except UserError as fault:
                found.append(fault)
        if found:
            raise merged(found)

    def rows(self, split: Split) -> Iterator[Row]:
        """The rows of a split that has a path, file after file."""
        for file in self._files(split):
            yield from file.rows()

    def counts(self) -> dict[Split, int]:
        """How many files each split has."""
        return {split: len(self._files(split)) for split in self.paths}

    def formats(self) -> set[Format]:
        """The formats of all files."""
        return {file.format for split in self.paths for file in self._files(split)}

    def _files(self, split: Split) -> list[TextFile]:
        return find(key_of(split), self.paths[split], self.format, self.columns)

    def _shared(self, split: Split, files: list[TextFile], owner: dict[Path, Split]) -> list[UserError]:
        """Files that an earlier split owns already: a model must not be measured on what it was trained on."""
        places = [file.path.resolve() for file in files]
        shared = [path for path in places if path in owner][:1]
        owner |= {path: split for path in places if path not in owner}
        return [
            UserError(f"{key_of(split)}={self.paths[split]}: {path} is in {key_of(owner[path])} too; name it once")
            for path in shared
        ]


def key_of(split: Split, side: Literal["", "source_", "target_"] = "") -> str:
    """The option that names a split's files."""
    return f"data.{side}path" if split == "train" else f"data.{split}_{side}path"


def _check(files: list[TextFile]) -> tuple[list[UserError], int | None]:
    """What is wrong with the first part of each file, and the number of rows if all were seen."""
    found: list[UserError] = []
    count, complete = 0, True
    for file in files:
        size = 0
        try:
            for row in file.rows(limit=CHECKED):
                count += 1
                size += sum(map(len, row.values()))
                if size >= CHECKED:
                    complete = complete and file.format == "txt"
                    break
        except UserError as fault:
            found.append(fault)
        if len(found) >= REPORTED:
            break
    return found, count if complete else None
