"""Local labelled text in common layouts, with folds: labels are balanced over them, and equal texts share one."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal
from unicodedata import normalize

import numpy as np

from seqtrain.data.batching.splitmix64 import mixed
from seqtrain.data.sources.base import Cut, Row, Split, SplitBy, check_fractions, no_split
from seqtrain.data.sources.guess import Asked, Place
from seqtrain.data.sources.labelled_files import LabelledFiles
from seqtrain.data.sources.opening import Encoding
from seqtrain.data.sources.split_files import FileSource
from seqtrain.data.sources.text import row_cut
from seqtrain.errors import UserError

AUTO = "auto"
VALIDATION, TRAIN, TEST = 1, 0, 2  # what a row is to one fold, as the places in SPLITS have it
PLACES: dict[Split, int] = {"train": TRAIN, "validation": VALIDATION, "test": TEST}


class Labelled(FileSource):
    """Rows of a text and a label; a split without a file of its own is cut off from train's, or is a fold of it."""

    _files: LabelledFiles
    called = "labelled"
    document = "a row of a table, a line, or a text of a folder"
    fields = ("text", "label")

    def __init__(
        self,
        *,
        path: str,
        validation_path: str | None = None,
        test_path: str | None = None,
        test_paths: dict[str, str] | None = None,
        format: Literal["auto", "jsonl", "csv", "tsv", "parquet", "lines", "folders"] = "auto",
        encoding: Encoding = "utf-8",
        header: bool | Literal["auto"] = "auto",
        column: str | int | list[str] = AUTO,
        label_column: str | int | list[str] = AUTO,
        split_by: SplitBy = "document",
        validation_fraction: float = 0.1,
        test_fraction: float = 0.0,
        folds: int | None = None,
        fold: int | None = None,
        fold_seed: int = 0,
    ) -> None:
        """Set paths and columns. Columns are names, or, without a header, numbers from 1.

        If several names are given for a column, the first one that a file has is used.

        Args:
            path: Train: a file, a glob or a folder.
            validation_path: Validation; None: it is cut off from train.
            test_path: Test; None: it is cut off from train, or a fold of it.
            test_paths: Several test sets, by name.
            format: Format of the files; auto = detected.
            encoding: Encoding of the text.
            header: True if the first row names the columns; auto = detected.
            column: Column of the text; auto = detected.
            label_column: Column of the label; auto = detected.
            split_by: `document` only; rows cannot be cut by position.
            validation_fraction: Fraction of train's rows.
            test_fraction: Fraction of train's rows, without folds.
            folds: Number of folds; None: no cross-validation.
            fold: Number, from 0, of the fold that is test.
            fold_seed: Seed by which rows are dealt to folds.

        Raises:
            UserError: Options do not go together.
        """
        if test_paths and test_path:
            raise UserError(f"data.test_path={test_path}: data.test_paths is given too; name it there")
        # An empty path would be taken for the folder that the command is run in.
        for name, file in (test_paths or {}).items():
            if not file:
                raise UserError(f"data.test_paths.{name}=: an empty path; give a file, a glob or a folder")
        asked = Asked(_places(column), _places(label_column), None if header == AUTO else bool(header))
        if asked.text and asked.text == asked.label:
            raise UserError(f"data.label_column={label_column}: is data.column too; name two columns")
        # Checked here: later the message would be that the column is missing from the file.
        if asked.by_name and asked.header is False:
            raise UserError("data.header=false: then columns have no names; give their numbers, counted from 1")
        paths: dict[Split, str | None] = {"train": path, "validation": validation_path, "test": test_path}
        self._files = LabelledFiles(paths, format, asked, encoding, test_paths or {})
        check_fractions(validation_fraction, test_fraction)
        _check_folds(folds, fold, self._files.keys)
        self._folds, self._fold, self._fold_seed = folds, fold, fold_seed
        self._validation = validation_fraction
        self._cut = Cut(
            by=row_cut(split_by), validation=validation_fraction, test=test_fraction, given=self._files.paths
        )

    def expect_numbers(self) -> None:
        self._files.asked = replace(self._files.asked, is_number=True)

    def recall(self, described: Mapping[str, Any]) -> None:
        readings = described.get("readings")
        if isinstance(readings, Mapping):
            self._files.recall(readings)

    def check(self) -> None:
        if self._folds is None:
            return super().check()
        # Folds cut train themselves, so that no fractions are to be checked of it.
        self._files.check(Cut(by="row", validation=0.0, test=0.0))
        self._owner  # noqa: B018 - raises where the rows cannot be dealt

    def rows(self, split: Split) -> Iterator[Row]:
        if self._folds is None or (split in self._files.paths and split != "train"):
            return super().rows(split)
        if not self.has(split):
            raise no_split(split)
        # The files are read anew and sieved: only the owners of rows are held in memory, not their texts.
        is_in_split = self._owner == PLACES[split]
        return (row for row, is_in in zip(self._files.rows("train"), is_in_split, strict=True) if is_in)

    def has(self, split: Split) -> bool:
        return super().has(split) or (self._folds is not None and split == "test")

    def describe(self) -> dict[str, Any]:
        described = super().describe()  # first: it settles how each file is read
        described["readings"] = {path: reading.plain() for path, reading in self._files.read_as.items()}
        if self._folds is None:
            return described
        owner = self._owner
        sizes = {split: int((owner == place).sum()) for split, place in PLACES.items()}
        # The hash of all rows, too: folds of a file that has changed since are not folds of one set.
        fold = {"folds": self._folds, "fold": self._fold, "seed": self._fold_seed}
        return described | {"fold": fold | {"hash": self._all_rows.hash, **sizes}}

    def notes(self) -> list[str]:
        lines = super().notes()
        if self._folds is None:
            return lines
        texts, rows = self._all_rows.repeated()
        line = f"fold {self._fold} of {self._folds} is test, drawn from {len(self._all_rows.labels):,} rows"
        if texts:
            line += f"; texts that stand there more than once ({texts:,} in {rows:,} rows) are kept in one fold each"
        if not self._all_rows.stratified:
            line += "; labels hardly repeat, so folds are not balanced by them"
        return [*lines, line]

    def idle(self) -> dict[str, str]:
        idle = super().idle()
        if self._folds is None:
            idle["fold_seed"] = "there are no folds without data.folds"
        else:
            idle["test_fraction"] = "test is a fold of train"
        return idle

    @cached_property
    def _all_rows(self) -> Rows:
        return Rows.of(self._files.rows("train"), stratify=not self._files.asked.is_number)

    @cached_property
    def _owner(self) -> np.ndarray:
        """Split (rows,) of each row of train's files in this fold."""
        assert self._folds is not None  # as _check_folds has seen
        assert self._fold is not None
        # With a file of its own validation takes no rows from train, which each fold is in want of.
        validation = 0.0 if "validation" in self._files.paths else self._validation
        return split_of_rows(self._all_rows, self._folds, self._fold, self._fold_seed, validation)


def _places(column: str | int | list[str]) -> tuple[Place, ...]:
    """Return the columns that were asked for; empty where they are detected."""
    if column == AUTO:
        return ()
    return tuple(column) if isinstance(column, list) else (column,)


def _check_folds(folds: int | None, fold: int | None, given: Mapping[Split, str]) -> None:
    """Raise UserError for fold options that do not make a cross-validation."""
    if folds is None:
        if fold is not None:
            raise UserError(f"data.fold={fold}: of how many? Set data.folds too")
        return
    if "test" in given:
        raise UserError(f"data.folds={folds}: each fold is a test set, and {given['test']} is given too; leave one out")
    if fold is None:
        raise UserError(f"data.folds={folds}: which one is test? Set data.fold, or train all: seqtrain train -m")
    if fold >= folds:
        raise UserError(f"data.fold={fold}: the folds are counted from 0 to {folds - 1}")


@dataclass(frozen=True)
class Rows:
    """Data that the folds depend on: the groups of rows with equal texts, and the label of each row."""

    groups: list[int]  # of each row, the first row whose text is the same but for case, white space and NFC or NFD
    labels: list[str]
    hash: str  # of all texts and labels
    stratified: bool = True  # whether labels are classes; else all rows count as of one

    @classmethod
    def of(cls, rows: Iterable[Row], *, stratify: bool = True) -> Rows:
        """Read all rows once, holding a hash of each text; labels that hardly repeat are not balanced as classes."""
        first: dict[bytes, int] = {}
        groups: list[int] = []
        labels: list[str] = []
        whole = hashlib.blake2b(digest_size=16)
        for number, row in enumerate(rows):
            text, label = row["text"], row["label"]
            # Case, white space and NFC or NFD alone make no other text: a model would know the answer all the same.
            key = hashlib.blake2b(" ".join(normalize("NFC", text).casefold().split()).encode(), digest_size=16).digest()
            groups.append(first.setdefault(key, number))
            labels.append(label)
            # With its length before it, or two texts would hash as their one whole does.
            for value in (text, label):
                stored = value.encode()
                whole.update(len(stored).to_bytes(8) + stored)
        stratified = stratify and 2 * len(set(labels)) <= len(labels)
        if not stratified:
            labels = [""] * len(labels)
        return cls(groups, labels, whole.hexdigest(), stratified)

    def repeated(self) -> tuple[int, int]:
        """Return the number of texts that occur more than once, and the number of rows that hold them."""
        counts = [count for count in Counter(self.groups).values() if count > 1]
        return len(counts), sum(counts)


def fold_of_rows(rows: Rows, folds: int, seed: int) -> np.ndarray:
    """Return the fold (rows,) of each row, the same every time.

    Labels are dealt one by one, so that the folds have equally many of each, as far as equal texts allow.
    """
    if folds > len(rows.groups):
        raise UserError(f"data.folds={folds}: there are {len(rows.groups)} rows; use fewer folds")
    size, total = Counter(rows.groups), [0] * folds
    of_group: dict[int, int] = {}
    for label, groups in sorted(_shuffled_groups(rows, seed).items()):
        if len(groups) < 2:
            raise UserError(
                f"data.folds={folds}: the label {label} has one text alone; in a fold of test it would be unknown to "
                "train: give it more, or leave its rows out"
            )
        own = [0] * folds
        # The large ones first, which are the hardest to place; `sorted` keeps the order of the rest.
        for group in sorted(groups, key=lambda group: -size[group]):
            fold = min(range(folds), key=lambda fold: (own[fold], total[fold], fold))
            of_group[group] = fold
            own[fold] += size[group]
            total[fold] += size[group]
    found = np.array([of_group[group] for group in rows.groups], dtype=np.int64)
    # Large groups of equal texts can leave nothing for a fold, and so can too few rows.
    empty = set(range(folds)) - set(found.tolist())
    if empty:
        raise UserError(f"data.folds={folds}: there are {len(of_group)} different texts; use fewer folds")
    return found


def split_of_rows(rows: Rows, folds: int, fold: int, seed: int, validation: float) -> np.ndarray:
    """Return the split of each row in one fold (rows,): TEST, VALIDATION or TRAIN.

    Args:
        rows: Groups of equal texts, and labels.
        folds: Number of folds.
        fold: The fold that is test, from 0.
        seed: Seed of the order in which rows are dealt.
        validation: Fraction of the rows outside the fold that becomes validation, the same for each label.
    """
    found = np.where(fold_of_rows(rows, folds, seed) == fold, TEST, TRAIN)
    if not validation:
        return found
    size = Counter(rows.groups)
    chosen: set[int] = set()
    # Another order than that of the folds, or validation would be the rows of the next fold.
    for groups in _shuffled_groups(rows, seed + 1 + fold).values():
        left = [group for group in groups if found[group] == TRAIN]
        quota = int(validation * sum(size[group] for group in left))
        for group in left[:-1]:  # one text of each label stays in train
            if quota < size[group]:
                continue
            chosen.add(group)
            quota -= size[group]
    if not chosen:
        raise UserError(
            f"data.validation_fraction={validation}: of no label so much is a whole row; give more rows, or more"
        )
    for row, group in enumerate(rows.groups):
        if group in chosen:
            found[row] = VALIDATION
    return found


def _shuffled_groups(rows: Rows, seed: int) -> dict[str, list[int]]:
    """Return the groups of equal texts by the label of their first row, in an order drawn from the seed."""
    key = np.array([seed], dtype=np.uint64)
    drawn = mixed(key, np.arange(len(rows.groups)))
    of_label: dict[str, list[int]] = {}
    for group in sorted(set(rows.groups), key=lambda group: int(drawn[group])):
        of_label.setdefault(rows.labels[group], []).append(group)
    return of_label
