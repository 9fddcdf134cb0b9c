"""Labels of series in long form: one for a series, or one for each row; whole series are in a split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seqtrain.data.preprocess import prepare_series
from seqtrain.data.sources.series import SeriesFile
from seqtrain.errors import UserError
from tests.support.series import table

READS = ("values", "label")


def content(*, label: str = "", phase: str = "") -> str:
    """Rows of ten series of two steps; the first has other labels in its second row, where they are given."""
    lines = ["id,step,value,label,phase"]
    for n in range(10):
        own = "xy"[n % 2]
        for t in range(2):
            odd = n == 0 and t == 1
            lines.append(f"s{n},{t},{n + t},{(label if odd else '') or own},{(phase if odd else '') or 'ab'[t]}")
    return "\n".join(lines) + "\n"


def source(folder: Path, text: str, column: str = "label", **options) -> SeriesFile:
    return table(folder, text, id_column="id", time_column="step", columns=["value"], label_column=column, **options)


def quiet(line: str) -> None:
    """Take a line, and say nothing."""


def test_splits_hold_whole_series_with_their_labels_and_lack_none(tmp_path):
    found = source(tmp_path, content())
    seen = []
    for split in ("train", "validation", "test"):
        part = found.split(split)
        held = np.flatnonzero(part.end > part.begin)
        assert (part.end - part.begin)[held].tolist() == [2] * len(held)
        assert found.labels(split, "name") == ["xy"[number % 2] for number in held]
        seen += held.tolist()
    assert sorted(seen) == list(range(10))


def test_labels_of_rows_stand_at_their_rows(tmp_path):
    preprocessor, rows = prepare_series(
        source(tmp_path, content(), "phase"), ("train",), READS, label_kind="names", preprocessor=None, say=quiet
    )
    assert preprocessor.labels == ("a", "b")
    assert [labels.tolist() for labels in rows["train"].labels] == [[0, 1]] * len(rows["train"])  # type: ignore[union-attr]


def test_without_a_label_column_series_are_cut_by_time(tmp_path):
    found = table(tmp_path, content(), id_column="id", time_column="step", columns=["value"], rows=[1, 1, 0])
    assert found.fields == ("values",)
    assert found.split("train").num_series == 10


FAULTS = {
    "two labels": (content(label="y"), {}, "name", "series s0 has the labels x, y; give it one in all rows"),
    "a label with a blank": (content(phase="a b"), {"column": "phase"}, "names", "has a label with white space"),
    "no label": (content().replace(",x,", ",,"), {}, "name", "has no label; give it one, or take it out"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_labels_that_say_nothing_are_refused_with_their_series(fault, tmp_path):
    text, options, kind, says = FAULTS[fault]
    found = source(tmp_path, text, validation_fraction=0.0, test_fraction=0.0, **options)
    with pytest.raises(UserError) as raised:
        found.labels("train", kind)
    assert says in str(raised.value)


@pytest.mark.parametrize("options", [{"channels": "apart"}, {"rows": [1, 1, 1]}])
def test_options_that_cut_a_series_are_refused_beside_a_label(options, tmp_path):
    with pytest.raises(UserError, match="whole series are in a split"):
        source(tmp_path, content(), **options)


def test_a_label_column_without_ids_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"set data\.id_column"):
        table(tmp_path, content(), label_column="label")
