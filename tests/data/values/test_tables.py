"""Laws of tables of series: what stands there is read, in every format; each fault is one line with a remedy."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from hydra.core.override_parser.overrides_parser import OverridesParser
from pyarrow import parquet

from seqtrain.data.preprocess import prepare_series
from seqtrain.data.values import blocks
from seqtrain.data.values.series import Clock
from tests.support.refused import refusal
from tests.support.series import csv, hours, prepared, table

PLAIN = csv()
ROWS = [line.split(",") for line in PLAIN.splitlines()[1:]]


def fault(folder: Path, content: str | bytes, **options: Any) -> str:
    """The one line that is said of a table."""
    folder.mkdir(exist_ok=True)
    return refusal(lambda: prepared(table(folder, content, **options)))


FAULTS = {
    "no header": (PLAIN.partition("\n")[2], {}, "not names of columns; add a header"),
    "text": (csv("2024-01-02 06:00:00,abc,1"), {}, "line 32: 'abc' in column a is not a number"),
    "unsorted": (csv("2024-01-01 00:00:00,1,1"), {}, "row 31 is earlier than the row before it; sort"),
    "repeated": (csv("2024-01-02 05:00:00,1,1"), {}, "row 31 repeats the time of the row before it"),
    "constant": ("a,b\n" + "".join(f"{n % 7},3\n" for n in range(60)), {}, "column b is always 3 in train"),
    "missing": ("a,b\n" + "".join(f"{n % 7},\n" for n in range(60)), {}, "column b has no value in train"),
    "known ends": ("a,b\n" + "".join(f"{n},{n if n < 50 else ''}\n" for n in range(60)), {"known_columns": ["b"]},
                   "row 51 lacks a value of data.known_columns"),
    "decimal commas": ("a;b\n" + "".join(f"{n},5;1\n" for n in range(60)), {}, "for decimal commas set"),
    "utf-16": (PLAIN.encode("utf-16"), {}, "is UTF-16; convert it"),
    "latin-1": (PLAIN.replace("b", "\xe9", 1).encode("latin-1"), {}, "not UTF-8 (byte 0xe9"),
    "latin-1 ids": (("a,id\n" + "1,\xe9\n" * 60).encode("latin-1"), {"id_column": "id"}, "is not UTF-8; convert"),
    "carriage returns": (PLAIN.replace("\n", "\r"), {}, "carriage return"),
    "empty": ("", {}, "is empty"),
    "an empty line of one column": ("a\n1\n\n3\n", {}, "line 3 is empty; write NaN if its value is missing"),
    "text in one column": ("a\n1\nx\n", {}, "'x' in column a is not a number; write NaN if the value is missing"),
    "header only": ("date,a,b\n", {}, "no row below its header"),
    "header without a line end": ("date,a,b", {}, "no row below its header"),
    "ragged": (csv("2024-01-02 06:00:00,1,1,1"), {}, "1,1,1; correct the row, or quote"),
    "short row": (csv("2024-01-02 06:00:00,1"), {}, "got 2: 2024-01-02 06:00:00,1; correct the row"),
    "zones and none": (csv("2024-01-02 06:00:00+02:00,1,1"), {}, "others without"),
    "days first": (csv().replace("2024-01-0", "01/0"), {}, "set data.time_format"),
    "another form": (PLAIN, {"time_format": "%d/%m/%Y"}, "expected times like %d/%m/%Y"),
    "no form": (PLAIN, {"time_format": "%q"}, "data.time_format=%q: 'q' is a bad directive"),
    "no time": (csv(",1,1"), {}, "has a row without a time"),
    "time by another name": (csv(header="Datum,a,b").replace("-", "."), {}, "set data.time_column=Datum"),
    "features without time": ("t,a\n" + "x,1\n" * 60, {"columns": ["a"], "time_features": ["hour"]}, "have no dates"),
    "two times": ("d,e,a\n" + "".join(f"{time},{time},1\n" for time in hours(60)), {}, "columns d and e contain dates"),
    "rows counted": ("No,a\n" + "".join(f"{n},{n % 7}\n" for n in range(60)), {},
                     "set data.time_column=No; if it is not a value, set data.columns=[a]"),
    "thousands": (csv(header="date;a;b").replace(",", ";").replace("3.5", "10,129"), {}, "write thousands without"),
    "ids that are no number": ("id,a\n" + "1.0,1\n" * 30 + "nan,2\n" * 30, {"id_column": "id"}, "without a name of"),
    "ids in two places": (csv("2024-01-02 06:00:00,1,1"), {"id_column": "a"}, "are not consecutive; sort"),
    "ids that differ by a space": ("id,a\n" + "x,1\n" * 30 + "y,1\n" * 30 + "x ,1\n", {"id_column": "id"},
                                   "rows of series x are not consecutive"),
    "ids not named": ("date,a\n" + "".join(f"{time},1\n" for time in hours(30) * 2), {}, "data.id_column"),
    "short series": ("id,a\n" + "x,1\n" * 30 + "y,2\n", {"id_column": "id"}, "series y has 1 row, which leaves none"),
    "unknown column": (PLAIN, {"columns": ["aa"]}, "no such column; did you mean a?"),
    "unknown time": (PLAIN, {"time_column": "dat"}, "no such column; did you mean date?"),
    "a column twice": (csv(header="date,a,a"), {}, "has the column 'a' twice"),
    "a column without a name": (csv(header="date,,b"), {}, "column 2 has no name in the header; name it"),
    "named twice": (PLAIN, {"columns": ["a", "a"]}, "data.columns: column a is named twice"),
    "time is known": (PLAIN, {"known_columns": ["date"]}, "data.known_columns and data.time_column: column date"),
    "time is id": (PLAIN, {"id_column": "date", "time_column": "date"}, "data.time_column and data.id_column"),
    "infinite": (csv("2024-01-02 06:00:00,inf,1"), {}, "column a contains an infinite number"),
    "huge": (csv("2024-01-02 06:00:00,1e300,1"), {}, "column a contains 1e+300, which is too large"),
    "one row": ("a\n1\n", {}, "has 1 row, which leaves none for validation"),
    "gzip": (gzip.compress(PLAIN.encode()), {}, "is compressed by gzip; unpack"),
    "another file": (PLAIN, {"name": "a.txt"}, "expected a name that ends in .csv"),
    "no parquet": (PLAIN, {"name": "a.parquet"}, "cannot be read as parquet"),
    "no object": ("[1]\n", {"name": "a.jsonl"}, "line 1 is not a JSON object"),
    "broken json": ('{"a": 1}\n{"a":', {"name": "a.jsonl"}, "JSON parse error"),
    "text in json": ('{"a": 1}\n{"a": "x"}\n', {"name": "a.jsonl"}, "changed from number to string in row 1"),
    "clock": (csv().replace("2024-01-0", "1"), {"columns": ["a"], "time_column": "b", "time_format": "%H"}, "like %H"),
    "rows of no train": (PLAIN, {"rows": [0, 30, 30]}, "data.rows=[0,30,30]: has no rows for train"),
    "more rows than there are": (PLAIN, {"rows": [30, 30, 30]}, "data.rows=[30,30,30]: the series has 60 rows"),
}  # fmt: skip


def test_a_bad_table_is_one_line_with_a_remedy(tmp_path):
    for name, (content, options, words) in FAULTS.items():
        said = fault(tmp_path / name, content, **options)
        assert words in said, f"{name}: {said}"


def test_the_option_for_decimal_commas_is_read_as_one_when_it_is_pasted_into_a_shell(tmp_path):
    content, options, words = FAULTS["decimal commas"]
    (word,) = shlex.split(fault(tmp_path, content, **options).partition(words)[2])
    override = OverridesParser.create().parse_override(word)
    assert (override.key_or_group, override.value()) == ("data.decimal", ",")


def test_a_fault_at_the_end_of_a_long_file_is_told_with_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 12)
    line = fault(tmp_path, "a,b\n" + "1.5,2\n" * 20_000 + "abc,2\n")
    assert "'abc' in column a is not a number" in line
    where = re.search(r"(line|after row) ([\d,]+):", line)
    assert where is not None
    # pyarrow does not always know the line; what we have read by then we know.
    assert 18_000 < int(where[2].replace(",", "")) <= 20_002


def json_lines() -> str:
    lines = []
    for date, a, b in ROWS:
        lines.append(json.dumps({"date": date, "a": float(a) if a else None, "b": float(b)}) + "\n")
    return "".join(lines)


SAME = {
    "quoted": (
        "a.csv",
        "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in PLAIN.splitlines()),
        {},
    ),
    "bom": ("a.csv", "\ufeff" + PLAIN, {}),
    "windows": ("a.csv", PLAIN.replace("\n", "\r\n"), {}),
    "blank lines": ("a.csv", PLAIN + "\n\n", {}),
    "semicolons": ("a.csv", PLAIN.replace(",", ";"), {}),
    "decimal commas": ("a.csv", PLAIN.replace(",", ";").replace(".", ","), {"decimal": ","}),
    "tabs": ("a.tsv", PLAIN.replace(",", "\t"), {}),
    "json lines": ("a.jsonl", json_lines(), {}),
    "universal time": ("a.csv", PLAIN.replace(":00:00", ":00:00Z"), {}),
    "another zone": ("a.csv", PLAIN.replace(":00:00", ":00:00+00:00"), {}),
    "json lines of a zone": ("a.jsonl", json_lines().replace(":00:00", ":00:00Z"), {}),
    "days first": ("a.csv", PLAIN.replace("2024-01-0", "/01/2024 0"), {"time_format": "/%m/%Y %d %H:%M:%S"}),
    "read by python": ("a.csv", PLAIN.replace(":00:00", ":00:00.25"), {"time_format": "%Y-%m-%d %H:%M:%S.%f"}),
}


def test_every_form_of_a_table_is_the_same_series(tmp_path):
    sound = table(tmp_path, PLAIN).series
    for name, (file, content, options) in SAME.items():
        (tmp_path / name).mkdir()
        found = table(tmp_path / name, content, name=file, **options).series
        assert found.columns == sound.columns, name
        assert found.has_dates, name
        assert np.array_equal(found.values, sound.values, equal_nan=True), name
        assert np.array_equal(found.times, sound.times), name


def test_parquet_is_the_same_series(tmp_path):
    days = [f"2024-01-{1 + number:02d}" for number in range(31)]
    sound = table(tmp_path, "date,a,b\n" + "".join(f"{day},{n * n},\n" for n, day in enumerate(days))).series
    values = [pyarrow.array([n * n for n in range(31)]), pyarrow.nulls(31)]
    for kind in (pyarrow.timestamp("us"), pyarrow.string(), pyarrow.date32()):
        columns = [pyarrow.array(days).cast(kind), *values]
        parquet.write_table(pyarrow.table(columns, names=["date", "a", "b"]), tmp_path / "a.parquet")
        found = table(tmp_path, (tmp_path / "a.parquet").read_bytes(), name=f"{kind}.parquet").series
        assert np.array_equal(found.values, sound.values, equal_nan=True), kind
        assert np.array_equal(found.times, sound.times), kind


def test_json_reads_whole_and_broken_numbers_and_absent_keys(tmp_path):
    lines = ['{"a": 1, "b": 2}', '{"a": 1.5}', '{"b": 3, "new": [1]}', '{"a": null, "b": 4}'] * 3
    found = table(tmp_path, "\n".join(lines), name="a.jsonl").series
    nan = np.nan
    assert np.array_equal(found.values[:4], [[1, 2], [1.5, nan], [nan, 3], [nan, 4]], equal_nan=True)


def test_a_table_of_one_column_has_a_row_for_each_line_and_none_for_blank_lines_at_its_end(tmp_path):
    found = table(tmp_path, "a\r\n1\r\nNaN\r\n3\r\n\r\n\r\n").series
    assert np.array_equal(found.values, [[1], [np.nan], [3]], equal_nan=True)


def test_series_are_named_by_their_ids_though_blocks_cut_them(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 64)
    for first, second in (("7", "8"), ("x", "y"), ("1.0", "2.0")):
        content = "id,a\n" + f"{first},1\n" * 50 + f"{second},1\n" * 41
        source = table(tmp_path, content, name=f"{first}.csv", id_column="id")
        assert source.series.names == (first, second)
        assert source.series.offsets.tolist() == [0, 50, 91]


def test_whole_numbers_are_steps_and_no_dates(tmp_path):
    found = table(tmp_path, "time,a\n" + "".join(f"{5 * n},{n % 3}\n" for n in range(60))).series
    assert not found.has_dates
    assert found.times is not None
    assert found.times[:3].tolist() == [0, 5, 10]


def test_gaps_in_time_are_missing_rows_and_said(tmp_path):
    lines = PLAIN.splitlines()
    source = table(tmp_path, "\n".join(lines[:10] + lines[13:]))
    found = source.series
    assert len(found.values) == 60
    assert np.isnan(found.values[9:12]).all()
    assert not np.isnan(np.delete(found.values, [9, 10, 11], 0)).any()
    assert found.times is not None
    assert np.array_equal(np.diff(found.times), np.full(59, 3600))
    assert source.remarks == ["data: 1 gaps in time; 3 rows with missing values are inserted"]


def test_months_are_of_uneven_length_and_go_on_by_the_calendar(tmp_path):
    months = [f"{1950 + number // 12}-{1 + number % 12:02d}" for number in range(60)]
    lines = "".join(f"{month},{number % 12}\n" for number, month in enumerate(months))
    for form in ("%Y-%m", None):
        source = table(tmp_path, "Month,a\n" + lines, time_format=form)
        scaling = prepared(source)[0].series
        assert scaling is not None
        assert (scaling.season, scaling.features) == (12, ("yearday",))
        assert scaling.words == "data: time: Month (%Y-%m); values: a; time features: yearday; season: 12 steps"
        assert len(source.series.values) == 60
        assert source.remarks == ["data: the time between rows is one month; each row is read as one step"]
        assert source.series.times is not None
        assert source.series.times[1] - source.series.times[0] == 31 * 86400


def test_a_test_split_without_a_value_is_said_before_training(tmp_path):
    for last, is_said in ((50, True), (51, False)):
        rows = "".join(f"{number},{number % 7 if number < last else ''}\n" for number in range(60))
        source, said = table(tmp_path, "time,a\n" + rows, name=f"{last}.csv", rows=[40, 10, 10]), []
        prepare_series(source, ("train", "validation"), preprocessor=None, say=said.append)
        assert ("data: all values of test are missing; its metrics cannot be computed" in said) == is_said


TIMES = {
    "days": ("2021-01-{:02d}", "%Y-%m-%d", None),
    "minutes of a zone": ("2021-01-{:02d}T15:00+02:00", "%Y-%m-%dT%H:%M+02:00", 7200),
    "universal time": ("2021-01-{:02d} 15:00:00Z", "%Y-%m-%d %H:%M:%SZ", 0),
    "compact days": ("202101{:02d}", "%Y%m%d", None),
    "years": ("19{:02d}", "", None),
    "epoch": ("16094592{:02d}", "", None),
}


def test_a_time_is_written_as_the_table_has_it(tmp_path):
    for name, (text, form, offset) in TIMES.items():
        lines = "".join(f"{number - 10},{text.format(number)},{number % 7}\n" for number in range(10, 30))
        source = table(tmp_path, ",date,a\n" + lines, name=f"{name}.csv")
        series = source.series
        assert series.columns == ("a",)
        assert "column '' counts the rows and is left out" in source.remarks[-1]
        assert series.clock == Clock("date", form, offset)
        assert series.times is not None
        assert [series.clock.text(time) for time in series.times.tolist()] == [text.format(n) for n in range(10, 30)]
