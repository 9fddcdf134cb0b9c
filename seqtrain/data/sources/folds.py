"""Folds of labelled rows: labels are balanced over folds as far as possible, and equal texts share a fold."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from unicodedata import normalize

import numpy as np

from seqtrain.data.batching.splitmix64 import mixed
from seqtrain.data.sources.base import Row
from seqtrain.errors import UserError

VALIDATION, TRAIN, TEST = 1, 0, 2  # what a row is to one fold, as the places in SPLITS have it


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
