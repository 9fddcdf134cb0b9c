"""Local labelled text in common layouts, with folds: labels are balanced, and equal texts are in the same fold."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unicodedata import normalize

import numpy as np

from seqtrain.data.batching.splitmix64 import mixed
from seqtrain.data.sources.base import Cut, Row, Split, check_fractions, no_split
from seqtrain.data.sources.labelled_files import LabelledSource
from seqtrain.errors import UserError

VALIDATION, TRAIN, TEST = 1, 0, 2  # split of a row in one fold: the index into SPLITS
PLACES: dict[Split, int] = {"train": TRAIN, "validation": VALIDATION, "test": TEST}


@dataclass(kw_only=True, eq=False)
class Labelled(LabelledSource):
    """Rows of text and label; a split without its own file is cut off from train, or is a fold of train.

    Attributes:
        folds: Number of folds; None: no cross-validation.
        fold: Index, from 0, of the fold that is test.
        fold_seed: Seed of the assignment of rows to folds.
    """

    folds: int | None = None
    fold: int | None = None
    fold_seed: int = 0

    def __post_init__(self) -> None:
        """Check the options; raise UserError where they do not go together."""
        super().__post_init__()
        check_fractions(self.validation_fraction, self.test_fraction)
        _check_folds(self.folds, self.fold, self.keys)

    def check(self) -> None:
        if self.folds is None:
            return super().check()
        # Folds split train themselves, so its fractions are not checked.
        self._check_files(Cut(by="row", validation=0.0, test=0.0))
        self._owner  # noqa: B018 - raises if the rows cannot be assigned to folds

    def rows(self, split: Split) -> Iterator[Row]:
        if self.folds is None or (split in self.paths and split != "train"):
            return super().rows(split)
        if not self.has(split):
            raise no_split(split)
        # Read the files again and filter the rows: memory contains the split of each row, not its text.
        is_in_split = self._owner == PLACES[split]
        return (row for row, is_in in zip(self._read("train"), is_in_split, strict=True) if is_in)

    def has(self, split: Split) -> bool:
        return super().has(split) or (self.folds is not None and split == "test")

    def describe(self) -> dict[str, Any]:
        described = super().describe()
        if self.folds is None:
            return described
        owner = self._owner
        sizes = {split: int((owner == place).sum()) for split, place in PLACES.items()}
        # With a hash of all rows: folds of different versions of a file must not be combined.
        fold = {"folds": self.folds, "fold": self.fold, "seed": self.fold_seed}
        return described | {"fold": fold | {"hash": self._all_rows.hash, **sizes}}

    def notes(self) -> list[str]:
        lines = super().notes()
        if self.folds is None:
            return lines
        texts, rows = self._all_rows.repeated()
        line = f"fold {self.fold} of {self.folds} is test, drawn from {len(self._all_rows.labels):,} rows"
        if texts:
            line += f"; repeated texts ({texts:,} in {rows:,} rows) are each kept in one fold"
        if not self._all_rows.stratified:
            line += "; most labels occur once, so folds are not balanced by label"
        return [*lines, line]

    def idle(self) -> dict[str, str]:
        idle = super().idle()
        if self.folds is None:
            idle["fold_seed"] = "there are no folds without data.folds"
        else:
            idle["test_fraction"] = "test is a fold of train"
        return idle

    @cached_property
    def _all_rows(self) -> Rows:
        return Rows.of(self._read("train"), stratify=not self._asked.is_number)

    @cached_property
    def _owner(self) -> np.ndarray:
        """Split (rows,) of each row of train's files in this fold."""
        assert self.folds is not None  # checked by _check_folds
        assert self.fold is not None
        # If validation has its own file, all remaining rows stay in train.
        validation = 0.0 if "validation" in self.paths else self.validation_fraction
        return split_of_rows(self._all_rows, self.folds, self.fold, self.fold_seed, validation)


def _check_folds(folds: int | None, fold: int | None, given: Mapping[Split, str]) -> None:
    """Raise UserError for fold options that do not define a cross-validation."""
    if folds is None:
        if fold is not None:
            raise UserError(f"data.fold={fold}: data.folds is missing; set the number of folds")
        return
    if "test" in given:
        raise UserError(f"data.folds={folds}: each fold is a test set, and {given['test']} is given too; leave one out")
    if fold is None:
        raise UserError(f"data.folds={folds}: set data.fold to the fold that is test, or train all: seqtrain train -m")
    if fold >= folds:
        raise UserError(f"data.fold={fold}: must be from 0 to {folds - 1}")


@dataclass(frozen=True)
class Rows:
    """Data that the folds depend on: the groups of rows with equal texts, and the label of each row."""

    groups: list[int]  # for each row, the first row with the same text, ignoring case, white space and NFC or NFD
    labels: list[str]
    hash: str  # of all texts and labels
    stratified: bool = True  # True if labels are classes; else all rows are in one class

    @classmethod
    def of(cls, rows: Iterable[Row], *, stratify: bool = True) -> Rows:
        """Read all rows once, keeping a hash of each text; if most labels occur once, they are not balanced."""
        first: dict[bytes, int] = {}
        groups: list[int] = []
        labels: list[str] = []
        whole = hashlib.blake2b(digest_size=16)
        for number, row in enumerate(rows):
            text, label = row["text"], row["label"]
            # Texts that differ only in case, white space or NFC and NFD are equal: a model would know the answer.
            key = hashlib.blake2b(" ".join(normalize("NFC", text).casefold().split()).encode(), digest_size=16).digest()
            groups.append(first.setdefault(key, number))
            labels.append(label)
            # With its length first: else two texts would have the hash of their concatenation.
            for value in (text, label):
                stored = value.encode()
                whole.update(len(stored).to_bytes(8) + stored)
        stratified = stratify and 2 * len(set(labels)) <= len(labels)
        if not stratified:
            labels = [""] * len(labels)
        return cls(groups, labels, whole.hexdigest(), stratified)

    def repeated(self) -> tuple[int, int]:
        """Return the number of texts that occur more than once, and the number of rows that contain them."""
        counts = [count for count in Counter(self.groups).values() if count > 1]
        return len(counts), sum(counts)


def fold_of_rows(rows: Rows, folds: int, seed: int) -> np.ndarray:
    """Return the fold (rows,) of each row, the same every time.

    The rows of one label after another are assigned, so that each fold has about as many of every label.
    """
    if folds > len(rows.groups):
        raise UserError(f"data.folds={folds}: there are {len(rows.groups)} rows; use fewer folds")
    size, total = Counter(rows.groups), [0] * folds
    of_group: dict[int, int] = {}
    for label, groups in sorted(_shuffled_groups(rows, seed).items()):
        if len(groups) < 2:
            raise UserError(
                f"data.folds={folds}: the label {label} has only one text; if that is in test, train does not know the "
                "label: add texts with this label, or remove it"
            )
        own = [0] * folds
        # Large groups first, which are the hardest to balance; `sorted` keeps the order of equal sizes.
        for group in sorted(groups, key=lambda group: -size[group]):
            fold = min(range(folds), key=lambda fold: (own[fold], total[fold], fold))
            of_group[group] = fold
            own[fold] += size[group]
            total[fold] += size[group]
    found = np.array([of_group[group] for group in rows.groups], dtype=np.int64)
    # Large groups of equal texts, or too few rows, can leave a fold empty.
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
        seed: Seed of the order in which rows are assigned.
        validation: Fraction of the rows outside the fold that becomes validation, the same for each label.
    """
    found = np.where(fold_of_rows(rows, folds, seed) == fold, TEST, TRAIN)
    if not validation:
        return found
    size = Counter(rows.groups)
    chosen: set[int] = set()
    # A different order from that of the folds: else validation would be the rows of the next fold.
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
            f"data.validation_fraction={validation}: is less than one row of every label; increase it, or add rows"
        )
    for row, group in enumerate(rows.groups):
        if group in chosen:
            found[row] = VALIDATION
    return found


def _shuffled_groups(rows: Rows, seed: int) -> dict[str, list[int]]:
    """Return the groups of equal texts by the label of their first row, in an order that depends on the seed."""
    key = np.array([seed], dtype=np.uint64)
    drawn = mixed(key, np.arange(len(rows.groups)))
    of_label: dict[str, list[int]] = {}
    for group in sorted(set(rows.groups), key=lambda group: int(drawn[group])):
        of_label.setdefault(rows.labels[group], []).append(group)
    return of_label
