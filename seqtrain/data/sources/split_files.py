"""Files of rows, grouped by split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from seqtrain.data.sources.base import Cut, Row, Segment, Source, Split, idle_cut
from seqtrain.data.sources.columns import Column
from seqtrain.data.sources.files import Format, find
from seqtrain.errors import UserError, merged
from seqtrain.files.checked import file_hash

CHECKED = 1 << 20  # characters of each file that the preflight reads
REPORTED = 8  # faulty files that the preflight names


class RowFile(Protocol):
    """A file whose rows can be read."""

    @property
    def path(self) -> Path:
        """Path of the file."""
        ...

    @property
    def format(self) -> str:
        """Format of the file."""
        ...

    def rows(self, limit: int | None = None) -> Iterator[Row]:
        """Yield the file's rows; raise UserError for a row that cannot be read, when it is reached."""
        ...


class SplitFiles:
    """Files of each split that has a path of its own."""

    def __init__(
        self, paths: Mapping[Split, str | None], format: Format | Literal["auto"], columns: Sequence[Column]
    ) -> None:
        """Set the paths; raise UserError for an empty path.

        Args:
            paths: Path of each split, or None.
            format: Format of the files; auto = by their extension.
            columns: Columns to read.
        """
        for split, path in paths.items():
            if path == "":  # to `pathlib` the working directory, with all that lies in it
                raise UserError(f"{key_of(split)}=: an empty path; give a file, a glob or a folder")
        self.paths: dict[Split, str] = {split: path for split, path in paths.items() if path}
        self.format: Format | Literal["auto"] = format
        self.columns = columns

    def check(self, cut: Cut) -> None:
        """Read the first part of every file; raise UserError with all faults, or if train cannot be cut."""
        all_faults: list[UserError] = []
        owner: dict[Path, Split] = {}
        for split in self.paths:
            try:
                files = self._files(split)
                faults, count = _check(files)
                all_faults += faults
                all_faults += self._check_belower(split, files, owner)
                if split == "train" and not faults and count is not None:  # a part of train says nothing of its size
                    cut.check(count)
            except UserError as fault:
                all_faults.append(fault)
        if all_faults:
            raise merged(all_faults)

    def rows(self, split: Split) -> Iterator[Row]:
        """Yield the rows of a split that has a path, file after file."""
        for file in self._files(split):
            yield from file.rows()

    def segments(self, split: Split) -> Iterator[Segment]:
        """Yield the text of a split that has a path, file after file; a txt file is read in blocks."""
        for file in find(key_of(split), self.paths[split], self.format, self.columns):
            yield from file.segments()

    def hashes(self, splits: Sequence[Split]) -> dict[str, str]:
        """Return the SHA-256 of each file that the splits are read from; a split without files is read from train's."""
        owners: list[Split] = [split if split in self.paths else "train" for split in splits]
        found = {}
        for owner in dict.fromkeys(owners):
            for file in self._files(owner):
                found[str(file.path)] = file_hash(file.path)
        return found

    def notes(self) -> list[str]:
        """Return lines on how files are read, where that was detected."""
        return []

    def counts(self) -> dict[Split, int]:
        """Return the number of files of each split."""
        return {split: len(self._files(split)) for split in self.paths}

    @property
    def keys(self) -> dict[Split, str]:
        """Option that names the files of each split."""
        return {split: key_of(split) for split in self.paths}

    def formats(self) -> set[str]:
        """Return the formats of all files."""
        formats: set[str] = set()
        for split in self.paths:
            formats.update(file.format for file in self._files(split))
        return formats

    def _files(self, split: Split) -> Sequence[RowFile]:
        return find(key_of(split), self.paths[split], self.format, self.columns)

    def _check_belower(self, split: Split, files: Sequence[RowFile], owner: dict[Path, Split]) -> list[UserError]:
        """Return the error for the first file that an earlier split owns; add the other files to `owner`.

        A model must not be measured on the data it was trained on.

        Args:
            split: The split of the files.
            files: Its files.
            owner: The split that owns each file; updated.
        """
        faults = []
        for file in files:
            path = file.path.resolve()  # two names, or a link, may lead to one file
            first = owner.setdefault(path, split)
            if first != split and not faults:
                faults.append(
                    UserError(
                        f"{self.keys[split]}={self.paths[split]}: {path} is in {self.keys[first]} too; name it once"
                    )
                )
        return faults


class FileSource(Source):
    """A source of local files; a split without a file of its own is cut off from train's."""

    called = ""  # the source in `describe`
    _files: SplitFiles
    _cut: Cut

    def check(self) -> None:
        self._files.check(self._cut)

    def rows(self, split: Split) -> Iterator[Row]:
        return self._cut.rows(self._files.rows, split)

    def has(self, split: Split) -> bool:
        return self._cut.has(split)

    def describe(self) -> dict[str, Any]:
        return {"source": self.called, "paths": self._files.paths, "files": self._files.counts()}

    def notes(self) -> list[str]:
        return self._files.notes()

    def idle(self) -> dict[str, str]:
        return idle_cut(self._files.keys)


def key_of(split: Split, side: Literal["", "source_", "target_"] = "") -> str:
    """Return the option that names a split's files."""
    return f"data.{side}path" if split == "train" else f"data.{split}_{side}path"


def _check(files: Sequence[RowFile]) -> tuple[list[UserError], int | None]:
    """Return the errors in the first part of each file, and the number of rows if all were read."""
    faults: list[UserError] = []
    count, complete = 0, True
    for file in files:
        size = 0
        try:
            for row in file.rows(limit=CHECKED):
                count += 1
                size += sum(map(len, row.values()))
                if size >= CHECKED:
                    complete = complete and file.format == "txt"  # of which the part is the one document
                    break
        except UserError as fault:
            faults.append(fault)
        if len(faults) >= REPORTED:  # of a thousand files that are no text, eight lines say it
            break
    return faults, count if complete else None
