"""Local text files: a path, a glob or a folder of txt, jsonl, csv, tsv or parquet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from seqtrain.data.files import Format, TextFile, find
from seqtrain.data.source import Cut, Source, Split, SplitBy
from seqtrain.faults import Fault

CHECKED = 1 << 20  # characters of each file that the preflight reads
REPORTED = 8  # faulty files that the preflight names


class Text(Source):
    """Documents of local files; validation and test have files of their own, or are cut off from train's."""

    document = "a txt file, or a row of jsonl, csv, tsv or parquet"

    def __init__(
        self,
        *,
        path: str,
        validation_path: str | None = None,
        test_path: str | None = None,
        format: Literal["auto", "txt", "jsonl", "csv", "tsv", "parquet"] = "auto",
        column: str = "text",
        split_by: SplitBy = "document",
        validation_fraction: float = 0.1,
        test_fraction: float = 0.0,
    ) -> None:
        """Fractions are of documents or of characters, by `split_by`, and count where no path is given."""
        for name, value in (("path", path), ("validation_path", validation_path), ("test_path", test_path)):
            if value == "":
                raise Fault(f"data.{name}=: an empty path; give a file, a glob or a folder")
        self.paths: dict[Split, str | None] = {"train": path, "validation": validation_path, "test": test_path}
        self.format: Format | Literal["auto"] = format
        self.column = column
        self._cut = Cut(
            by=split_by,
            validation=0.0 if validation_path else validation_fraction,
            test=0.0 if test_path else test_fraction,
        )

    def check(self) -> None:
        lines: list[str] = []
        owner: dict[Path, Split] = {}
        for split in self._given():
            try:
                files = self._files(split)
                faults, count = _check(files)
                lines += faults
                lines += self._shared(split, files, owner)
                if split == "train" and not faults and count is not None:
                    self._cut.check(count)
            except Fault as fault:
                lines += fault.lines
        if lines:
            raise Fault(*lines)

    def _shared(self, split: Split, files: list[TextFile], owner: dict[Path, Split]) -> list[str]:
        """Files that an earlier split owns already: a model must not be measured on what it was trained on."""
        places = [file.path.resolve() for file in files]
        shared = [path for path in places if path in owner][:1]
        owner |= {path: split for path in places if path not in owner}
        return [
            f"{_key(split)}={self.paths[split]}: {path} is in {_key(owner[path])} too; name it once" for path in shared
        ]

    def documents(self, split: Split) -> Iterator[str]:
        if self.paths[split] and split != "train":
            return self._read(split)
        return self._cut.documents(lambda: self._read("train"), split)

    def has(self, split: Split) -> bool:
        return bool(self.paths[split]) or self._cut.has(split)

    def describe(self) -> dict[str, Any]:
        return {
            "source": "text",
            "paths": {split: path for split, path in self.paths.items() if path},
            "files": {split: len(self._files(split)) for split in self._given()},
        }

    def _given(self) -> list[Split]:
        return [split for split, path in self.paths.items() if path]

    def _files(self, split: Split) -> list[TextFile]:
        return find(_key(split), self.paths[split] or "", self.format, self.column)

    def _read(self, split: Split) -> Iterator[str]:
        for file in self._files(split):
            yield from file.documents()


def _key(split: Split) -> str:
    """The option that names a split's files."""
    return "data.path" if split == "train" else f"data.{split}_path"


def _check(files: list[TextFile]) -> tuple[list[str], int | None]:
    """What is wrong with the first part of each file, and the number of documents if all were seen."""
    lines: list[str] = []
    count, complete = 0, True
    for file in files:
        size = 0
        try:
            for text in file.documents(limit=CHECKED):
                count += 1
                size += len(text)
                if size >= CHECKED:
                    complete = complete and file.format == "txt"
                    break
        except Fault as fault:
            lines += fault.lines
        if len(lines) >= REPORTED:
            break
    return lines, count if complete else None
