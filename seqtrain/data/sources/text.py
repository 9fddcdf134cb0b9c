"""Local text files: a path, a glob or a folder of txt, jsonl, csv, tsv or parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from seqtrain.data.sources.base import Row, Segment, Source, Split, SplitBy
from seqtrain.data.sources.columns import as_numbers, columns_of
from seqtrain.data.sources.files import TextFile, find
from seqtrain.data.sources.split_files import FileSource, key_of
from seqtrain.errors import UserError
from seqtrain.files.checked import file_hash


@dataclass(kw_only=True, eq=False)
class Text(FileSource):
    """Documents of local files, or rows of text and label; a split without its own file is cut off from train.

    Labels may be stored as text, integers or booleans; for a task that predicts numbers, as numbers or text.

    Attributes:
        format: Format of the files; auto = by their extension.
        column: Column of the text.
        label_column: Column of the label; None: documents have no labels.
        split_by: Unit in which validation and test are cut off: documents, or characters (position).
    """

    format: Literal["auto", "txt", "jsonl", "csv", "tsv", "parquet"] = "auto"
    column: str = "text"
    label_column: str | None = None
    split_by: SplitBy = "document"

    called = "text"
    document = "a txt file, or a row of jsonl, csv, tsv or parquet"

    def __post_init__(self) -> None:
        """Check the options; raise UserError for labels with `split_by="position"`."""
        self._columns = columns_of(self.column, self.label_column, None, None)
        self.fields = tuple(each.field for each in self._columns)
        if self.label_column is not None:  # a txt file has no labels
            self.document = "a row of jsonl, csv, tsv or parquet"
        super().__post_init__()

    def files(self, split: Split) -> list[TextFile]:
        return find(key_of(split), self.paths[split], self.format, self._columns)

    def _cut_by(self) -> SplitBy | Literal["row"]:
        return self.split_by if self.label_column is None else row_cut(self.split_by)

    def expect_numbers(self) -> None:
        self._columns = as_numbers(self._columns)

    def documents(self, split: Split) -> Iterator[str]:
        return self._cut.documents(lambda owner: (row["text"] for row in self._read(owner)), split)

    def segments(self, split: Split) -> Iterator[Segment]:
        return self._cut.segments(lambda owner: chain.from_iterable(map(TextFile.segments, self.files(owner))), split)

    def origins(self, splits: Sequence[Split]) -> dict[str, str]:
        """Return the SHA-256 of each file that the splits are read from, by path."""
        owners: list[Split] = [split if split in self.paths else "train" for split in splits]
        files = chain.from_iterable(map(self.files, dict.fromkeys(owners)))
        return {str(file.path): file_hash(file.path) for file in files}

    def rows(self, split: Split) -> Iterator[Row]:
        if self.fields == ("text",):  # a document, unlike a row with a label, may be cut in two
            return Source.rows(self, split)
        return super().rows(split)

    def idle(self) -> dict[str, str]:
        idle = super().idle()
        if self.formats == {"txt"}:  # in a folder with other formats the option still has an effect
            idle["column"] = "a txt file has no columns"
        return idle


def row_cut(split_by: SplitBy) -> Literal["row"]:
    """Return the cut for rows of several fields; raise UserError for a cut by position."""
    if split_by == "position":
        raise UserError("data.split_by=position: rows with labels cannot be cut in two; use data.split_by=document")
    return "row"
