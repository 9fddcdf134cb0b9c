"""Sources of local files: each split has its own files, or is cut off from train."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from seqtrain.data.sources.base import Cut, Row, Source, Split, SplitBy, idle_cut
from seqtrain.errors import UserError, merged

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


@dataclass(kw_only=True, eq=False)
class FileSource(Source):
    """A source of local files; a split without its own file is cut off from train.

    Attributes:
        path: Files of train: a file, a glob or a folder.
        validation_path: Files of validation; None: validation is cut off from train.
        test_path: Files of test; None: test is cut off from train.
        validation_fraction: Fraction that is cut off for validation.
        test_fraction: Fraction that is cut off for test.
    """

    path: str
    validation_path: str | None = None
    test_path: str | None = None
    validation_fraction: float = 0.1
    test_fraction: float = 0.0

    called = ""  # the source in `describe`

    def __post_init__(self) -> None:
        """Set paths and cut; raise UserError for an empty path, or for fractions that leave nothing to train on."""
        given = self._given()
        for split, path in given.items():
            if path == "":  # `pathlib` reads it as the working directory
                raise UserError(f"{key_of(split)}=: an empty path; give a file, a glob or a folder")
        self.paths: dict[Split, str] = {split: path for split, path in given.items() if path}
        validation, test = self.validation_fraction, self.test_fraction
        self._cut = Cut(by=self._cut_by(), validation=validation, test=test, given=self.paths)

    @abstractmethod
    def files(self, split: Split) -> Sequence[RowFile]:
        """Return the files of a split that has a path."""

    @property
    def keys(self) -> dict[Split, str]:
        """Option that names the files of each split."""
        return {split: key_of(split) for split in self.paths}

    @property
    def formats(self) -> set[str]:
        """Formats of all files."""
        return {file.format for split in self.paths for file in self.files(split)}

    def check(self) -> None:
        self._check_files(self._cut)

    def rows(self, split: Split) -> Iterator[Row]:
        return self._cut.rows(self._read, split)

    def has(self, split: Split) -> bool:
        return self._cut.has(split)

    def describe(self) -> dict[str, Any]:
        counts = {split: len(self.files(split)) for split in self.paths}
        return {"source": self.called, "paths": self.paths, "files": counts}

    def idle(self) -> dict[str, str]:
        return idle_cut(self.keys)

    def _given(self) -> dict[Split, str | None]:
        """Return the path of each split, or None."""
        return {"train": self.path, "validation": self.validation_path, "test": self.test_path}

    def _cut_by(self) -> SplitBy | Literal["row"]:
        return "row"

    def _read(self, split: Split) -> Iterator[Row]:
        """Yield the rows of a split that has a path, file after file."""
        for file in self.files(split):
            yield from file.rows()

    def _check_files(self, cut: Cut) -> None:
        """Read the first part of every file; raise UserError with all faults, or if train cannot be cut."""
        all_faults: list[UserError] = []
        owner: dict[Path, Split] = {}
        for split in self.paths:
            try:
                files = self.files(split)
                faults, count = _check(files)
                all_faults += faults
                all_faults += self._in_two_splits(split, files, owner)
                if split == "train" and not faults and count is not None:  # None: train was not read completely
                    cut.check(count)
            except UserError as fault:
                all_faults.append(fault)
        if all_faults:
            raise merged(all_faults)

    def _in_two_splits(self, split: Split, files: Sequence[RowFile], owner: dict[Path, Split]) -> list[UserError]:
        """Return the error for the first file that an earlier split owns; add the other files to `owner`.

        A model must not be measured on the data it was trained on.

        Args:
            split: The split of the files.
            files: Its files.
            owner: The split that owns each file; updated.
        """
        faults = []
        for file in files:
            path = file.path.resolve()  # two names or a link may refer to the same file
            first = owner.setdefault(path, split)
            if first != split and not faults:
                faults.append(
                    UserError(
                        f"{self.keys[split]}={self.paths[split]}: {path} is in {self.keys[first]} too; name it once"
                    )
                )
        return faults


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
                    complete = complete and file.format == "txt"  # whose first part counts as its only document
                    break
        except UserError as fault:
            faults.append(fault)
        if len(faults) >= REPORTED:  # eight lines are enough for a thousand binary files
            break
    return faults, count if complete else None
