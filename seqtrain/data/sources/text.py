"""Local text files: a path, a glob or a folder of txt, jsonl, csv, tsv or parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from seqtrain.data.sources.base import Cut, Row, Segment, Source, Split, SplitBy
from seqtrain.data.sources.columns import as_numbers, columns_of
from seqtrain.data.sources.split_files import FileSource, SplitFiles
from seqtrain.errors import UserError


class Text(FileSource):
    """Documents of local files, or rows of text and label; a split without a file is cut off from train's."""

    called = "text"
    document = "a txt file, or a row of jsonl, csv, tsv or parquet"

    def __init__(
        self,
        *,
        path: str,
        validation_path: str | None = None,
        test_path: str | None = None,
        format: Literal["auto", "txt", "jsonl", "csv", "tsv", "parquet"] = "auto",
        column: str = "text",
        label_column: str | None = None,
        split_by: SplitBy = "document",
        validation_fraction: float = 0.1,
        test_fraction: float = 0.0,
    ) -> None:
        """Set paths and columns; fractions (of documents or characters, by `split_by`) apply where no path is given.

        Labels may be stored as text, integers or booleans; for a task that predicts numbers, as any numbers or text.
        Raises UserError for labels with `split_by="position"`.
        """
        columns = columns_of(column, label_column, None, None)
        by: SplitBy | Literal["row"] = split_by
        # A txt file has no labels, and a row with its label is one thing.
        if label_column is not None:
            self.document = "a row of jsonl, csv, tsv or parquet"
            by = row_cut(split_by)
        self.fields = tuple(each.field for each in columns)
        self._files = SplitFiles({"train": path, "validation": validation_path, "test": test_path}, format, columns)
        self._cut = Cut(by=by, validation=validation_fraction, test=test_fraction, given=self._files.paths)

    def expect_numbers(self) -> None:
        self._files.columns = as_numbers(self._files.columns)

    def documents(self, split: Split) -> Iterator[str]:
        return self._cut.documents(self._texts, split)

    def segments(self, split: Split) -> Iterator[Segment]:
        return self._cut.segments(self._files.segments, split)

    def origins(self, splits: Sequence[Split]) -> dict[str, str]:
        return self._files.hashes(splits)

    def _texts(self, split: Split) -> Iterator[str]:
        return (row["text"] for row in self._files.rows(split))

    def rows(self, split: Split) -> Iterator[Row]:
        if self.fields == ("text",):  # documents alone may be cut by position, in the middle of one
            return Source.rows(self, split)
        return FileSource.rows(self, split)

    def idle(self) -> dict[str, str]:
        idle = super().idle()
        if self._files.formats() == {"txt"}:  # in a folder of several kinds it still names the column of the others
            idle["column"] = "a txt file has no columns"
        return idle


def row_cut(split_by: SplitBy) -> Literal["row"]:
    """Return the cut for rows of several fields; raise UserError for a cut by position."""
    if split_by == "position":
        raise UserError("data.split_by=position: rows with labels cannot be cut in two; use data.split_by=document")
    return "row"
