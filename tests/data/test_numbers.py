"""Laws of labels that are numbers: they are read from every format, and what is no finite number is one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from seqtrain.config.signatures import class_attribute
from seqtrain.data.preprocess import prepare_rows
from seqtrain.data.sources.base import Source
from seqtrain.data.sources.hub import Hub
from seqtrain.data.sources.text import Text
from seqtrain.data.tokenizers.recipes import Char
from seqtrain.errors import UserError
from tests.support import outside_tasks

VALUES = [0.1, -2, 1e-30, 3.5e8]


def put(folder: Path, format: str, values: list[Any], kind: Any = None) -> Path:
    """A file whose only split has these labels."""
    folder.mkdir(exist_ok=True)
    path = folder / f"train.{format}"
    if format == "parquet":
        columns = {"text": ["a"] * len(values), "label": pyarrow.array(values, kind)}
        parquet.write_table(pyarrow.table(columns), path)
    elif format == "jsonl":
        path.write_text("".join(json.dumps({"text": "a", "label": value}) + "\n" for value in values))
    else:
        between = {"csv": ",", "tsv": "\t"}[format]
        path.write_text(f"text{between}label\n" + "".join(f"a{between}{value}\n" for value in values))
    return path


def numbers(source: Source, cache: Path) -> list[float]:
    source.expect_numbers()  # type: ignore[attr-defined]
    source.check()
    _, rows = prepare_rows(
        source, Char(), ["train"], source.fields, label_kind="number", cache=cache, say=lambda line: None
    )
    labels = rows["train"].labels
    assert isinstance(labels, np.ndarray)
    assert labels.dtype == np.float64
    return labels.tolist()


def local(path: Path) -> Text:
    return Text(path=str(path), label_column="label", validation_fraction=0.0)


def of_hub(folder: Path) -> Hub:
    return Hub(path=str(folder), label_column="label", validation_split=None, test_split=None, validation_fraction=0.0)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")


def test_numbers_of_every_format_are_read_to_the_last_bit(tmp_path: Path) -> None:
    for format in ("jsonl", "parquet", "csv", "tsv"):
        assert numbers(local(put(tmp_path, format, VALUES)), tmp_path) == VALUES, format
    for format in ("jsonl", "parquet"):
        put(tmp_path / format, format, VALUES)
        assert numbers(of_hub(tmp_path / format), tmp_path) == VALUES, format
    for kind in (pyarrow.float16(), pyarrow.float32(), pyarrow.int16(), pyarrow.uint8()):
        given = list(np.array([1, 2, 200]).astype(kind.to_pandas_dtype()))
        assert numbers(local(put(tmp_path / str(kind), "parquet", given, kind)), tmp_path) == [1, 2, 200], kind


def test_what_is_no_finite_number_is_one_line_that_names_its_row(tmp_path: Path) -> None:
    for number, value in enumerate(("high", True, float("nan"), float("inf"), [1.0])):
        path = put(tmp_path / f"{number}", "jsonl", [0, value])
        shown = re.escape(str(value))
        with pytest.raises(UserError, match=rf"jsonl:2: label is {shown}, which is not a finite number"):
            numbers(local(path), tmp_path)
        of_a_hub = r"row 2: label is \w+, which is not a finite number|set data\.label_column to a column of numbers$"
        with pytest.raises(UserError, match=of_a_hub):
            numbers(of_hub(path.parent), tmp_path)


def test_what_a_task_takes_a_label_for_is_known_without_importing_it() -> None:
    outside = f"{outside_tasks.__package__}.outside.my_tasks"
    assert class_attribute(f"{outside}.regress.Regress", "label_kind") == "number"
    assert class_attribute(f"{outside}.tag.Tag", "label_kind") == "names"
    assert class_attribute("seqtrain.tasks.sentiment.Sentiment", "label_kind") == "name"
    assert class_attribute("seqtrain.tasks.sentiment.Nothing", "label_kind") is None
