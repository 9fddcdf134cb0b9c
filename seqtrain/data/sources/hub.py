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
        """Set the data set and its columns.

        With `label_column` a row is a text and a label; with `source_column` and `target_column` it is a pair. A dotted
        name selects a nested column (`translation.en`).

        Args:
            path: Name of the data set on the hub, or a local folder.
            name: Configuration of the data set.
            revision: Revision of the data set on the hub.
            column: Column of the text.
            label_column: Column of labels, or None.
            source_column: Column of sources, or None.
            target_column: Column of targets, or None.
            train_split: Name of the data set's split for training.
            validation_split: Name of its split for validation; None: cut it off from train.
            test_split: Name of its split for test; None: cut it off from train.
            document: `row`: each row is a document; `split`: the rows of a split are joined by line ends.
            split_by: Unit in which validation and test are cut off: documents (or rows), or characters.
            validation_fraction: Fraction that is cut off for validation, unless a split is named.
            test_fraction: Fraction that is cut off for test, unless a split is named.
        """
        if path == "":
            raise UserError("data.path=: an empty path; give a data set of the hub, or a local folder")
        self.path = path
        self.name = name
        self.revision = revision
        self._columns = columns_of(column, label_column, source_column, target_column)
        self.fields = tuple(each.field for each in self._columns)
        # Names of the data set's own splits; None for a split that is cut off or not used.
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
        """Check the splits and columns without a download: for data on the hub only against the hub's metadata.

        A missing test split raises only when it is read, because training never reads it.
        """
        named: list[Split] = [split for split in ("train", "validation") if self.splits[split]]
        if self.needs_download:
            info = self._builder.info  # splits and features may be missing from the metadata
            if info.splits:
                for split in named:
                    self._check_split(split, list(info.splits))
            if info.features:
                self._check_columns(info.features)
            return
        # Read the first row if the data set is on this disk or in the cache, which needs no download.
        for split in named:
            next(self._read(split), None)
        if self.join:  # each split is one document, however many rows it has
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
        version = None if self._is_saved_copy else self._builder.hash  # a copy does not record its version
        return described | {"version": version, "splits": self.splits}

    def idle(self) -> dict[str, str]:
        idle = idle_cut({split: f"data.{split}_split={name}" for split, name in self.splits.items() if name})
        if "text" not in self.fields:
            idle["column"] = "a row is a pair of data.source_column and data.target_column"
        if self._folder is not None:
            idle["revision"] = "a local folder has no revisions"
        if self._is_saved_copy:
            idle["name"] = "a save_to_disk copy contains only one configuration"
        return idle

    @property
    def needs_download(self) -> bool:
        """True if the data set is on the hub and the hub can be reached."""
        return self._folder is None and self._online

    def dataset(self, split: Split) -> Dataset:
        """Return a split as a `Dataset`; raise UserError if the data set has no split of that name."""
        self._check_split(split, list(self._data))
        return self._data[str(self.splits[split])]

    def check_order(self) -> None:
        """Raise UserError if the files of train are not read in the order of the numbers in their names."""
        files = {} if self._is_saved_copy else self._builder.config.data_files or {}
        own = {str(split): map(Path, paths) for split, paths in files.items()}.get(str(self.splits["train"]), ())
        for one, other in pairwise(own):
            if natural_order(one) > natural_order(other):
                raise UserError(
                    f"data.path={self.path}: {one.name} is read before {other.name}, because files are sorted "
                    "alphabetically; add leading zeros to the numbers in their names, or join the files"
                )

    def _texts(self, split: Split) -> Iterator[str]:
        texts = (row["text"] for row in self._read(split))
        if not self.join:
            return texts
        # A row of a line-based corpus may or may not include its line end.
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
        # A nested column is read with its top-level column, so source and target of the same one are read once.
        for batch in self._batches(data, sorted({path[0] for path in paths})):
            for stored in zip(*[batch[path[0]] for path in paths], strict=True):
                number += 1
                place = f"data.path={self.path}: {self.splits[split]} row {number}"
                row = {}
                for column, path, value in zip(self._columns, paths, stored, strict=True):
                    row[column.field] = _value(place, column, value, path, features[column.name])
                yield row
        if number == 0:
            raise UserError(f"data.{split}_split={self.splits[split]}: the split has no rows in {self.path}")

    def _batches(self, data: Dataset, names: list[str]) -> Iterator[dict[str, list]]:
        """Yield columns in batches of stored values; images and audio, which may be any URL, are not opened."""
        with errors_in_one_line(f"data.path={self.path}"):
            for batch in data.select_columns(names).with_format("arrow").iter(batch_size=1024):
                yield cast("Table", batch).to_pydict()

    def _check_split(self, split: Split, known: list[str]) -> None:
        if self.splits[split] in known:
            return
        fault = f"data.{split}_split={self.splits[split]}: {self.path} has {', '.join(known)}"
        if split != "train":
            fault += f"; name one of these, or use data.{split}_split=null to cut {split} off from train"
        raise UserError(fault)

    def _check_columns(self, features: Any) -> None:
        known = _flat(features)
        faults = []
        for column in self._columns:
            if column.name not in known:
                faults.append(missing(self.path, column, known))
                continue
            kind = getattr(known[column.name], "dtype", "nested values")  # a list of features has no dtype
            if not _can_be_read(column, kind):
                faults.append(
                    f"{column.option}={column.name}: contains {kind}, not {column.storage}; "
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
        # A data set's name on the hub is NAME or OWNER/NAME.
        if self.path.startswith(("/", ".", "~")) or self.path.count("/") > 1:
            raise Unavailable(f"data.path={self.path}: no such folder")
        return None

    @cached_property
    def _is_saved_copy(self) -> bool:
        """True if `path` is a save_to_disk copy of one or several splits."""
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
        if isinstance(data, Dataset):  # a copy of one split does not store its name
            return {"train": data}
        return {str(name): split for name, split in data.items()}

    @cached_property
    def _builder(self) -> DatasetBuilder:
        """Builder that knows the data set's splits and version; from the cache if the hub cannot be reached."""
        from datasets import config, load_dataset_builder

        _quiet()
        place, path, revision = f"data.path={self.path}", self.path, self.revision
        if self.name:
            place += f" data.name={self.name}"
        if self._folder is None:
            config.HF_HUB_OFFLINE = not self._online  # else `datasets` tries the hub for half a minute first
        else:
            path = str(self._folder.absolute())  # a relative path such as `csv` would select a builder of that name
            revision = None
        with errors_in_one_line(place):
            try:
                builder = load_dataset_builder(path, self.name, revision=revision)
            except ConnectionError:
                raise Unavailable(self._out_of_reach()) from None
        # Patterns in the data set's card are resolved to files only by the builder.
        files = (builder.config.data_files or {}).values()
        check_below(self.path, self._folder, chain.from_iterable(files))
        if self._folder is None and not self._online and self.revision not in (None, builder.hash):
            raise Unavailable(
                f"data.revision={self.revision}: the hub cannot be reached, and the cache contains {builder.hash}"
            )
        return builder

    def _out_of_reach(self) -> str:
        why = "HF_HUB_OFFLINE is set" if wants_offline() else "the hub cannot be reached"
        return (
            f"data.path={self.path}: {why} and the data set is not in the cache; "
            "give a local folder or a save_to_disk copy as data.path (or data=python_stdlib, which needs no download)"
        )


def _flat(features: Any) -> dict[str, Any]:
    """Return features by name; a nested feature is replaced by its parts, with dotted names."""
    return dict(features.flatten())


def _path(features: Any, name: str) -> list[str]:
    """Return the keys that lead to a column; a dot in the name of a top-level column is not a separator."""
    return [name] if name in features else name.split(".")


def _can_be_read(column: Column, kind: str) -> bool:
    """Return True if a column may contain values of this dtype of `datasets`."""
    if kind in ("string", "large_string"):
        return True
    other = "float" if column.is_number else "bool"
    return column.is_label and kind.startswith(("int", "uint", other))


def _value(place: str, column: Column, value: Any, path: list[str], feature: Any) -> str:
    """Return a stored value as text: a nested value is found by its `path`, a class label becomes its name.

    Args:
        place: Location of the value, for the message.
        column: Column of the value.
        value: The stored value, or the nested value that contains it.
        path: Keys that lead to the value.
        feature: Feature of the value in `datasets`, which may have label names.
    """
    for key in path[1:]:
        if value is not None:  # the enclosing value may be null
            value = value[key]
    names = getattr(feature, "names", None)
    if column.is_label and names and value is not None:
        if value < 0:  # the hub's convention for labels that are not published
            raise UserError(f"{place}: {column.name} is {value}, not a label; use a split with labels, or null")
        value = names[value]
    return value_of(place, column, value)


def _quiet() -> None:
    """Hide warnings of `datasets`, and its progress bars if stderr is not a terminal."""
    from datasets import disable_progress_bars
    from datasets.utils import logging

    logging.set_verbosity_error()
    if not sys.stderr.isatty():  # in a log each update of a bar would be a line
        disable_progress_bars()
