"""Rows of a source, tokenised: texts with their labels, or pairs of source and target."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from seqtrain.data.cache import Store
from seqtrain.data.corpus import Corpus, text_hash, tokenised, trained
from seqtrain.data.sources.base import Source, Split
from seqtrain.data.tokenizers.recipes import Recipe, Tokenizer
from seqtrain.errors import UserError, kind_of
from seqtrain.files.atomic import exists, write_text
from seqtrain.files.checked import load_json

TOKENIZER, TARGET_TOKENIZER, LABELS = "tokenizer.json", "target_tokenizer.json", "labels.json"
MAX_LABEL_BYTES = 1 << 24
LabelKind = Literal["name", "names", "number"]
"""What the label of a row is: one of the names that train has; such a name for each token; or a number."""


@dataclass(frozen=True)
class Preprocessor:
    """What turns text and labels into numbers and back; made from the train split only."""

    tokenizer: Tokenizer
    target_tokenizer: Tokenizer  # the same one, unless source and target have vocabularies of their own
    labels: tuple[str, ...] = ()

    @property
    def shared(self) -> bool:
        return self.target_tokenizer is self.tokenizer

    def of(self, field: str) -> Tokenizer:
        """The tokenizer of a field of text."""
        return self.target_tokenizer if field == "target" else self.tokenizer

    @property
    def hashes(self) -> dict[str, str]:
        """What identifies them."""
        hashes = {"tokenizer": self.tokenizer.hash}
        if not self.shared:
            hashes["target_tokenizer"] = self.target_tokenizer.hash
        if self.labels:
            hashes["labels"] = text_hash(self.labels)
        return hashes

    def save(self, folder: Path) -> None:
        """Writes one file for each of `hashes`; who reads them is told those, so that a missing file has no meaning."""
        self.tokenizer.save(folder / TOKENIZER)
        if not self.shared:
            self.target_tokenizer.save(folder / TARGET_TOKENIZER)
        if self.labels:
            write_text(folder / LABELS, json.dumps(self.labels, ensure_ascii=False))

    @staticmethod
    def missing(folder: Path, hashes: Mapping[str, Any]) -> list[str]:
        """The files that the hashes speak of and that are not there: all of them, where there are no hashes yet."""
        return [name for name in _files(hashes) if not exists(folder / name)] if hashes else [TOKENIZER]

    @classmethod
    def load(cls, folder: Path, hashes: Mapping[str, Any]) -> Preprocessor:
        """Reads what `save` wrote and these `hashes` were of; raises UserError where a file is missing, damaged or
        another.

        The hashes alone say whether source and target share a tokenizer, and whether there are labels.
        """
        if "tokenizer" not in hashes:
            raise UserError(f"{folder}: its summary does not say which tokenizer it has; put the run's own file back")
        for name in cls.missing(folder, hashes):
            raise UserError(f"{folder / name}: is missing; put the run's own file back")
        tokenizer = Tokenizer.load(folder / TOKENIZER)
        target = Tokenizer.load(folder / TARGET_TOKENIZER) if "target_tokenizer" in hashes else tokenizer
        found = cls(tokenizer, target, _read_labels(folder / LABELS) if "labels" in hashes else ())
        for name, value in found.hashes.items():
            if hashes[name] != value:
                raise UserError(
                    f"{folder / name}.json: is not the one that this run was trained with; put the run's own file back"
                )
        return found


def _files(hashes: Mapping[str, Any]) -> list[str]:
    """The files of the vocabularies that have these hashes."""
    return [name for name in (TOKENIZER, TARGET_TOKENIZER, LABELS) if name.removesuffix(".json") in hashes]


def _read_labels(path: Path) -> tuple[str, ...]:
    try:
        names = load_json(path, MAX_LABEL_BYTES)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("each must be text")
    except (OSError, ValueError, RecursionError) as error:
        raise kind_of(error)(f"{path}: not a list of labels ({error})") from None
    return tuple(names)


@dataclass(frozen=True)
class Rows:
    """One split: its fields of text, tokenised, and the labels; row i of each belongs together."""

    columns: dict[str, Corpus]
    labels: np.ndarray | list[np.ndarray] | None  # (n,) int64, into the names of labels; such a row for each text;
    # or (n,) float64
    read: Callable[[], Iterator[dict[str, str]]]  # the rows themselves, once more from the source

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())).documents) - 1

    def texts(self, field: str) -> list[str]:
        """One field as it is written, by row."""
        return [row[field] for row in self.read()]

    @property
    def hash(self) -> str:
        """Hash of all text and all labels."""
        parts = [corpus.hash for corpus in self.columns.values()]
        if self.labels is not None:
            parts.append(text_hash([_written(label) for label in self.labels]))
        return parts[0] if len(parts) == 1 else text_hash(parts)


def prepare_rows(
    source: Source,
    recipe: Recipe,
    splits: Sequence[Split],
    fields: Sequence[str],
    *,
    label_kind: LabelKind = "name",
    shared: bool = True,
    preprocessor: Preprocessor | None = None,
    origin: Preprocessor | None = None,
    cache: Path | None = None,
    say: Callable[[str], None],
) -> tuple[Preprocessor, dict[Split, Rows]]:
    """Vocabularies and tokenised rows, from the cache where it has them.

    Vocabularies that are given are used as they are, of `origin` the tokenizers only; a `shared` tokenizer is of all
    fields of text. A stream of text keeps no empty document; rows of several fields stay aligned. Raises UserError
    for a
    label that train does not have, that is no number where numbers are predicted, or that no token stands for.
    """
    store = Store(cache)
    texts = [field for field in fields if field != "label"]

    def column(split: Split, wanted: Sequence[str]) -> Callable[[], Iterator[str]]:
        return lambda: (row[field] for field in wanted for row in source.rows(split))

    if preprocessor is None:
        named = "label" in fields and label_kind != "number"
        labels = _names(source, label_kind) if named else ()  # first: a fault of theirs should not wait for a tokenizer
        groups = [texts] if shared or len(texts) == 1 else [[field] for field in texts]
        made = (
            [origin.tokenizer, origin.target_tokenizer]
            if origin is not None
            else [
                trained(store, recipe, text_hash(column("train", group)()), column("train", group), say)
                for group in groups
            ]
        )
        preprocessor = Preprocessor(made[0], made[-1], labels)
    rows = {}
    for split in splits:
        columns = {
            field: tokenised(
                store,
                column(split, [field]),
                split if len(texts) == 1 else f"{split} {field}",
                preprocessor.of(field),
                say,
                keep_empty=len(fields) > 1,
            )
            for field in texts
        }
        labels = None
        if "label" in fields and label_kind == "number":
            labels = _numbers(source, split)
        elif "label" in fields:
            labels = _labels(source, split, preprocessor.labels, label_kind)
        if isinstance(labels, list):
            _check_aligned(split, labels, columns["text"])
        rows[split] = Rows(columns, labels, lambda split=split: source.rows(split))
    return preprocessor, rows


def _names(source: Source, kind: LabelKind) -> tuple[str, ...]:
    """The labels of train in order; raises UserError where there is nothing to tell apart, or two look alike."""
    names = sorted({name for row in source.rows("train") for name in _named(row["label"], kind)})
    if len(names) == 1:
        raise UserError(f"data: every row of train has the label {names[0]}; there is nothing to tell apart")
    alike: dict[str, str] = {}
    for name in names:
        if (other := alike.setdefault(name.strip(), name)) is not name:
            raise UserError(
                f"data: the labels {other!r} and {name!r} differ by white space alone; write them the same way"
            )
    return tuple(names)


def _labels(source: Source, split: Split, names: tuple[str, ...], kind: LabelKind) -> np.ndarray | list[np.ndarray]:
    """The labels of a split by their place in `names`: one of each row, or one of each word of it."""
    place = {name: index for index, name in enumerate(names)}
    found = []
    for number, row in enumerate(source.rows(split), 1):
        given = _named(row["label"], kind)
        for name in given:
            if name not in place:
                raise UserError(
                    f"data: {split} row {number} has the label {name}, which no row of train has "
                    f"({', '.join(names[:10])}{', ...' * (len(names) > 10)}); correct it, or give train such a row"
                )
        found.append(np.array([place[name] for name in given], dtype=np.int64))
    return found if kind == "names" else np.concatenate([np.zeros(0, dtype=np.int64), *found])


def _named(label: str, kind: LabelKind) -> list[str]:
    """The names in the label of a row: the whole of it, or the words of it."""
    return label.split() if kind == "names" else [label]


def _numbers(source: Source, split: Split) -> np.ndarray:
    """The numbers (n,) that the rows of a split have as labels; raises UserError for what is none."""
    found = []
    for number, row in enumerate(source.rows(split), 1):
        try:
            value = float(row["label"])
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UserError(f"data: {split} row {number} has the label {row['label']}, which is no finite number")
        found.append(value)
    return np.array(found, dtype=np.float64)


def _check_aligned(split: Split, labels: list[np.ndarray], text: Corpus) -> None:
    """Raises UserError where a row has another number of labels than its text has tokens."""
    for number, (row, tokens) in enumerate(zip(labels, text.lengths.tolist(), strict=True), 1):
        if len(row) != tokens:
            raise UserError(
                f"data: {split} row {number} has {len(row)} labels for {tokens} tokens; give each word one, with white "
                "space between, and use tokenizer=word"
            )


def _written(label: Any) -> str:
    """A label as its hash sees it."""
    return " ".join(map(str, label)) if isinstance(label, np.ndarray) else str(label)
