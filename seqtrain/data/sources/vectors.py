"""Sequences of vectors, such as frames of a movie or of speech, each optionally with a label, a number or a text."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from seqtrain.data.sources.base import NO_LABEL, OF_WORDS, SPLITS, LabelKind, Row, Split
from seqtrain.data.sources.opening import absent, readable, sniff
from seqtrain.data.sources.series import SeriesSource, numbered_series, split_of_series
from seqtrain.data.values.blocks import LARGEST
from seqtrain.data.values.scaling import Missing
from seqtrain.data.values.series import Series
from seqtrain.errors import UserError, first_few

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = (".parquet", ".jsonl", ".npz", ".npy")


class VectorSource(SeriesSource):
    """Sequences of vectors; whole sequences are in a split. `predict` reads files in the format of `data=vectors`."""

    fields = ("values", "label", "target")
    values_column = "values"

    def __init__(self, *, missing: Missing, validation_fraction: float, test_fraction: float) -> None:
        super().__init__(
            missing=missing,
            time_features=None,
            validation_fraction=validation_fraction,
            test_fraction=test_fraction,
        )

    @abstractmethod
    def answers(self, field: str) -> Sequence[str]:
        """Return the `label` or the `target` of each sequence, in all splits."""

    def labels(self, split: Split, kind: LabelKind) -> list[str]:
        labels = [row["label"] for row in self._rows(split, "label")]
        if kind in OF_WORDS:
            each, whole = ("tag", "classify") if kind == "names" else ("regress_steps", "regress")
            steps = np.diff(self.series.offsets)[self._owner == SPLITS.index(split)]
            for label, count in zip(labels, steps.tolist(), strict=True):
                if len(label.split()) != count:
                    raise UserError(
                        f"data: task={each} reads a label at each step, but a sequence of {count} vectors has "
                        f"{len(label.split())} ({label[:40]}); write a list of {count} labels, or use task={whole}"
                    )
        return labels

    def written(self, split: Split) -> Iterator[Row]:
        return self._rows(split, "target")

    def series_of(self, path: Path, columns: Sequence[str]) -> Series:
        return vectors_of(path, read_table(path, self.values_column), self.values_column)

    def _rows(self, split: Split, field: str) -> Iterator[Row]:
        answers = self.answers(field)
        return ({field: answers[place]} for place in np.flatnonzero(self._owner == SPLITS.index(split)).tolist())

    def balanced_by(self) -> Sequence[str]:
        """Return a class for each sequence; classes are balanced across the splits."""
        return [""] * len(self.series.names)

    @cached_property
    def _owner(self) -> Int[np.ndarray, " n"]:
        # Rows of equal vectors, such as a movie with several captions, are one sequence with the first row's class.
        numbers: dict[bytes, int] = {}
        number_of_row, classes = [], []
        for (begin, end), of_row in zip(pairwise(self.series.offsets.tolist()), self.balanced_by(), strict=True):
            content = hashlib.blake2b(self.series.values[begin:end].tobytes(), digest_size=16).digest()
            number_of_row.append(numbers.setdefault(content, len(numbers)))
            if len(numbers) > len(classes):
                classes.append(of_row)
        owner = split_of_series(classes, validation=self.validation_fraction, test=self.test_fraction)
        return owner[number_of_row]


class Vectors(VectorSource):
    """One parquet, jsonl or npz file with a sequence per row: a column of lists of vectors, and one of labels or texts.

    The columns of an npz file are arrays with the same number of rows: values (N, T, F), labels (N,) or (N, T).
    """

    def __init__(
        self,
        *,
        path: str,
        values_column: str = "values",
        label_column: str = "label",
        target_column: str = "target",
        missing: Missing = "mask",
        validation_fraction: float = 0.1,
        test_fraction: float = 0.1,
    ) -> None:
        """Set the file and its columns.

        Args:
            path: The file.
            values_column: Column of sequences, each a list of vectors of equal width.
            label_column: Column of labels or numbers, or of lists with one for each vector (task=tag, regress_steps);
                other tasks do not need it.
            target_column: Column of texts, for task=translation.
            missing: `mask`: the model reads which values are missing; `mean`: the mean of train replaces them.
            validation_fraction: Fraction of the sequences that is validation, the same for each label.
            test_fraction: Fraction of the sequences that is test.
        """
        super().__init__(missing=missing, validation_fraction=validation_fraction, test_fraction=test_fraction)
        self.path = path
        self.values_column = values_column
        self.columns_of = {"label": label_column, "target": target_column}

    def describe(self) -> dict[str, Any]:
        sizes = {"series": len(self.series.names), "columns": len(self.series.columns)}
        return {"source": "vectors", "paths": [self.path], **sizes}

    def read(self) -> Series:
        return vectors_of(Path(self.path), self._table, self.values_column)

    def answers(self, field: str) -> list[str]:
        name = self.columns_of[field]
        column = column_of(self._table, name, f"data.{field}_column={name}: {self.path}")
        texts = []
        for number, value in enumerate(column.to_pylist(), 1):
            where = f"data.{field}_column={name}: row {number:,} of {self.path}"
            if isinstance(value, list):
                texts.append(" ".join(_of_step(each, where) for each in value))
                continue
            # A NaN among names would be a class of its own.
            text = "" if value is None or value != value else str(value).strip()
            if value is None or (field == "label" and not text):
                raise UserError(f"{where} has no value; remove the row")
            texts.append(text)
        return texts

    def labels(self, split: Split, kind: LabelKind) -> list[str]:
        labels, name = super().labels(split, kind), self.columns_of["label"]
        if kind in ("name", "number") and isinstance(self._table.column(name)[0].as_py(), list):
            task = "tag" if kind == "name" else "regress_steps"
            has_one = len(self._table.column(name)[0].as_py()) == 1
            single = "; for one label each, write an array (N,), not (N, 1)" if has_one else ""
            raise UserError(
                f"data.label_column={name}: {self.path} has a list of labels in each row; use task={task}{single}"
            )
        return labels

    def balanced_by(self) -> Sequence[str]:
        has_labels = self.columns_of["label"] in self._table.column_names
        return self.answers("label") if has_labels else super().balanced_by()

    @cached_property
    def _table(self) -> pa.Table:
        return read_table(Path(self.path), self.values_column)


def _of_step(label: Any, where: str) -> str:
    """Return the label of a step as one word; `where` begins the message if it is none."""
    text = "" if label is None or label != label else str(label).strip()
    if isinstance(label, list) or len(text.split()) > 1:
        wrong = "a list" if isinstance(label, list) else f"white space ({text[:40]})"
        raise UserError(f"{where} has {wrong} as label of a step; write one word or number, or null for none")
    return text or NO_LABEL


def read_table(path: Path, values_column: str) -> pa.Table:
    """Read a file; raise UserError if it cannot be read. The array of a npy file is the column of values."""
    import pyarrow as pa
    import pyarrow.json as lines
    import pyarrow.parquet as pq

    suffix = path.suffix.lower()
    reason = None if path.is_file() else absent(path, "file")
    if reason is None and suffix not in FORMATS:
        reason = f"expected a name that ends in {' or '.join(FORMATS)}"
    reason = reason or (sniff(path) if suffix == ".jsonl" else None)
    if reason:
        raise UserError(f"data.path={path}: {reason}")
    try:
        with readable(path):
            if suffix == ".parquet":
                return pq.read_table(path)
            if suffix in (".npz", ".npy"):
                return _table_of_arrays(path, values_column)
            try:
                # The whole file in one block: a line must not be longer than a block.
                table = lines.read_json(path, lines.ReadOptions(block_size=max(path.stat().st_size, 1)))
                # pyarrow 26 drops null from a list of strings without a word, which would shift all later labels.
                table.validate(full=True)
                if any(map(_holds_times, table.schema.types)):
                    raise pa.ArrowInvalid("a text is read as a time")
                return table
            except pa.ArrowException as fault:  # slower, but it takes null anywhere, numbers mixed, and dates as text
                with path.open(encoding="utf-8-sig") as file:
                    try:
                        return pa.Table.from_pylist([json.loads(line) for line in file if line.strip()])
                    except (ValueError, TypeError, AttributeError):
                        raise fault from None
    except (pa.ArrowException, OverflowError, ValueError, EOFError, zipfile.BadZipFile) as error:
        words = str(error).partition(". ")[0]
        words = re.sub(r"\bin row (\d+)", lambda found: f"in row {int(found[1]) + 1}", words)  # pyarrow counts from 0
        raise UserError(f"data.path={path}: cannot be read as {suffix[1:]} ({words})") from None


def _holds_times(kind: pa.DataType) -> bool:
    """Return True if a type, or one nested in it, is a time: pyarrow reads texts such as 2024-03-12 as times."""
    import pyarrow as pa

    return pa.types.is_temporal(kind) or any(_holds_times(kind.field(place).type) for place in range(kind.num_fields))


def _table_of_arrays(path: Path, values_column: str) -> pa.Table:
    """Return the arrays of a file that have a row for each sequence; pickled objects are refused."""
    import pyarrow as pa

    loaded = np.load(path, allow_pickle=False)
    arrays = dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else {values_column: loaded}
    arrays = {name: array for name, array in arrays.items() if isinstance(array, np.ndarray) and array.ndim}
    size = len(arrays.get(values_column, ()))
    # Kept for the message, because a table has no columns of other lengths.
    others = {f"rows of {name}": str(len(array)) for name, array in arrays.items() if size and len(array) != size}
    columns = {name: _column(array) for name, array in arrays.items() if f"rows of {name}" not in others}
    return pa.table(columns, metadata=others)


def _column(array: np.ndarray) -> pa.Array:
    """Return an array (N, ...) as a column of N cells; those of two dimensions or more are lists."""
    import pyarrow as pa

    if array.dtype.kind == "S":
        array = array.astype(str)
    # pyarrow reads the byte order of this machine only.
    column = pa.array(array.astype(array.dtype.newbyteorder("=")).reshape(-1))
    for size in reversed(array.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column


def column_of(table: pa.Table, name: str, where: str) -> pa.Array:
    """Return a column of a table; raise UserError, whose message begins with `where`, if it is missing."""
    rows = (table.schema.metadata or {}).get(f"rows of {name}".encode())
    if rows is not None:
        raise UserError(f"{where} has {rows.decode()} rows for {table.num_rows} sequences; write one row for each")
    if name not in table.column_names:
        raise UserError(f"{where} has no such column; it has {first_few(table.column_names)}")
    return table.column(name).combine_chunks()


def vectors_of(path: Path, table: pa.Table, column: str) -> Series:
    """Return the sequences of a column of lists of vectors; null is a missing number.

    Args:
        path: The file, for messages.
        table: Content of the file.
        column: Name of the column.

    Raises:
        UserError: A row contains no vector, vectors differ in width, or a value is not a finite number.
    """
    import pyarrow as pa
    from pyarrow.compute import call_function

    cells = column_of(table, column, f"data.values_column={column}: {path}")
    is_list = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    levels = [cells.type, getattr(cells.type, "value_type", None)]
    if not len(cells):
        raise UserError(f"data.path={path}: contains no rows")
    if not all(any(check(level) for check in is_list) for level in levels):
        raise UserError(
            f"data.values_column={column}: {path} contains {cells.type} there; expected lists of vectors, which are "
            "lists of numbers (an array (N, T, F); of one number a step, (N, T, 1))"
        )
    lengths, vectors = _numbers(call_function("list_value_length", [cells])), call_function("list_flatten", [cells])
    widths = _numbers(call_function("list_value_length", [vectors]))
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if not lengths.all():
        raise UserError(f"data.path={path}: row {np.argmin(lengths) + 1:,} contains no vector; remove the row")
    width = int(widths[0])
    wrong = np.flatnonzero((widths != width) | (widths == 0))
    if len(wrong):
        row = np.searchsorted(offsets, wrong[0], side="right")
        raise UserError(
            f"data.path={path}: row {row:,} has a vector of {widths[wrong[0]]:.0f} numbers, but the first has {width}; "
            "all vectors need the same width, at least 1"
        )
    try:
        values = call_function("list_flatten", [vectors]).cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException as error:
        raise UserError(f"data.values_column={column}: {path} contains non-numeric values ({error})") from None
    large = np.flatnonzero(np.abs(values) > LARGEST)
    if len(large):
        row = np.searchsorted(offsets * width, large[0], side="right")
        raise UserError(f"data.path={path}: row {row:,} contains {values[large[0]]:g}; write null for a missing value")
    return numbered_series(values.reshape(-1, width), lengths.tolist(), "value")


def _numbers(column: pa.Array) -> np.ndarray:
    """Return a column of whole numbers as an array, with 0 for null."""
    return np.nan_to_num(column.to_numpy(zero_copy_only=False))


# -- synthetic movies --------------------------------------------------------------------------------------------------

OBJECTS = ("cat", "dog", "ball", "car", "bird", "boat", "kite", "train")
MOVES = {"left": (-1, 0), "right": (1, 0), "up": (0, 1), "down": (0, -1)}
LOOKS = 8  # numbers per frame that encode the object; two more are its position
SHORTEST, LONGEST = 3, 6  # frames per object
STEP = 0.5  # distance that an object moves per frame


class Movie(NamedTuple):
    """One sequence of frames."""

    frames: Float[np.ndarray, "T F"]
    sentence: str
    owner: list[int]  # for each frame, the index in the sentence of the object that it shows


class Frames(VectorSource):
    """Movies of one to `most` objects, one after another: `a cat moves left then a kite moves up`.

    A frame contains the appearance of its object, a unit vector that is the same in all movies, and its position, both
    with noise. A single frame does not show how the object moves.
    """

    fields = ("values", "target")

    def __init__(
        self,
        *,
        size: int = 5000,
        most: int = 3,
        noise: float = 0.1,
        seed: int = 0,
        validation_fraction: float = 0.1,
        test_fraction: float = 0.1,
    ) -> None:
        """Set the sizes.

        Args:
            size: Movies in all splits together.
            most: Maximum number of objects per movie, all different.
            noise: Standard deviation of the noise on each number of a frame.
            seed: Seed of all random choices.
            validation_fraction: Fraction of the movies that is validation.
            test_fraction: Fraction of the movies that is test.
        """
        super().__init__(missing="mask", validation_fraction=validation_fraction, test_fraction=test_fraction)
        if most > len(OBJECTS):
            raise UserError(f"data.most={most}: there are {len(OBJECTS)} objects; use at most {len(OBJECTS)}")
        self.size, self.most, self.noise, self.seed = size, most, noise, seed

    def describe(self) -> dict[str, Any]:
        return {"source": "frames", "seed": self.seed, "series": self.size, "most": self.most, "noise": self.noise}

    @cached_property
    def movies(self) -> list[Movie]:
        """All movies; a larger `size` does not change the first ones."""
        # The seed does not change how objects look: a run may be evaluated on movies of another seed.
        looks = np.random.Generator(np.random.PCG64(0)).standard_normal((len(OBJECTS), LOOKS))
        looks /= np.linalg.norm(looks, axis=1, keepdims=True)
        return [
            self._draw(np.random.Generator(np.random.PCG64([self.seed, number])), looks) for number in range(self.size)
        ]

    def _draw(self, generator: np.random.Generator, looks: Float[np.ndarray, "n L"]) -> Movie:
        count = int(generator.integers(1, self.most + 1))
        frames, clauses, owner = [], [], []
        for place, thing in enumerate(generator.permutation(len(OBJECTS))[:count]):
            move = str(generator.choice(list(MOVES)))
            length = int(generator.integers(SHORTEST, LONGEST + 1))
            way = generator.uniform(-1, 1, 2) + STEP * np.arange(length)[:, None] * np.array(MOVES[move])
            frames.append(np.concatenate([np.tile(looks[thing], (length, 1)), way], 1))
            clauses.append(f"a {OBJECTS[thing]} moves {move}")
            owner += [place] * length
        whole = np.concatenate(frames)
        return Movie(whole + self.noise * generator.standard_normal(whole.shape), " then ".join(clauses), owner)

    def read(self) -> Series:
        frames = [movie.frames for movie in self.movies]
        return numbered_series(np.concatenate(frames), list(map(len, frames)), "value")

    def answers(self, field: str) -> Sequence[str]:
        return [movie.sentence for movie in self.movies]
