"""`seqtrain.compare` from Python: the numbers and sentences of the command, and what its tables must not mislead to."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seqtrain
from seqtrain.cli.main import main
from seqtrain.compare.entries import AXES
from seqtrain.errors import UserError
from tests.support import fake_runs, pages

VARIANTS = {"lstm": (1.5, 1.51, 1.52), "gpt": (1.63, 1.62, 1.64)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep, a run of it that is still being trained, and a run on another text."""
    fake_runs.sweep(tmp_path / "sweep", VARIANTS)
    fake_runs.run(tmp_path / "unlike", 0.1, hashes=fake_runs.HASHES | {"validation": "d" * 32})
    return tmp_path


HOLDS = """
import sys
from pathlib import Path
from seqtrain.runs.directory import Run
run = Run(Path(sys.argv[1]))
run.claim()
print(flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def still_running(path: Path, value: float) -> Iterator[None]:
    """A run with `value` recorded last, which another process writes."""
    fake_runs.run(path, value, seed=4, status="running", metrics={}, best={})
    program = [sys.executable, "-c", HOLDS, str(path)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        writer.stdout.readline()
        yield
        writer.communicate()


def same(one: Any, other: Any) -> bool:
    """Whether a cell of a table has the value of JSON, where what is missing is null."""
    missing = isinstance(one, float) and math.isnan(one)
    return other is None if missing or one is None else one == other


def test_the_tables_have_every_number_of_the_command_s_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, options in (([], {}), (["--x", "tokens", "--best"], {"x": "tokens", "checkpoint": "best"})):
        assert main(["compare", str(folder), "--json", *words]) == 0
        told = json.loads(capsys.readouterr().out)
        found = seqtrain.compare(folder, **options)
        rows = found.runs.to_dict("records")
        assert [row["name"] for row in rows] == [run["name"] for run in told["runs"]]
        for row, run in zip(rows, told["runs"], strict=True):
            assert [key for key, value in run.items() if not same(row[key], value)] == []
        of_json = [(group, variant) for group in told["groups"] for variant in group["variants"]]
        for row, (group, variant) in zip(found.variants.to_dict("records"), of_json, strict=True):
            counted = (group["group"], variant["name"], len(variant["values"]))
            assert (row["group"], row["variant"], row["seeds"]) == counted
            low, high = variant["interval"] or (None, None)
            numbers = {"mean": variant["mean"], "sd": variant["sd"], "low": low, "high": high}
            numbers |= {axis: variant["costs"].get(axis) for axis in AXES}
            assert [name for name, value in numbers.items() if not same(row[name], value)] == []
            own = [run["value"] for run in rows if (run["group"], run["variant"]) == counted[:2]]
            assert sum(own) / len(own) == pytest.approx(row["mean"], rel=1e-12)


def test_as_text_it_is_what_the_command_prints(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (fake_runs.run(folder / "damaged") / "summary.json").write_text('{"status": ')
    fake_runs.trial(folder / "sweep", 9, "model=rnn seed=9", status="refused", reason="it is so")
    paths = [str(folder), str(folder / "sweep")]
    assert main(["compare", *paths, "--x", "tokens"]) == 0
    assert capsys.readouterr().out == f"{seqtrain.compare(*paths, x='tokens')}\n"


def test_a_run_that_is_still_running_has_its_row_and_no_part_in_a_mean(folder: Path) -> None:
    before = seqtrain.compare(folder / "sweep")
    with still_running(folder / "sweep" / "running", 0.01):
        found = seqtrain.compare(folder / "sweep")
    row = found.runs.set_index("name").loc["sweep/running"]
    assert row["status"] == "running"
    assert math.isnan(row["value"])
    assert row["validation/bits_per_byte"] == row["final"] == 0.01
    lstm = found.variants.set_index("variant").loc["lstm"]
    assert (lstm["mean"], lstm["seeds"], lstm["runs"]) == (before.variants["mean"][0], 3, 4)
    assert found.remarks == ["does not count: sweep/running lstm: running"]
    assert found.history("validation/loss")["run"].tolist().count("sweep/running") == 1


def test_runs_that_are_not_alike_are_kept_apart_in_every_table_and_in_words(folder: Path) -> None:
    found = seqtrain.compare(folder)
    history = found.history("validation/bits_per_byte")
    for table in (found.runs, found.variants, history):
        assert table[table["variant"] == "lstm"].groupby("group").ngroups == 2
    apart = [sentence for sentence in found.verdict if "not compared with group 1" in sentence]
    assert apart == [
        "group 2: not compared with group 1: other validation text: the files themselves have changed; --across "
        "validation compares them anyway, and says what the result does not mean"
    ]
    assert all(sentence.startswith("group ") for sentence in found.verdict)
    figure = json.loads(found.plot().to_json() or "")
    assert "group 1 of 2" in figure["layout"]["title"]["text"]
    assert "unlike" not in json.dumps(figure["data"])
    other = json.loads(found.plot(group=2).to_json() or "")
    assert other["data"][0]["y"] == [0.1]


def test_the_figure_has_every_point_and_the_mean_of_seeds_as_far_as_all_of_them_come(tmp_path: Path) -> None:
    lengths = {1: 900, 2: 600, 3: 900}
    for seed, records in lengths.items():
        pages.run(tmp_path / str(seed), seed=seed, records=records, status="failed" if seed == 3 else "finished")
    found = seqtrain.compare(tmp_path)
    history = found.history("train/loss")
    for x, column in (("steps", "step"), ("tokens", "tokens")):
        drawn: Any = found.plot("train/loss", x=x)
        *runs, low, high, mean = drawn.data
        for trace, (_, own) in zip(runs, history.groupby("run"), strict=True):
            assert (list(trace.x), list(trace.y)) == (own[column].tolist(), own["value"].tolist())
        finished: Any = history[history["run"].str.contains("[12]$")].groupby(column)["value"]
        both = finished.agg(["min", "max", "mean", "count"]).query("count == 2")
        assert list(mean.x) == both.index.tolist()
        for trace, name in ((low, "min"), (high, "max"), (mean, "mean")):
            assert list(trace.y) == pytest.approx(both[name].tolist(), rel=1e-12)


FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "nothing named": (lambda at: seqtrain.compare(), "compare: name a run"),
    "no such axis": (lambda at: seqtrain.compare(at, x="epochs"), "x='epochs': expected steps or tokens or"),
    "no such checkpoint": (lambda at: seqtrain.compare(at, checkpoint="last"), "checkpoint='last': expected final or"),
    "a word for a list": (lambda at: seqtrain.compare(at, across="train"), "across='train': expected a list; write"),
    "no such curve": (lambda at: seqtrain.compare(at).history("loss"), "loss: no run recorded it; known: validation/"),
    "nothing to draw": (
        lambda at: seqtrain.compare(at).plot("lr"),
        "lr: no run of the group recorded it against steps",
    ),
    "no such group": (lambda at: seqtrain.compare(at).plot(group=3), "group=3: there are 2, numbered from 1"),
    "no axis to draw": (lambda at: seqtrain.compare(at).plot(x="epochs"), "x='epochs': expected steps"),
}


def test_a_mistake_is_one_line(folder: Path) -> None:
    for name, (call, says) in FAULTS.items():
        with pytest.raises(UserError) as caught:
            call(folder)
        (line,) = caught.value.lines
        assert says in line, name


def test_the_short_form_says_how_many_runs_stand_how_and_the_first_sentence(folder: Path) -> None:
    found = seqtrain.compare(folder / "sweep")
    first, second = repr(found).splitlines()
    assert first == "Compared(6 runs: 6 finished; 2 variants; bits per byte of validation)"
    assert second == found.verdict[0]
    assert second.startswith("lstm beats gpt by 0.12")
    assert len(repr(seqtrain.compare(folder)).splitlines()) == 3


def test_what_a_stranger_named_is_no_markup_in_a_notebook(tmp_path: Path) -> None:
    for seed in (1, 2):
        config = {"model._target_": "x.<img src=x onerror=alert(1)>"}
        fake_runs.run(tmp_path / f"<b>{seed}", 1.5 + seed / 10, seed=seed, config=config)
    found = seqtrain.compare(tmp_path)
    assert "<img" not in found._repr_html_()
    assert "<b>" not in found._repr_html_()
    drawn = found.plot().to_json() or ""
    assert "<img" not in drawn.replace("\\u003c", "<")
    assert "<b>" not in drawn.replace("\\u003c", "<")


FRESH = """
import sys, seqtrain
heavy = {"torch", "pandas", "plotly", "scipy", "numpy", "hydra", "yaml", "IPython"} & set(sys.modules)
assert not heavy, heavy
found = seqtrain.compare(sys.argv[1])
heavy = {"torch", "pandas", "plotly", "IPython"} & set(sys.modules)
assert not heavy, heavy
assert callable(seqtrain.compare), "importing its package has put the package in its place"
"""


def test_importing_seqtrain_imports_nothing_heavy_and_comparing_no_more_than_it_needs(folder: Path) -> None:
    answer = subprocess.run([sys.executable, "-c", FRESH, str(folder)], capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr
