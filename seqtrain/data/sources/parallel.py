"""Local translation data: two files with aligned lines, or columns of tsv, csv, jsonl and parquet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seqtrain.data.sources.base import SPLITS, Row, Split
from seqtrain.data.sources.columns import columns_of
from seqtrain.data.sources.files import TextFile, find, first_row, lines
from seqtrain.data.sources.opening import Encoding, absent, packed_as
from seqtrain.data.sources.split_files import FileSource, key_of
from seqtrain.errors import UserError
from seqtrain.files.atomic import expanded

Sides = tuple[str | None, str | None]  # the paths of source and target


class LinePair(NamedTuple):
    """Two files with aligned lines; `FileSource` treats them as one file of rows."""

    path: Path
    target: Path
    encoding: Encoding
    format = "lines"

    def rows(self, limit: int | None = None) -> Iterator[Row]:
        """Yield the pairs; raise UserError for a line without a partner or that cannot be read, when it is reached."""
        number = 0
        sides = [lines(file, packed_as(file, self.encoding)) for file in (self.path, self.target)]
        for number, (one, other) in enumerate(zip_longest(*sides), 1):
            if one is None or other is None:
                longer, shorter = (self.target, self.path) if one is None else (self.path, self.target)
                raise UserError(
                    f"{longer}:{number}: has no corresponding line in {shorter}, which has {number - 1} lines; both "
                    "files must have the same number of lines, each the translation of the other's line"
                )
            yield {"source": one, "target": other}
        if not number:
            raise UserError(f"{self.path}: is empty; give a file with a sentence a line, or leave it out")


@dataclass(kw_only=True, eq=False)
class Parallel(FileSource):
    """Pairs of source and target; a split without its own files is cut off from train by row.

    Files are given in one of two ways: as tables of pairs (`path`, `validation_path`, `test_path`), where csv and tsv
    may lack a header; or as two line files per split (`source_path`, `target_path` and so on) with one sentence per
    line. Blank lines are kept, because both sides must have the same number of lines.

    Attributes:
        path: Tables of train, or None.
        source_path: Line file of train's sources, or None.
        target_path: Line file of train's targets, or None.
        validation_source_path: Line file of validation's sources, or None.
        validation_target_path: Line file of validation's targets, or None.
        test_source_path: Line file of test's sources, or None.
        test_target_path: Line file of test's targets, or None.
        format: Format of tables; auto = by their extension.
        encoding: Encoding of the text.
        source_column: Column of sources: a name, or a number from 1 in csv and tsv without a header.
        target_column: Column of targets, in the same form.
    """

    path: str | None = None  # type: ignore[assignment]  # line files have none
    source_path: str | None = None
    target_path: str | None = None
    validation_source_path: str | None = None
    validation_target_path: str | None = None
    test_source_path: str | None = None
    test_target_path: str | None = None
    format: Literal["auto", "jsonl", "csv", "tsv", "parquet"] = "auto"
    encoding: Encoding = "utf-8"
    source_column: str | int = "source"
    target_column: str | int = "target"

    called = "parallel"
    document = "a pair of lines, or a row of jsonl, csv, tsv or parquet"
    fields = ("source", "target")

    def __post_init__(self) -> None:
        """Check the options; raise UserError if both ways of giving files are used, or neither."""
        # Collect all paths first: only together do they show which way is used, and if it is complete.
        self._sides: dict[Split, Sides] = {
            "train": (self.source_path, self.target_path),
            "validation": (self.validation_source_path, self.validation_target_path),
            "test": (self.test_source_path, self.test_target_path),
        }
        _check_ways(super()._given(), self._sides)
        self._targets = {split: target for split, (_, target) in self._sides.items() if target}
        self._columns = columns_of("", None, str(self.source_column), str(self.target_column))
        # Columns given by number mean that there is no header.
        self._is_numbered = isinstance(self.source_column, int) and isinstance(self.target_column, int)
        super().__post_init__()

    def _given(self) -> dict[Split, str | None]:
        if self._targets:
            return {split: source for split, (source, _) in self._sides.items()}
        return super()._given()

    @property
    def keys(self) -> dict[Split, str]:
        return {split: key_of(split, "source_" if self._targets else "") for split in self.paths}

    def describe(self) -> dict[str, Any]:
        if self._targets:
            paths = {split: [path, self._targets[split]] for split, path in self.paths.items()}
            return {"source": "parallel", "paths": paths}
        return super().describe()

    def idle(self) -> dict[str, str]:
        idle = super().idle()
        if self._targets:
            idle |= dict.fromkeys(("format", "source_column", "target_column"), "line files have no columns")
        return idle

    def notes(self) -> list[str]:
        """Return a line for each file that is read without a header."""
        found = []
        for file in chain.from_iterable(map(self.files, self.paths)):
            if isinstance(file, TextFile) and not file.header:
                source, target = (column.name for column in file.columns)
                found.append(f"read {file.path} without a header: source in column {source}, target in column {target}")
        return found

    def files(self, split: Split) -> Sequence[TextFile | LinePair]:
        if self._targets:
            source_key, target_key = key_of(split, "source_"), key_of(split, "target_")
            source = _line_file(source_key, self.paths[split])
            target = _line_file(target_key, self._targets[split])
            if source.samefile(target):  # by another name, or through a link, too
                raise UserError(f"{target_key}={target}: is the same file as {source_key}; give two different files")
            return [LinePair(source, target, self.encoding)]
        return [self._as_found(file) for file in find(key_of(split), self.paths[split], self.format, self._columns)]

    def _as_found(self, file: TextFile) -> TextFile:
        """Return the file with its detected compression, format (a txt may be a tsv) and header."""
        file = file._replace(packed=packed_as(file.path, self.encoding))
        if file.format in ("jsonl", "parquet"):
            return file
        kind = "csv" if file.format == "csv" else "tsv"
        first = first_row(file.path, kind, file.packed)
        if file.format == "txt" and len(first) < 2:
            return file
        file = file._replace(format=kind, header=not self._is_numbered)
        names = [column.name for column in file.columns]
        if self._is_numbered or names != ["source", "target"] or len(first) < 2 or {*names} & {*first}:
            return file
        # Two single words may be names, or a pair such as `Go` and `Geh`.
        if len(first) == 2 and not all(re.fullmatch(r"[\w-]+", cell) for cell in first):
            columns = [column._replace(name=str(place)) for place, column in enumerate(file.columns, 1)]
            return file._replace(columns=columns, header=False)
        shown = ", ".join(f"{cell[:20]!r}" for cell in first[:4])
        raise UserError(
            f"{file.path}: no columns source and target in its first row ({shown}); if the row is a pair, set "
            "data.source_column=1 data.target_column=2 (column numbers); if it is a header, set these to its names"
        )


def _check_ways(tables: Mapping[Split, str | None], sides: Mapping[Split, Sides]) -> None:
    """Raise UserError unless the paths are given in exactly one of the two ways, and completely."""
    by_line: list[Split] = [split for split in SPLITS if sides[split][0] is not None]
    by_row: list[Split] = [split for split in SPLITS if tables[split] is not None]
    halves: list[Split] = [split for split in SPLITS if sides[split].count(None) == 1]
    faults = [f"{key_of(split, 'source_')} and {key_of(split, 'target_')}: give both, or none" for split in halves]
    if faults:
        raise UserError(*faults)
    if by_line and by_row:
        raise UserError(
            f"{key_of(by_row[0])} and {key_of(by_line[0], 'source_')}: give rows with both sides, or line files "
            "for each side, not both"
        )
    if "train" not in by_line + by_row:
        raise UserError("data.path: missing; give rows with both sides, or data.source_path and data.target_path")
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
