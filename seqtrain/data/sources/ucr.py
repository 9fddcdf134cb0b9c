"""Labelled series of the UCR and UEA archives: files NAME_TRAIN and NAME_TEST in the formats .ts and .tsv."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from seqtrain.data.sources.base import OF_WORDS, SPLITS, LabelKind, Split
from seqtrain.data.sources.opening import absent, readable, sniff
from seqtrain.data.sources.series import SeriesSource, numbered_series, split_of_series
from seqtrain.data.values.scaling import Missing
from seqtrain.data.values.series import Series, SeriesSplit
from seqtrain.errors import UserError, first_few
from seqtrain.terminal import tell

FORMATS = (".ts", ".tsv")
TRAIN, TEST = "_TRAIN", "_TEST"
ABSENT = ("?", "nan")  # in lower case


class Table(NamedTuple):
    """One file: its series, and a label for each."""

    series: Series
    labels: tuple[str, ...]  # empty if the file has none
    is_number: bool | None  # True if labels are numbers; None if the format does not tell


class UCR(SeriesSource):
    """Series with a label or a number each; validation is cut off from the training file."""

    fields = ("values", "label")

    def __init__(self, *, path: str, missing: Missing = "mask", validation_fraction: float = 0.2) -> None:
        """Set the folder or file.

        Args:
            path: A folder with NAME_TRAIN.ts or .tsv, or that file.
            missing: `mask`: the model reads which values are missing; `mean`: the mean of train replaces them.
            validation_fraction: Fraction of the training file that is validation, the same for each label.
        """
        super().__init__(
            missing=missing, time_features=None, validation_fraction=validation_fraction, test_fraction=0.0
        )
        self.path = path

    def describe(self) -> dict[str, Any]:
        paths = {split: str(path) for split, path in self._files.items()}
        return {"source": "ucr", "paths": paths, "series": len(self._train.labels), "columns": len(self.series.columns)}

    def has(self, split: Split) -> bool:
        if split == "test":
            return "test" in self._files
        return split == "train" or self.validation_fraction > 0

    def read(self) -> Series:
        return self._train.series

    def split(self, split: Split) -> SeriesSplit:
        if split == "test":
            series = self._test.series
            return SeriesSplit(series, series.offsets[:-1], series.offsets[1:])
        return super().split(split)

    def labels(self, split: Split, kind: LabelKind) -> list[str]:
        table = self._test if split == "test" else self._train
        if kind in OF_WORDS:
            raise UserError(f"data.path={self.path}: has one label per series, not one at each step; use task=classify")
        if table.is_number is not None and table.is_number != (kind == "number"):
            found, task = ("numbers", "regress") if table.is_number else ("names", "classify")
            raise UserError(f"data.path={self.path}: its labels are {found}; use task={task}")
        if split == "test":
            return list(table.labels)
        return [table.labels[place] for place in np.flatnonzero(self._owner == SPLITS.index(split))]

    def series_of(self, path: Path, columns: Sequence[str]) -> Series:
        if path.suffix.lower() == ".tsv":  # the format has no header that could tell
            tell(f"{path}: the first column is taken for the label of each series, and not for a value")
        return read_table(path, labelled=False).series

    @cached_property
    def _files(self) -> dict[str, Path]:
        """The files of train and, if there is one, of test."""
        path = Path(self.path)
        if path.is_dir():
            path = _train_file(path)
        if not path.is_file():
            raise UserError(f"data.path={path}: {absent(path, 'file')}")
        files = {"train": path}
        test = path.with_name(path.name.replace(TRAIN, TEST))
        if TRAIN in path.name and test.is_file():
            files["test"] = test
        return files

    @cached_property
    def _train(self) -> Table:
        return read_table(self._files["train"])

    @cached_property
    def _test(self) -> Table:
        if "test" not in self._files:
            train = self._files["train"]
            raise UserError(
                f"data.path={train}: the test file {train.name.replace(TRAIN, TEST)} is missing in its folder"
            )
        return read_table(self._files["test"])

    @cached_property
    def _owner(self) -> Int[np.ndarray, " n"]:
        return split_of_series(self._train.labels, validation=self.validation_fraction, test=0.0)


def _train_file(folder: Path) -> Path:
    """Return the training file of a folder, .ts before .tsv; raise UserError if there is none, or several."""
    for suffix in FORMATS:
        found = sorted(folder.glob(f"*{TRAIN}{suffix}"))
        # A folder may contain variants, such as with equal lengths; the data set itself has the folder's name.
        own = [path for path in found if path.name == f"{folder.name}{TRAIN}{suffix}"]
        if len(own or found) > 1:
            names = first_few([path.name for path in found])
            raise UserError(f"data.path={folder}: contains several training files, {names}; name one")
        if found:
            return (own or found)[0]
    raise UserError(f"data.path={folder}: contains no file that ends in {TRAIN}.ts or {TRAIN}.tsv")


def read_table(path: Path, *, labelled: bool = True) -> Table:
    """Read one file of the archive.

    Args:
        path: A .ts or .tsv file.
        labelled: True if each series must have a label.

    Raises:
        UserError: The file has another format, is damaged, has no series, or its series differ in number of channels.
    """
    suffix = path.suffix.lower()
    reason = absent(path, "file") if not path.is_file() else sniff(path)
    if reason is None and suffix not in FORMATS:
        reason = f"expected a file of the UCR archive, whose name ends in {' or '.join(FORMATS)}"
    if reason:
        raise UserError(f"data.path={path}: {reason}")
    with readable(path), open(path, encoding="utf-8-sig") as file:
        lines = list(enumerate(file, 1))
    header: dict[str, str] = {}
    if suffix == ".ts":
        header, lines = _header(path, lines)
    elif len(lines) > 1 and [number for number, text in lines if _counts_up(text)] == [1]:
        raise UserError(f"data.path={path}: line 1 is a header; write the table without header and index")
    channels: list[Float[np.ndarray, "T C"]] = []
    labels = []
    is_number = _flag(header, "targetlabel")
    has_label = suffix == ".tsv" or is_number or _flag(header, "classlabel")
    if labelled and not has_label:
        raise UserError(
            f"data.path={path}: has no labels (@classLabel false); give a file with a label for each series"
        )
    names = header.get("classlabel", "").split()[1:]
    for number, text in lines:
        if not text.strip():
            continue
        values, label = _parsed(f"data.path={path}: line {number:,}", text.strip("\r\n "), suffix, has_label)
        if labelled and names and label not in names:
            raise UserError(
                f"data.path={path}: line {number:,} has the label {label!r}, which @classLabel does not name "
                f"({first_few(names)}); correct one of them"
            )
        if channels and values.shape[1] != channels[0].shape[1]:
            raise UserError(
                f"data.path={path}: line {number:,} has {values.shape[1]} channels, but the first series has "
                f"{channels[0].shape[1]}; all series need the same number"
            )
        channels.append(values)
        labels.append(label)
    if not channels:
        raise UserError(f"data.path={path}: contains no series")
    series = numbered_series(np.concatenate(channels), list(map(len, channels)), "channel")
    return Table(series, tuple(labels) if has_label else (), is_number if suffix == ".ts" else None)


def _counts_up(text: str) -> bool:
    """Return True if the fields after the first count from 0 or 1, as the names of columns of pandas do."""
    fields = text.strip("\r\n ").split("\t")[1:]
    return len(fields) > 2 and any(fields == list(map(str, range(n, n + len(fields)))) for n in (0, 1))


def _flag(header: dict[str, str], name: str) -> bool:
    return header.get(name, "").lower().startswith("true")


def _header(path: Path, lines: list[tuple[int, str]]) -> tuple[dict[str, str], list[tuple[int, str]]]:
    """Return the entries of a .ts file's header by lower-case name, and the lines after @data."""
    header = {}
    for place, (_, text) in enumerate(lines):
        words = text.strip()
        if words.startswith("@"):
            name, *value = words[1:].split(maxsplit=1) or [""]
            header[name.lower()] = value[0].strip() if value else ""
        if words.lower().startswith("@data"):
            if _flag(header, "timestamps"):
                raise UserError(
                    f"data.path={path}: has time stamps (@timeStamps true), which are not read; leave them out"
                )
            return header, [line for line in lines[place + 1 :] if not line[1].startswith("#")]
        if words and not words.startswith(("@", "#")):
            break
    raise UserError(f"data.path={path}: not a .ts file of the UCR archive: the line @data before the values is missing")


def _parsed(where: str, text: str, suffix: str, has_label: bool) -> tuple[Float[np.ndarray, "T C"], str]:
    """Return the values of a line and its label; `where`: location of the line, for messages."""
    label = ""
    if suffix == ".tsv":
        label, *fields = text.split("\t")
        parts = [fields]
    else:
        texts = text.split(":")
        if has_label:
            label = texts.pop().strip()
        parts = [part.split(",") for part in texts]
    label = label.strip()
    # In a .ts, the last part of a line without its label is a channel: numbers with commas.
    if has_label and (not label or label == "?" or not parts or (suffix == ".ts" and "," in label)):
        raise UserError(f"{where} has no label, but each series of this file must have one; add it, or remove the line")
    if len({len(part) for part in parts}) > 1:
        counts = first_few(sorted({str(len(part)) for part in parts}))
        raise UserError(f"{where} has channels of different lengths ({counts}); all channels need the same length")
    values = np.array([list(_numbers(where, part)) for part in parts]).reshape(len(parts), -1).T
    if suffix == ".tsv" and len(values):  # in a .tsv, shorter series are padded with missing values
        seen = np.flatnonzero(~np.isnan(values[:, 0]))
        values = values[: seen[-1] + 1 if len(seen) else 0]
    if not len(values) or np.isnan(values).all():
        raise UserError(f"{where} contains no value; remove the series")
    return values, label


def _numbers(where: str, texts: list[str]) -> Iterator[float]:
    for text in texts:
        try:
            value = np.nan if text.strip().lower() in ABSENT else float("" if "_" in text else text)
        except ValueError:
            raise UserError(f"{where}: {text.strip()[:40]!r} is not a number; write ? for a missing value") from None
        if np.isinf(value):
            raise UserError(f"{where}: {text.strip()} is not a finite number; write ? for a missing value")
        yield value
