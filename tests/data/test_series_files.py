"""Laws of files of series: labels of the long form and of the UCR archive, quotes, and the known figure of ETTh1."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from seqtrain.data.preprocess import prepare_series
from seqtrain.data.sources.series import GAPS_STAY, SeriesFile, split_of_series
from seqtrain.data.sources.ucr import UCR, read_table
from seqtrain.tasks.forecast import Forecast
from seqtrain.tasks.sentiment import LabelledExamples
from tests.support.refused import refusal
from tests.support.series import csv, prepared, table

READS = ("values", "label")


def quiet(line: str) -> None:
    """Take a line, and say nothing."""


# -- long form ---------------------------------------------------------------------------------------------------------


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


def test_rows_left_out_of_an_even_time_are_said_and_read_alike_in_training_and_in_a_file_to_predict(
    tmp_path: Path,
) -> None:
    every = [f"s{n},{t},{n + t},{'xy'[n % 2]},{'ab'[t % 2]}" for n in range(10) for t in range(4)]
    for rows, said in ((every, []), ([line for line in every if not line.startswith("s4,2")], [GAPS_STAY])):
        found = source(tmp_path, "\n".join(["id,step,value,label,phase", *rows, ""]), "phase", test_fraction=0.0)
        assert len(found.series.values) == len(rows)
        assert found.remarks == said
        np.testing.assert_array_equal(found.series_of(tmp_path / "a.csv", ["value"]).values, found.series.values)
        labels = [*found.labels("train", "names"), *found.labels("validation", "names")]
        assert sum(len(label.split()) for label in labels) == len(rows)


def test_numbers_as_labels_may_be_missing_whole_or_not_in_every_format(tmp_path):
    rows = [{"id": f"s{n // 2}", "step": n % 2, "value": 1.0, "label": None if n < 2 else n / 4} for n in range(8)]
    csv_lines = [f"s{n // 2},{n % 2},1,{n / 4 if n > 1 else 'NA'}\n" for n in range(8)]
    texts = {"a.csv": "id,step,value,label\n" + "".join(csv_lines)}
    lines = [{**row, "label": 1 if row["label"] == 1.0 else row["label"]} for row in rows]
    texts["a.jsonl"] = "".join(json.dumps(row) + "\n" for row in lines)
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    nan = [float("nan") if label is None else label for label in columns["label"]]
    pq.write_table(pa.table({**columns, "label": nan}), tmp_path / "b.parquet")
    for name in (*texts, "a.parquet", "b.parquet"):
        found = SeriesFile(
            path=str(tmp_path / name),
            id_column="id",
            time_column="step",
            label_column="label",
            validation_fraction=0.0,
            test_fraction=0.0,
        )
        labels = [row.split() for row in found.labels("train", "numbers")]
        assert [[label if label == "_" else float(label) for label in row] for row in labels] == [
            ["_", "_"],
            [0.5, 0.75],
            [1.0, 1.25],
            [1.5, 1.75],
        ], name


LABEL_FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "series s0 has the labels x, y; write the same label in all rows": (content(label="y"), {}, "name"),
    "write the same number in all rows, or use task=regress_steps": (content(label="y"), {}, "number"),
    "has a label with white space": (content(phase="a b"), {"column": "phase"}, "names"),
    "has no label; add one, or remove the series": (content().replace(",x,", ",,"), {}, "name"),
    "series s0 has the label NA, a missing value": (content().replace(",x,", ",NA,"), {}, "name"),
    "series s0 has the label nan, a missing value": (content(phase="nan"), {"column": "phase"}, "names"),
}


def test_labels_that_say_nothing_and_options_that_cut_a_series_are_refused(tmp_path):
    for says, (text, options, kind) in LABEL_FAULTS.items():
        found = source(tmp_path, text, validation_fraction=0.0, test_fraction=0.0, **options)
        assert says in refusal(found.labels, "train", kind)
    for options in ({"channels": "apart"}, {"rows": [1, 1, 1]}):
        assert "each series is in one split" in refusal(source, tmp_path, content(), **options)
    assert "set data.id_column" in refusal(table, tmp_path, content(), label_column="label")


def test_a_quote_that_never_closes_is_told_with_its_line_and_one_that_closes_is_not_blamed(tmp_path: Path) -> None:
    one = '2024-01-02 06:00:00,1,"2'
    for rows in (['"2024-01-02 06:00:00,1,2'], ['2024-01-02 06:00:00,"1,2'], [one], [one] * 30):
        said = refusal(lambda given: table(tmp_path, csv(*given)).series, rows)
        assert "a.csv: line 32: a quote is not closed in its line; close it" in said, rows
    said = refusal(lambda: table(tmp_path, csv('"2024-01-02 06:00:00",oops,2')).series)
    assert "'oops' in column a is not a number" in said


# -- UCR archive -------------------------------------------------------------------------------------------------------


HEAD = "#about\n@problemName a\n@timeStamps false\n@classLabel true x y\n@data\n"


def written(folder: Path, content: str, name: str = "a_TRAIN.ts") -> Path:
    path = folder / name
    path.write_text(content)
    return path


def test_a_ts_file_gives_channels_missing_values_and_labels_and_a_tsv_file_the_same(tmp_path):
    tabs = HEAD.replace("classLabel ", "classLabel\t")
    found = read_table(written(tmp_path, f"{tabs}1,?,3:4,5,NaN:x\n\n7:8:y\n"))
    np.testing.assert_array_equal(found.series.values, [[1, 4], [np.nan, 5], [3, np.nan], [7, 8]])
    assert found.series.columns == ("channel 1", "channel 2")
    tsv = read_table(written(tmp_path, "x\t1\tNaN\t3\ny\t7\tNaN\tNaN\n", "a_TRAIN.tsv"))
    np.testing.assert_array_equal(tsv.series.values, [[1], [np.nan], [3], [7]])
    for each in (found, tsv):
        assert each.series.offsets.tolist() == [0, 3, 4]
        assert each.labels == ("x", "y")


def test_validation_has_the_same_share_of_each_label_every_time():
    labels = ["x"] * 40 + ["y"] * 10 + ["z"]
    found = split_of_series(labels, validation=0.2, test=0.1)
    assert np.bincount(found[:40]).tolist() == [28, 8, 4]
    assert np.bincount(found[40:50]).tolist() == [7, 2, 1]
    assert found[50] == 0
    assert (found == split_of_series(labels, validation=0.2, test=0.1)).all()


def test_train_and_validation_share_no_series_and_lack_none(tmp_path):
    rows = "".join(f"{n},{n + 1}:{'xy'[n % 2]}\n" for n in range(10))
    written(tmp_path, HEAD + rows)
    written(tmp_path, f"{HEAD}50,51:y\n", "a_TEST.ts")
    source = UCR(path=str(tmp_path))
    seen = []
    for split in ("train", "validation"):
        part = source.split(split)
        begins = part.begin[part.end > part.begin]
        seen += source.series.values[begins, 0].tolist()
        assert [("x", "y")[int(value) % 2] for value in source.series.values[begins, 0]] == source.labels(split, "name")
    assert sorted(seen) == list(range(10))
    assert source.labels("test", "name") == ["y"]


def test_a_model_reads_the_scaled_values_of_each_step_and_whether_one_is_missing_padded_and_cut(tmp_path):
    written(tmp_path, HEAD + "".join(f"{n},?,{n + 2}{',9' * (n % 3)}:{'xy'[n % 2]}\n" for n in range(10)))
    preprocessor, rows = prepare_series(
        UCR(path=str(tmp_path)), ("train",), ("values", "label"), preprocessor=None, say=lambda line: None
    )
    examples = LabelledExamples(rows["train"], preprocessor, max_length=4)
    batch = examples.collate(np.arange(len(rows["train"])), 0, {"loss": len(rows["train"])})
    split, scaling = rows["train"].series, preprocessor.series
    assert split is not None
    assert scaling is not None
    assert (batch.tokens.shape[2], batch.lengths.max(), examples.cut > 0) == (3, 4, True)
    held = np.flatnonzero(split.end > split.begin)
    for lane, number in enumerate(held):
        length = min(int(split.end[number] - split.begin[number]), 4)
        values = split.series.values[split.begin[number] :][:length, 0]
        scaled = np.nan_to_num((values - scaling.mean[0]) / scaling.std[0])
        seen = ~np.isnan(values)
        assert batch.tokens[lane, :length, 0].numpy() == pytest.approx(scaled, abs=1e-6)
        assert batch.tokens[lane, :length, 1].tolist() == seen.tolist()
        assert (batch.tokens[lane, length:] == 0).all()
        assert batch.lengths[lane] == length


FAULTS = {
    "another number of channels": (f"{HEAD}1:2:x\n1:y\n", "line 7 has 1 channels, but the first series has 2"),
    "channels of two lengths": (f"{HEAD}1,2:2:x\n", "line 6 has channels of different lengths (1, 2)"),
    "no label in a row": (f"{HEAD}1,2:?\n", "line 6 has no label"),
    "a channel alone, without its label": (f"{HEAD}1,2\n", "line 6 has no label"),
    "channels without their label": (f"{HEAD}1,2:3,4\n", "line 6 has no label"),
    "no labels at all": (HEAD.replace("true x y", "false") + "1,2\n", "has no labels (@classLabel false)"),
    "a label beside the header": (
        f"{HEAD}1:x\n2:X\n",
        "line 7 has the label 'X', which @classLabel does not name (x, y)",
    ),
    "no value in a series": (f"{HEAD}?,?:x\n", "line 6 contains no value"),
    "a word among values": (f"{HEAD}1,two:x\n", "line 6: 'two' is not a number"),
    "infinity": (f"{HEAD}1,inf:x\n", "line 6: inf is not a finite number"),
    "time stamps": (HEAD.replace("Stamps false", "Stamps true") + "(0,1):x\n", "has time stamps"),
    "a number in Python's spelling": (f"{HEAD}1,2_0:x\n", "line 6: '2_0' is not a number"),
    "no series": (HEAD, "contains no series"),
    "a text": ("Once upon a time\n", "not a .ts file of the UCR archive"),
}


def test_a_broken_file_is_refused_with_its_line_and_so_is_a_label_that_train_lacks(tmp_path):
    for fault, (content, says) in FAULTS.items():
        path = written(tmp_path, content)
        assert refusal(read_table, path).startswith(f"data.path={path}: {says}"), fault
    written(tmp_path, HEAD + "".join(f"{n}:{'xy'[n % 2]}\n" for n in range(10)))
    written(tmp_path, f"{HEAD.replace('x y', 'x y z')}5:z\n", "a_TEST.ts")
    options: dict[str, Any] = {"preprocessor": None, "say": quiet}
    said = refusal(prepare_series, UCR(path=str(tmp_path)), ("train", "test"), READS, **options)
    assert "series 1 of test has the label z, which no row of train has" in said
    for head, is_header in (("0\t1\t2\t3", True), ("label\t0\t1\t2", True), ("0\t1\t2\t4", False)):
        path = written(tmp_path, f"{head}\nx\t5\t6\t8\n", "a.tsv")
        if is_header:
            assert "line 1 is a header; write the table without" in refusal(read_table, path), head
        else:
            assert read_table(path).labels == ("0", "x")
    for rows in ("x\t0\t1\t2\n", "x\t0\t1\t2\ny\t1\t2\t3\n"):  # series that count, too
        assert read_table(written(tmp_path, rows, "a.tsv")).labels[0] == "x"


def test_a_label_that_is_no_number_is_told_with_its_series(tmp_path):
    for label in ("many", "1_000", "inf"):
        rows = "".join(f"s{n},0,{n},{label if n == 4 else n}\n" for n in range(6))
        found = source(tmp_path, "id,step,value,label\n" + rows, validation_fraction=0.0, test_fraction=0.0)
        said = refusal(prepare_series, found, ("train",), READS, label_kind="numbers", preprocessor=None, say=quiet)
        assert said == f"data: series s4 of train has the label {label}, which is not a finite number"


# -- ETT ---------------------------------------------------------------------------------------------------------------


ETTH1 = Path(__file__).parents[2].parent / "shared" / "data" / "ett" / "ETTh1.csv"


REAL = pytest.mark.skipif(not ETTH1.is_file(), reason=f"{ETTH1} is not there: it may not be shipped")


@pytest.mark.long
@REAL
def test_least_squares_of_336_values_has_the_known_figure_on_etth1_96_hours_ahead() -> None:
    preset: dict[str, Any] = yaml.safe_load((files("seqtrain.conf") / "data" / "etth1.yaml").read_text())
    del preset["defaults"]
    preprocessor, rows = prepared(SeriesFile(**{**preset, "path": str(ETTH1)}))
    # Each of 7 columns by itself.
    sizes = {split: part.size["rows"] for split, part in rows.items()}
    assert sizes == {"train": 7 * 8640, "validation": 7 * 2880, "test": 7 * 2880}
    options: dict[str, Any] = {"distribution": "point", "relative": True, "patch": 1, "dim": 1}
    task = Forecast(horizon=96, max_length=336, preprocessor=preprocessor, **options)
    found = task.baselines(rows["train"], rows["test"], preprocessor, lambda line: None)
    assert found["ar"]["mse"] == pytest.approx(0.370, abs=0.002)
    assert found["ar"]["mae"] == pytest.approx(0.392, abs=0.002)
    assert found["last_value"]["mse"] == pytest.approx(1.294, abs=0.002)
