"""Laws of `seqtrain demo`: what is kept of an earlier call, what is refused, and what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib import image

from seqtrain.analysis import demo
from seqtrain.analysis.demos import order
from seqtrain.cli import kept_runs
from seqtrain.cli.demo import PRECISION
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from tests.conftest import Seqtrain
from tests.support.tiny import wait_until


def test_an_unknown_name_is_refused_in_one_line_with_the_nearest(seqtrain: Seqtrain, tmp_path: Path) -> None:
    answer = seqtrain("demo", "ordre", cwd=tmp_path)
    assert (answer.rc, answer.out) == (2, "")
    assert answer.err == "error: ordre: no such demonstration; did you mean order?\n"
    assert list(tmp_path.iterdir()) == []


def test_an_override_is_refused_and_a_folder_that_cannot_be_is_said_alone(seqtrain: Seqtrain, tmp_path: Path) -> None:
    answer = seqtrain("demo", "trainer=gpu", cwd=tmp_path)
    assert answer.rc == 2
    assert answer.err.startswith("error: trainer=gpu: a demonstration has its own models and takes no overrides")
    (tmp_path / "taken").write_text("a file")
    answer = seqtrain("demo", "perpendicular", "--out", "taken", cwd=tmp_path)
    assert (answer.rc, answer.out, answer.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("value", ["0", "101", "some"])
def test_a_number_of_seeds_out_of_range_is_refused(seqtrain: Seqtrain, tmp_path: Path, value: str) -> None:
    answer = seqtrain("demo", "order", "--seeds", value, cwd=tmp_path)
    assert answer.rc == 2
    assert "--seeds" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_without_a_name_each_demonstration_is_listed_with_its_claim(seqtrain: Seqtrain, tmp_path: Path) -> None:
    lines = seqtrain("demo", cwd=tmp_path).out.splitlines()
    listed = [json.loads(line) for line in seqtrain("demo", "--json", cwd=tmp_path).out.splitlines()]
    assert [each["name"] for each in listed] == demo.names()
    assert {"agreement", "order", "perpendicular"} <= set(demo.names())
    for line, each in zip(lines, listed, strict=True):
        assert line.split()[0] == each["name"]
        assert line.endswith(each["claim"])


@pytest.mark.long
def test_its_record_is_the_same_on_stdout_and_in_its_folder_beside_a_real_picture(
    seqtrain: Seqtrain, tmp_path: Path
) -> None:
    answer = seqtrain("demo", "perpendicular", "--json", "--seeds", "2", "--out", "shown", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    record = json.loads(answer.out)
    folder = tmp_path / "shown" / "perpendicular"
    assert record == json.loads((folder / "perpendicular.json").read_text())
    assert (record["name"], record["seeds"], record["holds"]) == ("perpendicular", 2, True)
    assert record["numbers"]["angle_off_90"] < 2
    for picture in record["pictures"]:
        pixels = image.imread(folder / picture)
        assert min(pixels.shape[:2]) > 200
        assert pixels.std() > 0.05  # something is drawn on it


def test_a_table_is_shown_with_its_verdict(seqtrain: Seqtrain, tmp_path: Path) -> None:
    answer = seqtrain("demo", "perpendicular", cwd=tmp_path)
    record = json.loads((tmp_path / "outputs/demo/perpendicular/perpendicular.json").read_text())
    claim, _, header, *rows, blank, verdict = answer.out.splitlines()
    assert claim == f"claim: {record['claim']}"
    assert header.split() == list(record["rows"][0])
    assert len(rows) == len(record["rows"])
    assert (blank, verdict) == ("", record["verdict"])


@pytest.mark.parametrize("name", demo.names())
def test_each_demonstration_says_what_it_claims_and_takes_at_most_three_minutes_and_a_half(name: str) -> None:
    found = demo.load(name)
    assert found.claim.endswith(".")
    assert 0 < found.seconds <= 210


FIRST = order.READERS[0]


def first_run(folder: Path, *more: str) -> Path:
    """The run of the first model of `seqtrain demo order`, as the demonstration asks for it."""
    return kept_runs.trainer(folder, PRECISION)(f"{FIRST.slug}-1", *FIRST.asked(1), *more)


@pytest.fixture
def killed(seqtrain: Seqtrain, tmp_path: Path) -> Path:
    """The runs of a demonstration that was killed in the middle of its first training."""
    child = seqtrain.start("demo", "order", "--out", str(tmp_path / "shown"), cwd=tmp_path)
    runs = tmp_path / "shown" / "order" / "runs"
    metrics = runs / f"{FIRST.slug}-1" / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0, child, "its first point")
    child.kill()
    child.wait()
    return runs


def test_a_demonstration_trains_in_float32_also_where_there_are_bf16_units(killed: Path) -> None:
    assert "trainer.precision=32-true" in json.loads((killed / f"{FIRST.slug}-1.overrides.json").read_text())


@pytest.mark.long
def test_a_killed_demonstration_goes_on_with_the_run_that_it_was_at(killed: Path) -> None:
    run = Run(killed / f"{FIRST.slug}-1")
    begun = run.identity
    assert run.summary.status != "finished"
    assert first_run(killed) == run.path
    again = Run(run.path)
    assert (again.summary.status, again.identity) == ("finished", begun)
    assert again.summary.steps == 300
    files = {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.is_file()}
    assert first_run(killed) == run.path  # and a finished one is taken as it is
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.is_file()} == files


def test_a_run_of_other_options_in_its_place_is_refused(killed: Path) -> None:
    with pytest.raises(UserError, match="other options made this run; remove it, or give another --out") as refused:
        first_run(killed, "model.dim=16")
    assert len(refused.value.lines) == 1


@pytest.mark.long
def test_a_place_that_a_run_was_killed_in_before_it_began_is_used(tmp_path: Path) -> None:
    place = tmp_path / f"{FIRST.slug}-1"
    place.mkdir()
    assert Run(first_run(tmp_path)).summary.status == "finished"


def test_a_folder_of_somebody_else_in_its_place_is_left_alone(tmp_path: Path) -> None:
    strange = tmp_path / f"{FIRST.slug}-1"
    strange.mkdir()
    (strange / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="exists already: it is not empty") as refused:
        first_run(tmp_path)
    assert len(refused.value.lines) == 1
    assert [path.name for path in strange.iterdir()] == ["notes.txt"]
