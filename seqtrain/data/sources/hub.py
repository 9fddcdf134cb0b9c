"""Data sets of the Hugging Face hub, folders in the hub's layout, and `save_to_disk` copies, through `datasets`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from seqtrain.data.sources.base import Cut, Row, Segment, Source, Split, SplitBy, idle_cut
from seqtrain.data.sources.columns import Column, as_numbers, columns_of, missing, value_of
from seqtrain.data.sources.files import natural_order
from seqtrain.data.sources.hub_files import check_below, check_metadata, errors_in_one_line, reachable, wants_offline
from seqtrain.data.sources.text import row_cut
from seqtrain.errors import Unavailable, UserError
from seqtrain.files.atomic import expanded

if TYPE_CHECKING:  # `datasets` takes seconds to import: each method that needs it imports it
    from datasets import Dataset, DatasetBuilder
    from pyarrow import Table


class Hub(Source):
    """Rows of a data set's splits; a split without a name is cut off from train."""

    def __init__(
        self,
        *,
        path: str,
        name: str | None = None,
        revision: str | None = None,
        column: str = "text",
        label_column: str | None = None,
        source_column: str | None = None,
        target_column: str | None = None,
        train_split: str = "train",
        validation_split: str | None = "validation",
        test_split: str | None = "test",
        document: Literal["row", "split"] = "row",
        split_by: SplitBy = "document",
        validation_fraction: float = 0.1,
        test_fraction: float = 0.0,
    ) -> None:
        """Set the data set. `path`: a hub name, or a local folder.

        `document="split"` joins the rows of a split by line ends.

        With `label_column` a row is text and label, with `source_column` and `target_column` it is a pair; a dotted
        name reaches into a nested column (`translation.en`). Fractions are of documents, of rows or of characters, as
        `split_by` says; a fraction applies only where no split is named.
        """
        if path == "":
            raise UserError("data.path=: an empty path; give a data set of the hub, or a local folder")
        self.path = path
        self.name = name
        self.revision = revision
        self._columns = columns_of(column, label_column, source_column, target_column)
        self.fields = tuple(each.field for each in self._columns)
        # By the names that the data set gives them; None where a split is cut off, or not wanted.
        self.splits: dict[Split, str | None] = {
            "train": train_split,
            "validation": validation_split,
            "test": test_split,
        }
        self.document = "a row"
        self.join = document == "split"
        if self.join:
            self.document = "all rows of a split"
        by: SplitBy | Literal["row"] = split_by
        if self.fields != ("text",):
            if self.join:
                raise UserError("data.document=split: rows of several columns cannot be joined; use data.document=row")
            by = row_cut(split_by)
        given: list[Split] = [split for split, name in self.splits.items() if name]
        self._cut = Cut(by=by, validation=validation_fraction, test=test_fraction, given=given)

    def expect_numbers(self) -> None:
        self._columns = as_numbers(self._columns)

    def check(self) -> None:
        """Check the splits and columns without a download: a hub data set is checked against the hub's metadata only.

        A test split that is named but missing raises only when it is read, because training never reads it.
        """
        named: list[Split] = [split for split in ("train", "validation") if self.splits[split]]
        if self.needs_download:
            info = self._builder.info  # a hub data set need not say either
            if info.splits:
                for split in named:
                    self._check_split(split, list(info.splits))
            if info.features:
                self._check_columns(info.features)
            return
        # The first row is read if the data set is on this disk or in the cache, which costs no download.
        for split in named:
            next(self._read(split), None)
        if self.join:  # a split is one document then, which no number of rows makes two
            self._cut.check(1)

    def documents(self, split: Split) -> Iterator[str]:
        if "text" not in self.fields:
            return super().documents(split)
        return self._cut.documents(self._texts, split)

    def segments(self, split: Split) -> Iterator[Segment]:
        if not self.join:
            return (Segment(text, True) for text in self.documents(split))
        return self._cut.segments(self._lines, split)

    def rows(self, split: Split) -> Iterator[Row]:
        if self.fields == ("text",):
            return super().rows(split)
        return self._cut.rows(self._read, split)

    def has(self, split: Split) -> bool:
        """Return True if the split is named or cut off; a split that the data set lacks raises when it is read."""
        return self._cut.has(split)

    def describe(self) -> dict[str, Any]:
        described = {"source": "hub", "path": self.path, "name": self.name, "revision": self.revision}
        version = None if self._is_saved_copy else self._builder.hash  # a copy does not say of which version it is
        return described | {"version": version, "splits": self.splits}

    def idle(self) -> dict[str, str]:
        idle = idle_cut({split: f"data.{split}_split={name}" for split, name in self.splits.items() if name})
        if "text" not in self.fields:
            idle["column"] = "a row is a pair of data.source_column and data.target_column"
        if self._folder is not None:
            idle["revision"] = "a local folder has no revisions"
        if self._is_saved_copy:
            idle["name"] = "a save_to_disk copy is of one configuration"
        return idle

    @property
    def needs_download(self) -> bool:
        """True if the data set is on the hub, and the hub can be reached."""
        return self._folder is None and self._online

    def dataset(self, split: Split) -> Dataset:
        """Return a split as `datasets` holds it; raise UserError if none has that name."""
        self._check_split(split, list(self._data))
        return self._data[str(self.splits[split])]

    def check_order(self) -> None:
        """Raise UserError if files of train are read in another order than that of the numbers in their names."""
        files = {} if self._is_saved_copy else self._builder.config.data_files or {}
        own = {str(split): map(Path, paths) for split, paths in files.items()}.get(str(self.splits["train"]), ())
        for one, other in pairwise(own):
            if natural_order(one) > natural_order(other):
                raise UserError(
                    f"data.path={self.path}: {one.name} is read before {other.name}, in the order of letters; rename "
                    "these files with leading zeros, or join them"
                )

    def _texts(self, split: Split) -> Iterator[str]:
        texts = (row["text"] for row in self._read(split))
        if not self.join:
            return texts
        # A row of a line-based corpus may or may not hold its line end.
        return iter(["".join(text.rstrip("\n") + "\n" for text in texts)])

    def _lines(self, split: Split) -> Iterator[Segment]:
        """Yield all rows of a split as one document, a row at a time."""
        for row in self._read(split):
            yield Segment(row["text"].rstrip("\n") + "\n", False)
        yield Segment("", True)

    def _read(self, split: Split) -> Iterator[Row]:
        data = self.dataset(split)
        self._check_columns(data.features)
        features = _flat(data.features)
        paths = [_path(data.features, column.name) for column in self._columns]
        number = 0
        # A nested column comes with the whole that it is in: source and target of one are read once.
        for batch in self._batches(data, sorted({path[0] for path in paths})):
            for stored in zip(*[batch[path[0]] for path in paths], strict=True):
                number += 1
                place = f"data.path={self.path}: {self.splits[split]} row {number}"
                row = {}
                for column, path, value in zip(self._columns, paths, stored, strict=True):
                    row[column.field] = _value(place, column, value, path, features[column.name])
                yield row
        if number == 0:
            raise UserError(f"data.{split}_split={self.splits[split]}: holds no rows in {self.path}")

    def _batches(self, data: Dataset, names: list[str]) -> Iterator[dict[str, list]]:
        """Yield columns in batches as they are stored: pictures and sounds, which may be any URL, stay unopened."""
        with errors_in_one_line(f"data.path={self.path}"):
            for batch in data.select_columns(names).with_format("arrow").iter(batch_size=1024):
                yield cast("Table", batch).to_pydict()

    def _check_split(self, split: Split, known: list[str]) -> None:
        if self.splits[split] in known:
            return
        fault = f"data.{split}_split={self.splits[split]}: {self.path} has {', '.join(known)}"
        if split != "train":
            fault += f"; or use data.{split}_split=null, which cuts {split} off from train"
        raise UserError(fault)

    def _check_columns(self, features: Any) -> None:
        known = _flat(features)
        faults = []
        for column in self._columns:
            if column.name not in known:
                faults.append(missing(self.path, column, known))
                continue
            kind = getattr(known[column.name], "dtype", "nested values")  # a list of features has none
            if not _can_be_read(column, kind):
                faults.append(
                    f"{column.option}={column.name}: holds {kind}, not {column.storage}; "
                    f"set {column.option} to a column of {column.storage}"
                )
        if faults:
            raise UserError(*faults)

    @cached_property
    def _folder(self) -> Path | None:
        """Local folder at `path`, or None for a name on the hub."""
        path = expanded(self.path)
        if path.is_dir():
            check_metadata(self.path, path)
            return path
        if path.is_file():
            raise UserError(f"data.path={self.path}: is a file; use data=text data.path={self.path}")
        # The hub names a data set by one word, or by its owner and one word.
        if self.path.startswith(("/", ".", "~")) or self.path.count("/") > 1:
            raise Unavailable(f"data.path={self.path}: no such folder")
        return None

    @cached_property
    def _is_saved_copy(self) -> bool:
        """True if `path` is a save_to_disk copy, of several splits or of one."""
        marks = ("dataset_dict.json", "state.json")
        return self._folder is not None and any((self._folder / mark).is_file() for mark in marks)

    @cached_property
    def _online(self) -> bool:
        from datasets import config

        return not wants_offline() and reachable(config.HF_ENDPOINT)

    @cached_property
    def _data(self) -> dict[str, Dataset]:
        """All splits by name."""
        from datasets import Dataset, load_from_disk

        with errors_in_one_line(f"data.path={self.path}"):
            if self._is_saved_copy:
                data = load_from_disk(str(self._folder))
            else:
                self._builder.download_and_prepare()
                data = self._builder.as_dataset()
        if isinstance(data, Dataset):  # a copy of one split has no name for it
            return {"train": data}
        return {str(name): split for name, split in data.items()}

    @cached_property
    def _builder(self) -> DatasetBuilder:
        """Builder with the data set's splits and version; from the cache if the hub cannot be reached."""
        from datasets import config, load_dataset_builder

        _quiet()
        place, path, revision = f"data.path={self.path}", self.path, self.revision
        if self.name:
            place += f" data.name={self.name}"
        if self._folder is None:
            config.HF_HUB_OFFLINE = not self._online  # or `datasets` tries for half a minute before it looks there
        else:
            path = str(self._folder.absolute())  # `csv` alone is a reader's name
            revision = None
        with errors_in_one_line(place):
            try:
                builder = load_dataset_builder(path, self.name, revision=revision)
            except ConnectionError:
                raise Unavailable(self._out_of_reach()) from None
        # The files that a pattern of the data set's own card matches are known only now.
        files = (builder.config.data_files or {}).values()
        check_below(self.path, self._folder, chain.from_iterable(files))
        if self._folder is None and not self._online and self.revision not in (None, builder.hash):
            raise Unavailable(
                f"data.revision={self.revision}: the hub is out of reach, and the cache holds {builder.hash}"
            )
        return builder

    def _out_of_reach(self) -> str:
        why = "HF_HUB_OFFLINE is set" if wants_offline() else "the hub cannot be reached"
        return (
            f"data.path={self.path}: {why} and the data set is not in the cache; "
            "give a local folder or a save_to_disk copy as data.path (or data=python_stdlib, which needs no download)"
        )


def _flat(features: Any) -> dict[str, Any]:
    """Return features by name; features inside a nested one have dotted names and replace it."""
    return dict(features.flatten())


def _path(features: Any, name: str) -> list[str]:
    """Return the keys that lead to a column; a dot in the name of a top-level column is not a separator."""
    return [name] if name in features else name.split(".")


def _can_be_read(column: Column, kind: str) -> bool:
    """Return True if a column may hold values of this kind, in the terms of `datasets`."""
    if kind in ("string", "large_string"):
        return True
    other = "float" if column.is_number else "bool"
    return column.is_label and kind.startswith(("int", "uint", other))


def _value(place: str, column: Column, value: Any, path: list[str], feature: Any) -> str:
    """Return a stored value as text: a nested one is found by its `path`, a class label becomes its name.

    Args:
        place: Where the value stands, for the message.
        column: The column that it is in.
        value: The stored value, or the nested value that holds it.
        path: Keys that lead to the value.
        feature: Its feature in `datasets`, which may have names of labels.
    """
    for key in path[1:]:
        if value is not None:  # null may stand for the whole that a value is in
            value = value[key]
    names = getattr(feature, "names", None)
    if column.is_label and names and value is not None:
        if value < 0:  # how the hub marks the rows whose label is kept secret
            raise UserError(f"{place}: {column.name} is {value}, no label; name a split with labels, or null")
        value = names[value]
    return value_of(place, column, value)


def _quiet() -> None:
    """Hide progress bars where stderr is no terminal, and warnings beside seqtrain's own messages."""
    from datasets import disable_progress_bars
    from datasets.utils import logging

    logging.set_verbosity_error()
    if not sys.stderr.isatty():  # in a log each state of a bar would be a line
        disable_progress_bars()
