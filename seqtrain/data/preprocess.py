"""Conversion of a source's rows to arrays: tokenised texts with labels, pairs of source and target, or series."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from seqtrain.data.cache import Store
from seqtrain.data.corpus import Corpus, text_hash, tokenised, trained
from seqtrain.data.sources.base import NO_LABEL, OF_NUMBERS, OF_WORDS, LabelKind, Source, Split
from seqtrain.data.sources.series import HoldsLabels, SeriesSource, rows_of
from seqtrain.data.sources.tokens import TokenSource
from seqtrain.data.tokenizers.encoding import NO_TOKENS
from seqtrain.data.tokenizers.foreign import load_tokenizer
from seqtrain.data.tokenizers.recipes import Recipe, Tokenizer
from seqtrain.data.values import scaling
from seqtrain.data.values.scaling import Scaling
from seqtrain.data.values.series import SeriesSplit
from seqtrain.errors import UserError, first_few, kind_of
from seqtrain.files.atomic import exists, write_text
from seqtrain.files.checked import load_json

TOKENIZER, TARGET_TOKENIZER, LABELS = "tokenizer.json", "target_tokenizer.json", "labels.json"
SCALE, SERIES = "scale.json", "series.json"
MAX_SCALE_BYTES = 1 << 12
MAX_LABEL_BYTES = 1 << 24
MAX_QUOTED_CHARACTERS = 60  # of a row's text or label, in messages


@runtime_checkable
class KnowsChance(Protocol):
    """A source that knows the accuracy of guessing."""

    def chance(self) -> float | None:
        """Return the accuracy of a guess among the possible answers; None if it is unknown."""
        ...


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of train's numeric labels; models predict scaled labels."""

    mean: float
    std: float  # above 0

    @classmethod
    def of(cls, numbers: np.ndarray) -> Scale:
        """Return the scale of train's numbers (n,), of which NaN is none; raise UserError if all are equal."""
        numbers = numbers[~np.isnan(numbers)]
        if not len(numbers):
            raise UserError("data: no row of train has a number; there is nothing to learn")
        if numbers.min() == numbers.max():
            raise UserError(f"data: every row of train has the number {numbers[0]:g}; there is nothing to predict")
        return cls(float(numbers.mean()), float(numbers.std()))

    @property
    def hash(self) -> str:
        """Hash of both numbers at full precision."""
        return text_hash([repr(self.mean), repr(self.std)])


@dataclass(frozen=True)
class Preprocessor:
    """Conversion of text and labels to numbers and back; fitted to the train split only."""

    tokenizer: Tokenizer
    target_tokenizer: Tokenizer  # the same object, unless source and target have separate vocabularies
    labels: tuple[str, ...] = ()
    scale: Scale | None = None  # if labels are numbers
    series: Scaling | None = None  # if the input is real values instead of text

    @property
    def shared(self) -> bool:
        """True if source and target have one tokenizer."""
        return self.target_tokenizer is self.tokenizer

    def of(self, field: str) -> Tokenizer:
        """Return the tokenizer of a field of text."""
        return self.target_tokenizer if field == "target" else self.tokenizer

    @property
    def hashes(self) -> dict[str, str]:
        """Hash of each part, by the name of its file without `.json`."""
        if self.series is not None:
            hashes = {"series": self.series.hash}
        else:
            hashes = {"tokenizer": self.tokenizer.hash}
        if not self.shared:
            hashes["target_tokenizer"] = self.target_tokenizer.hash
        if self.labels:
            hashes["labels"] = text_hash(self.labels)
        if self.scale is not None:
            hashes["scale"] = self.scale.hash
        return hashes

    def save(self, folder: Path) -> None:
        """Write one file for each of `hashes`; `load` takes the hashes and so detects a missing file."""
        if self.series is not None:
            self.series.save(folder / SERIES)
        else:
            self.tokenizer.save(folder / TOKENIZER)
        if not self.shared:  # a second file means that there are two tokenizers
            self.target_tokenizer.save(folder / TARGET_TOKENIZER)
        if self.labels:
            write_text(folder / LABELS, json.dumps(self.labels, ensure_ascii=False))
        if self.scale is not None:
            write_text(folder / SCALE, json.dumps({"mean": self.scale.mean, "std": self.scale.std}))

    @staticmethod
    def missing(folder: Path, hashes: Mapping[str, Any]) -> list[str]:
        """Return the names of files that have a hash but are missing; without any hashes, the tokenizer's file."""
        if not hashes:
            return [TOKENIZER]
        files = (TOKENIZER, TARGET_TOKENIZER, LABELS, SCALE, SERIES)
        saved = [name for name in files if name.removesuffix(".json") in hashes]
        return [name for name in saved if not exists(folder / name)]

    @classmethod
    def load(cls, folder: Path, hashes: Mapping[str, Any]) -> Preprocessor:
        """Read the files that `save` wrote.

        Args:
            folder: The run's directory.
            hashes: `hashes` of the saved preprocessor; its keys determine which files are read.

        Raises:
            UserError: A file is missing, damaged, or not the one that was saved.
        """
        if "tokenizer" not in hashes and "series" not in hashes:
            raise UserError(f"{folder}: its summary does not say which tokenizer it has; restore the original file")
        for name in cls.missing(folder, hashes):
            raise UserError(f"{folder / name}: is missing; restore the original file")
        labels = _read_labels(folder / LABELS) if "labels" in hashes else ()
        scale = _read_scale(folder / SCALE) if "scale" in hashes else None
        if "series" in hashes:
            tokenizer, series = NO_TOKENS, Scaling.load(folder / SERIES)
        else:
            tokenizer, series = load_tokenizer(folder / TOKENIZER), None
        target_tokenizer = tokenizer
        if "target_tokenizer" in hashes:
            target_tokenizer = load_tokenizer(folder / TARGET_TOKENIZER)
        preprocessor = cls(tokenizer, target_tokenizer, labels, scale, series)
        # A valid file may still belong to another run: ids and labels would then have another meaning.
        for name, value in preprocessor.hashes.items():
            if hashes[name] != value:
                raise UserError(
                    f"{folder / name}.json: is not the one that this run was trained with; restore the original file"
                )
        return preprocessor


def _read_labels(path: Path) -> tuple[str, ...]:
    try:
        # A run may be untrusted: check the file before its content is used.
        names = load_json(path, MAX_LABEL_BYTES)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("expected strings")
    except (OSError, ValueError, RecursionError) as error:
        raise kind_of(error)(f"{path}: not a list of labels ({error})") from None
    return tuple(names)


def _read_scale(path: Path) -> Scale:
    try:
        content = load_json(path, MAX_SCALE_BYTES)
        if not isinstance(content, dict) or content.keys() != {"mean", "std"}:
            raise ValueError("expected mean and std")
        mean, std = float(content["mean"]), float(content["std"])
        if not (math.isfinite(mean) and 0 < std < math.inf):
            raise ValueError("expected finite numbers, std above 0")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise kind_of(error)(f"{path}: not a scale of numbers ({error})") from None
    return Scale(mean, std)


@dataclass(frozen=True)
class Rows:
    """One split: its tokenised fields of text, and its labels; row i is at index i in each of them."""

    columns: dict[str, Corpus]
    # By kind of label: name: (n,) int64 indices of label names; number: (n,) float64; names or numbers: one such array
    # per row, in which NaN is no number.
    labels: np.ndarray | list[np.ndarray] | None
    read: Callable[[], Iterator[dict[str, str]]]  # reads the rows from the source again, the empty ones included
    series: SeriesSplit | None = None  # the input, if it is values; the only text is then the target
    chance: float | None = None  # accuracy of a guess among the possible answers, if the source knows it

    def __len__(self) -> int:
        if self.series is not None:
            return self.series.num_series
        # Rows of several fields keep empty documents, so the offsets of any column count them. A single field of text
        # has dropped its empty rows.
        return len(next(iter(self.columns.values())).documents) - 1

    @property
    def size(self) -> dict[str, int]:
        """Size of the split for the run's record, which helps a user to identify the data."""
        if self.series is not None:
            return {"series": len(self), "rows": self.series.num_rows}
        num_bytes = sum(corpus.num_bytes for corpus in self.columns.values())
        return {"documents": len(self), "bytes": num_bytes}

    @property
    def num_tokens(self) -> int:
        """Number of tokens in all columns of text, plus rows of series."""
        num_rows = 0 if self.series is None else self.series.num_rows
        return num_rows + sum(len(corpus.tokens) for corpus in self.columns.values())

    def texts(self, field: str) -> list[str]:
        """Return one field of every row as text."""
        return [row[field] for row in self.read()]

    @property
    def hash(self) -> str:
        """Hash of all text and all labels."""
        hashes = [corpus.hash for corpus in self.columns.values()]
        if self.series is not None:
            hashes.append(self.series.hash)
        if self.labels is not None:
            hashes.append(text_hash(map(_label_text, self.labels)))
        if len(hashes) == 1:  # a single text column keeps the hash under which its tokens are cached
            return hashes[0]
        return text_hash(hashes)


def _label_text(label: Any) -> str:
    """Return a label as text to be hashed."""
    return " ".join(map(str, label)) if isinstance(label, np.ndarray) else str(label)


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
    """Return the preprocessor and the tokenised rows; read tokenizers and tokens from the cache if possible.

    A single field of text drops empty documents; rows of several fields keep them, to stay aligned.

    Args:
        source: Source of the rows.
        recipe: Trains tokenizers on train, if none are given.
        splits: Splits to tokenise.
        fields: Fields of a row that the task reads.
        label_kind: Kind of value of the field `label`.
        shared: True if all fields of text have one tokenizer.
        preprocessor: An existing preprocessor, used unchanged; None: fit one to train.
        origin: Preprocessor whose tokenizers, but not labels, a new preprocessor takes.
        cache: Folder of the cache; None: the default folder.
        say: Called with lines for the user.

    Returns:
        The preprocessor, and the rows of each split.

    Raises:
        UserError: Train lacks a label, a label is not a number though numbers are predicted, or a row's numbers of
            words and labels differ.
    """
    if isinstance(source, SeriesSource):
        return prepare_series(
            source,
            splits,
            fields,
            recipe=recipe,
            label_kind=label_kind,
            preprocessor=preprocessor,
            origin=origin,
            cache=cache,
            say=say,
        )
    if isinstance(source, TokenSource):
        return prepare_tokens(source, splits, preprocessor or origin)
    store = Store(cache)
    texts = [field for field in fields if field != "label"]
    if preprocessor is None:
        # Labels first: an error in them should be raised before a tokenizer is trained.
        labels, scale = _labels_and_scale(source, fields, label_kind)
        if origin is not None:
            preprocessor = Preprocessor(origin.tokenizer, origin.target_tokenizer, labels, scale)
        else:
            preprocessor = Preprocessor(*_make_tokenizers(store, source, recipe, texts, shared, say), labels, scale)
    chance = source.chance() if isinstance(source, KnowsChance) else None
    rows = {}
    for split in splits:
        columns = _tokenised(store, source, split, texts, preprocessor, len(fields) > 1, say)
        # After the text: its tokens determine how many labels a row must have.
        labels_of_rows = None
        if "label" in fields:
            labels_of_rows = _read_row_labels(source, split, preprocessor, label_kind, columns)
        rows[split] = Rows(columns, labels_of_rows, partial(source.rows, split), chance=chance)
    return preprocessor, rows


def _tokenised(
    store: Store,
    source: Source,
    split: Split,
    texts: Sequence[str],
    preprocessor: Preprocessor,
    keep_empty: bool,
    say: Callable[[str], None],
) -> dict[str, Corpus]:
    """Tokenise a split's fields of text; `keep_empty`: True to keep rows without tokens."""
    columns = {}
    for field in texts:
        # Messages name the field only if there are several.
        name = f"{split} {field}" if len(texts) > 1 else split
        documents = partial(_texts, source, split, [field])
        columns[field] = tokenised(store, documents, name, preprocessor.of(field), say, keep_empty=keep_empty)
    return columns


def _labels_and_scale(source: Source, fields: Sequence[str], kind: LabelKind) -> tuple[tuple[str, ...], Scale | None]:
    """Return the names of train's labels, or the scale of its numbers; empty if the task reads no labels."""
    if "label" not in fields:
        return (), None
    if kind in OF_NUMBERS:  # of train only: the scale must not depend on evaluation data
        return (), Scale.of(np.concatenate(_read_numbers(source, "train", kind)))
    return _label_names(source, kind), None


def prepare_series(
    source: SeriesSource,
    splits: Sequence[Split],
    fields: Sequence[str] = ("values",),
    *,
    recipe: Recipe | None = None,
    label_kind: LabelKind = "name",
    preprocessor: Preprocessor | None,
    origin: Preprocessor | None = None,
    cache: Path | None = None,
    say: Callable[[str], None],
) -> tuple[Preprocessor, dict[Split, Rows]]:
    """Return a preprocessor with train's scaling, fitted if none is given, and the rows of each split.

    Args:
        source: Source of the series.
        splits: Splits to read.
        fields: Fields that the task reads; only `values` for a forecast.
        recipe: Trains the tokenizer of target texts, if series have them.
        label_kind: Kind of value of the field `label`.
        preprocessor: The run's preprocessor, used unchanged; None: fit one to train.
        origin: Preprocessor whose target tokenizer a new preprocessor takes.
        cache: Folder of the cache; None: the default folder.
        say: Called with lines for the user.

    Returns:
        The preprocessor, and the rows of each split.

    Raises:
        UserError: A series is too short, a column is constant or empty, or the columns differ from the run's.
    """
    in_splits: dict[Split, SeriesSplit] = {split: source.split(split) for split in splits}
    store, texts = Store(cache), [field for field in fields if field not in ("values", "label")]
    forecast = list(fields) == ["values"]
    if preprocessor is None:
        fitted = scaling.fit(
            source.split("train"),
            missing=source.missing,
            features=source.time_features,
            season=source.season,
            forecast=forecast,
        )
        labels, scale = _labels_and_scale(source, fields, label_kind)
        tokenizer = NO_TOKENS
        if texts and origin is not None:
            tokenizer = origin.target_tokenizer
        elif texts and recipe is not None:
            tokenizer, _ = _make_tokenizers(store, source, recipe, texts, True, say)
        preprocessor = Preprocessor(NO_TOKENS, tokenizer, labels, scale, fitted)
        for line in (fitted.words, *source.remarks):
            say(line)
        if forecast and source.has("test") and not source.split("test").has_a_value:
            say("data: all values of test are missing; its metrics cannot be computed")
    known = preprocessor.series
    assert known is not None
    if (known.columns, known.known_columns) != (source.series.columns, source.series.known_columns):
        raise UserError(
            f"data: the columns are {first_few((*source.series.columns, *source.series.known_columns))}, but the run "
            f"was trained on {first_few((*known.columns, *known.known_columns))}"
        )
    rows = {}
    for split, found in in_splits.items():
        labels_of_rows = None
        if "label" in fields:
            labels_of_rows = _read_row_labels(source, split, preprocessor, label_kind, {})
        columns = _tokenised(store, source, split, texts, preprocessor, True, say)
        read: Callable[[], Iterator[dict[str, str]]] = partial(rows_of, source, split)
        rows[split] = Rows(columns, labels_of_rows, read if columns else lambda: iter(()), found)
    return preprocessor, rows


def _labels_of(source: Source, split: Split, kind: LabelKind) -> Iterable[str]:
    """Return the label of each row, or of each series, of a split."""
    if isinstance(source, HoldsLabels):
        return source.labels(split, kind)
    return (row["label"] for row in source.rows(split))


def prepare_tokens(
    source: TokenSource, splits: Sequence[Split], known: Preprocessor | None
) -> tuple[Preprocessor, dict[Split, Rows]]:
    """Return the tokenizer and the splits of a token store; only its index is read.

    Args:
        source: Source that refers to the store.
        splits: Splits to open.
        known: Preprocessor of the run, or of its parent run; its tokenizer must be the store's.

    Returns:
        The preprocessor, and the rows of each split.

    Raises:
        UserError: The store lacks a split, or its tokens are from another tokenizer.
    """
    store = source.store
    if known is not None and known.tokenizer.hash != store.tokenizer.hash:
        raise UserError(
            f"data: the tokens in {source.place_of_store} are not from the run's tokenizer; use a store that was "
            "prepared with the run's tokenizer.json (seqtrain prepare --tokenizer FILE)"
        )
    rows = {}
    for split in splits:
        rows[split] = Rows({"text": source.corpus(split)}, None, partial(source.rows, split))
    return Preprocessor(store.tokenizer, store.tokenizer), rows


def _texts(source: Source, split: Split, fields: Sequence[str]) -> Iterator[str]:
    """Yield the texts of a split: the first field of every row, then the next field of every row."""
    for field in fields:
        for row in rows_of(source, split):
            yield row[field]


def _make_tokenizers(
    store: Store, source: Source, recipe: Recipe, texts: list[str], shared: bool, say: Callable[[str], None]
) -> tuple[Tokenizer, Tokenizer]:
    """Return the tokenizers of source and target, trained on train: one for all fields of text, or one for each."""
    groups = [texts]
    if not shared:
        groups = [[field] for field in texts]
    tokenizers = []
    for group in groups:  # reads the text twice: first its hash, to look the tokenizer up in the cache
        documents = partial(_texts, source, "train", group)
        tokenizers.append(trained(store, recipe, text_hash(documents()), documents, say))
    return tokenizers[0], tokenizers[-1]


def _label_names(source: Source, kind: LabelKind) -> tuple[str, ...]:
    """Return train's labels, sorted; raise UserError if there is only one, or two differ only by white space."""
    distinct: set[str] = set()  # only the names are in memory: train may be larger than memory
    for label in _labels_of(source, "train", kind):
        distinct.update(_split_label(label, kind))
    names = sorted(distinct)
    if len(names) == 1:
        raise UserError(f"data: every row of train has the label {names[0]}; there is nothing to tell apart")
    # A trailing space in one cell would make a separate class, which looks the same in a table of results.
    by_stripped: dict[str, str] = {}
    for name in names:
        other = by_stripped.setdefault(name.strip(), name)
        if other != name:
            raise UserError(
                f"data: the labels {other!r} and {name!r} differ only by white space; write them the same way"
            )
    return tuple(names)


def _split_label(label: str, kind: LabelKind) -> list[str]:
    """Return the names or numbers in a row's label: the whole label, or its words."""
    return label.split() if kind in OF_WORDS else [label]


def _read_row_labels(
    source: Source, split: Split, preprocessor: Preprocessor, kind: LabelKind, columns: Mapping[str, Corpus]
) -> np.ndarray | list[np.ndarray]:
    """Return the labels of a split in the form of `Rows.labels`."""
    if kind in OF_NUMBERS:
        found = _read_numbers(source, split, kind)
    else:
        found = _read_label_indices(source, split, preprocessor.labels, kind)
    if kind in OF_WORDS:
        if preprocessor.series is not None:  # sources of series check this themselves
            return found
        if preprocessor.tokenizer.kind == "word":  # a line end is a token, too, and has a label
            num_words = columns["text"].lengths
        else:
            num_words = [len(row["text"].split()) for row in source.rows(split)]
        _check_aligned(source, split, found, num_words, "regress" if kind == "numbers" else "sentiment")
        return found
    kind_of_array = np.float64 if kind == "number" else np.int64
    return np.concatenate([np.zeros(0, dtype=kind_of_array), *found])  # concatenate raises for an empty list


def _read_label_indices(source: Source, split: Split, names: tuple[str, ...], kind: LabelKind) -> list[np.ndarray]:
    """Return the indices in `names` of each row's labels: (1,) int64, or one for each word of its label."""
    # A dict, because searching the list would take time for each row.
    place = {name: index for index, name in enumerate(names)}
    indices = []
    for number, label in enumerate(_labels_of(source, split, kind), 1):
        labels = _split_label(label, kind)
        for name in labels:
            if name not in place:
                known = _shortened(", ".join(names[:10]) + ", ..." * (len(names) > 10))
                where = _place_of(source, split, number)
                raise UserError(
                    f"data: {where} has the label {_shortened(name)}, which no row of train has ({known})"
                    f"; correct it{_quoted(source, split, number)}, or add such a row to train"
                )
        indices.append(np.array([place[name] for name in labels], dtype=np.int64))
    return indices


def _read_numbers(source: Source, split: Split, kind: LabelKind) -> list[np.ndarray]:
    """Return each row's labels as numbers: (1,) float64, or one for each word; raise UserError if one is not finite."""
    rows = []
    for number, label in enumerate(_labels_of(source, split, kind), 1):
        values = []
        for part in _split_label(label, kind):
            if part == NO_LABEL and kind == "numbers":
                values.append(math.nan)
                continue
            try:
                value = float("" if "_" in part else part)  # `float` accepts 1_000
            except ValueError:
                value = math.nan
            if not math.isfinite(value):  # `float` accepts "nan" and "inf", which have no useful mean
                where = _place_of(source, split, number)
                raise UserError(f"data: {where} has the label {_shortened(part)}, which is not a finite number")
            values.append(value)
        rows.append(np.array(values, dtype=np.float64))
    return rows


def _place_of(source: Source, split: Split, number: int) -> str:
    """Return the noun for a row of a split, or the name of its series; `number` counts from 1."""
    if not isinstance(source, SeriesSource):
        return f"{split} row {number}"
    part = source.split(split)
    name = part.series.names[np.flatnonzero(part.end > part.begin)[number - 1]]
    return f"series {name.removeprefix('series ')} of {split}"


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_QUOTED_CHARACTERS else f"{text[:MAX_QUOTED_CHARACTERS]}..."


def _quoted(source: Source, split: Split, number: int) -> str:
    """Return the beginning of a row's text for a message, because its number alone does not locate it in a file."""
    if isinstance(source, SeriesSource):
        return ""
    row = next(itertools.islice(source.rows(split), number - 1, None))
    text = _shortened(row["text"])
    paths = source.describe().get("paths")
    if not paths:  # generated data, or data of the hub
        return f" ({text!r})"
    files = ", ".join(map(str, paths.values() if isinstance(paths, dict) else paths))
    return f" ({text!r}, from {files})"


def _check_aligned(source: Source, split: Split, labels: list[np.ndarray], num_words: Iterable[int], task: str) -> None:
    """Raise UserError if a row's number of labels differs from its number of words; `task` reads one label a row."""
    for number, (row, count) in enumerate(zip(labels, num_words, strict=True), 1):
        if len(row) != count:
            row_words = f"{split} row {number}{_quoted(source, split, number)}"
            single = f", or use task={task}, which reads one label a row" if len(row) == 1 else ""
            raise UserError(
                f"data: {row_words} has {len(row)} labels for {count} words; give one label per word, "
                f"separated by white space{single}"
            )
