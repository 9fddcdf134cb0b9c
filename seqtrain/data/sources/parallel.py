"""Local translation data: two line files side by side, or the columns of tsv, csv, jsonl and parquet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from seqtrain.data.sources.base import SPLITS, Cut, Row, Source, Split, idle_cut
from seqtrain.data.sources.columns import columns_of
from seqtrain.data.sources.files import TextFile, find, first_row, lines
from seqtrain.data.sources.packed import Encoding
from seqtrain.data.sources.split_files import SplitFiles, key_of
from seqtrain.data.sources.unreadable import absent, packed_as, sniff
from seqtrain.errors import UserError, merged
from seqtrain.files.atomic import expanded

Sides = tuple[str | None, str | None]  # the paths of source and target


class PairFiles(SplitFiles):
    """Tables of pairs; csv and tsv may have no header."""

    encoding: Encoding = "utf-8"
    is_numbered = False  # whether columns are called by numbers, so that there is no header

    def notes(self) -> list[str]:
        """Return a line for each file that is read without a header."""
        found = []
        for file in chain.from_iterable(map(self._files, self.paths)):
            if not file.header:
                source, target = (column.name for column in file.columns)
                found.append(f"read {file.path} without a header: source in column {source}, target in column {target}")
        return found

    def _files(self, split: Split) -> list[TextFile]:
        return [self._as_found(file) for file in find(key_of(split), self.paths[split], self.format, self.columns)]

    def _as_found(self, file: TextFile) -> TextFile:
        """Return how a file is read: packed or not, tabs in a txt, and with a header or without one."""
        file = file._replace(packed=packed_as(file.path, self.encoding))
        if file.format in ("jsonl", "parquet"):
            return file
        kind = "csv" if file.format == "csv" else "tsv"
        first = first_row(file.path, kind, file.packed)
        if file.format == "txt" and len(first) < 2:
            return file
        file = file._replace(format=kind, header=not self.is_numbered)
        names = [column.name for column in file.columns]
        if self.is_numbered or names != ["source", "target"] or len(first) < 2 or {*names} & {*first}:
            return file
        # Two single words may be names, or a pair such as `Go` and `Geh`.
        if len(first) == 2 and not all(re.fullmatch(r"[\w-]+", cell) for cell in first):
            columns = [column._replace(name=str(place)) for place, column in enumerate(file.columns, 1)]
            return file._replace(columns=columns, header=False)
        shown = ", ".join(f"{cell[:20]!r}" for cell in first[:4])
        raise UserError(
            f"{file.path}: no columns source and target in its first row ({shown}); if that is a pair, type "
            "data.source_column=1 data.target_column=2 (numbers of columns), if names, type these instead of 1 and 2"
        )


class Parallel(Source):
    """Pairs of source and target; a split without files of its own is cut off from train's by row.

    Line files hold a sentence a line, in UTF-8. Blank lines are kept, because both sides must have equally many lines.
    """

    document = "a pair of lines, or a row of jsonl, csv, tsv or parquet"
    fields = ("source", "target")

    def __init__(
        self,
        *,
        path: str | None = None,
        validation_path: str | None = None,
        test_path: str | None = None,
        source_path: str | None = None,
        target_path: str | None = None,
        validation_source_path: str | None = None,
        validation_target_path: str | None = None,
        test_source_path: str | None = None,
        test_target_path: str | None = None,
        format: Literal["auto", "jsonl", "csv", "tsv", "parquet"] = "auto",
        encoding: Encoding = "utf-8",
        source_column: str | int = "source",
        target_column: str | int = "target",
        validation_fraction: float = 0.1,
        test_fraction: float = 0.0,
    ) -> None:
        """Set either `path` and its like (with `format` and columns), or `source_path`, `target_path` and their like.

        Columns are names, or numbers from 1 in csv and tsv without a header. Fractions are of pairs; a fraction applies
        only where no path is given. Raises UserError if both ways are used, or neither.
        """
        # Both ways side by side: which one it is, and whether it is whole, shows only when all paths are seen.
        tables: dict[Split, str | None] = {"train": path, "validation": validation_path, "test": test_path}
        sides: dict[Split, Sides] = {
            "train": (source_path, target_path),
            "validation": (validation_source_path, validation_target_path),
            "test": (test_source_path, test_target_path),
        }
        _check_ways(tables, sides)
        columns = columns_of("", None, str(source_column), str(target_column))
        self._tables = PairFiles(tables, format, columns)
        self._tables.encoding = encoding
        self._tables.is_numbered = isinstance(source_column, int) and isinstance(target_column, int)
        self._sides: dict[Split, tuple[str, str]] = {}
        for split, (source, target) in sides.items():
            if source and target:
                self._sides[split] = source, target
        # Only one of the two ways has paths.
        given: set[Split] = {*self._tables.paths, *self._sides}
        self._cut = Cut(by="row", validation=validation_fraction, test=test_fraction, given=given)

    def check(self) -> None:
        """Check the files; for line files, count the lines of all and decode the first line of each."""
        if self._tables.paths:  # a row holds both sides: there is nothing to compare
            return self._tables.check(self._cut)
        faults: list[UserError] = []
        for split in self._sides:
            try:
                count = self._count(split)
                next(self._pairs(split))  # a first line that is no text is worth knowing before a training
                if split == "train":
                    self._cut.check(count)
            except UserError as fault:
                faults.append(fault)
        faults += map(UserError, self._owned_twice())
        if faults:
            raise merged(faults)

    def rows(self, split: Split) -> Iterator[Row]:
        return self._cut.rows(self._tables.rows if self._tables.paths else self._pairs, split)

    def has(self, split: Split) -> bool:
        return self._cut.has(split)

    def describe(self) -> dict[str, Any]:
        if self._tables.paths:
            return {"source": "parallel", "paths": self._tables.paths, "files": self._tables.counts()}
        return {"source": "parallel", "paths": {split: list(paths) for split, paths in self._sides.items()}}

    def idle(self) -> dict[str, str]:
        if self._tables.paths:
            return idle_cut(self._tables.keys)
        idle = idle_cut({split: key_of(split, "source_") for split in self._sides})
        return idle | dict.fromkeys(("format", "source_column", "target_column"), "line files have no columns")

    def notes(self) -> list[str]:
        return self._tables.notes()

    def _pairs(self, split: Split) -> Iterator[Row]:
        self._count(split)  # also without a call of `check`: `zip` would raise only at the end, with a poor message
        source, target = self._files(split)
        for one, other in zip(self._lines(source), self._lines(target), strict=True):
            yield {"source": one, "target": other}

    def _count(self, split: Split) -> int:
        """Return the number of pairs of a split; raise UserError unless both sides have equally many lines."""
        files = self._files(split)
        faults = []
        for file in files:
            # First: the number of lines of what is no text would only mislead.
            if kind := sniff(file, packed_as(file, self._tables.encoding)):
                faults.append(f"{file}: {kind}")
        if faults:
            raise UserError(*faults)
        count, other = (sum(1 for _ in self._lines(file)) for file in files)
        source, target = self._sides[split]
        source_key, target_key = key_of(split, "source_"), key_of(split, "target_")
        if count != other:
            longer = source if count > other else target
            raise UserError(
                f"{source_key}={source} has {count} line{'s' * (count != 1)}, {target_key}={target} has {other}, so "
                f"{longer}:{min(count, other) + 1} has no fellow; line by line one must be the translation of the other"
            )
        if files[0].samefile(files[1]):  # by another name, or through a link, too
            raise UserError(
                f"{target_key}={target}: is {source_key} too, so there is nothing to translate; name two files"
            )
        if count == 0:  # of both sides then
            raise UserError(f"{source}: is empty; give a file with a sentence a line, or leave it out")
        return count

    def _lines(self, file: Path) -> Iterator[str]:
        return lines(file, packed_as(file, self._tables.encoding))

    def _files(self, split: Split) -> tuple[Path, Path]:
        source, target = self._sides[split]
        return _line_file(key_of(split, "source_"), source), _line_file(key_of(split, "target_"), target)

    def _owned_twice(self) -> Iterator[str]:
        """Yield an error for each pair of files that is in two splits: a test must not measure what was trained on."""
        owner: dict[tuple[Path, Path], Split] = {}
        for split, (source, target) in self._sides.items():
            # The pair counts, not its files: one source may well be translated into two languages.
            pair = expanded(source).resolve(), expanded(target).resolve()
            first = owner.setdefault(pair, split)
            if first != split:
                yield f"{key_of(split, 'source_')}={source}: is {key_of(first, 'source_')} too; name it once"


def _check_ways(tables: dict[Split, str | None], sides: dict[Split, Sides]) -> None:
    """Raise UserError unless the paths are given in exactly one of the two ways, and completely."""
    faults = []
    by_line: list[Split] = []
    by_row: list[Split] = []
    for split in SPLITS:
        source, target = sides[split]
        if (source is None) != (target is None):
            faults.append(f"{key_of(split, 'source_')} and {key_of(split, 'target_')}: give both, or none")
        if source is not None:
            by_line.append(split)
        if tables[split] is not None:
            by_row.append(split)
    if faults:
        raise UserError(*faults)
    if by_line and by_row:
        raise UserError(
            f"{key_of(by_row[0])} and {key_of(by_line[0], 'source_')}: give rows that hold both sides, or line files "
            "for each side, not both"
        )
    if "train" not in by_line + by_row:
        raise UserError("data.path: missing; give rows that hold both sides, or data.source_path and data.target_path")
    # To `pathlib` an empty path is the working directory.
    if "" in chain.from_iterable(sides.values()):
        raise UserError("data.source_path, data.target_path: an empty path; give a file with a sentence a line")


def _line_file(key: str, path: str) -> Path:
    where = expanded(path)
    if where.is_dir():
        raise UserError(f"{key}={path}: is a folder; give a file with a sentence a line")
    if not where.is_file():
        raise UserError(f"{key}={path}: {absent(where, 'file')}")
    return where
