"""`compare --split test`: the kept figures of the asked checkpoint count, no others, and what misleads is said."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from seqtrain.cli.main import main
from seqtrain.compare import held_out
from seqtrain.compare.entries import read
from seqtrain.compare.groups import groups
from seqtrain.compare.rules import Case, notes
from seqtrain.errors import UserError
from tests.support import fake_runs

# By validation lstm is the better one, by test gpt is.
VARIANTS = {"lstm": (1.5, 2.5), "gpt": (1.6, 2.0)}
SEEDS = (1, 2, 3)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for model, (validation, test) in VARIANTS.items():
        for seed in SEEDS:
            path = fake_runs.run(tmp_path / f"{model}{seed}", validation + seed / 1000, model=model, seed=seed)
            fake_runs.evaluated(path, test + seed / 1000)
    return tmp_path


def compare(folder: Path, *words: str) -> int:
    return main(["compare", str(folder), *words])


def shown(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> str:
    assert compare(folder, *words) == 0
    return capsys.readouterr().out


def record(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> dict[str, Any]:
    return json.loads(shown(capsys, folder, "--json", *words))


def test_the_verdict_is_about_the_split_that_was_asked_for(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "lstm beats gpt by 0.1000 bits per byte" in shown(capsys, runs)
    text = shown(capsys, runs, "--split", "test")
    assert "bits per byte of test (best checkpoint), 6 runs" in text
    assert "gpt beats lstm by 0.5000 bits per byte" in text
    assert "test split evaluated" not in text  # once each is nothing to warn of


def test_a_target_is_held_against_the_test_split_and_no_step_is_read_off_validations(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "at every validation from step" in shown(capsys, runs, "--target", "2.2")
    tested = shown(capsys, runs, "--target", "2.2", "--split", "test")
    reached = next(line for line in tested.splitlines() if "reached by" in line)
    assert reached.strip().endswith("reached by gpt 2.002 bits per byte over 3 seeds (p < 0.01)")


def test_csv_and_json_hold_the_figures_of_both_splits(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("--split", "test")):
        rows = list(csv.DictReader(io.StringIO(shown(capsys, runs, "--csv", "-", *words))))
        assert len(rows) == 6
        for row in rows:
            validation, test = VARIANTS[row["model"]]
            assert float(row["final"]) == pytest.approx(validation + int(row["seed"]) / 1000)
            assert float(row["test"]) == pytest.approx(test + int(row["seed"]) / 1000)
            assert (row["test_checkpoint"], row["test_step"], row["test_looks"]) == ("best", "50", "1")
    found = record(capsys, runs, "--split", "test")
    assert found["groups"][0]["split"] == "test"
    assert found["runs"][0]["test"] == pytest.approx(2.001)


def test_a_run_without_test_figures_is_left_out_with_the_command_that_makes_them(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs / "gpt2" / "evaluations.jsonl").unlink()
    text = shown(capsys, runs, "--split", "test")
    line = next(line for line in text.splitlines() if line.startswith("left out: "))
    assert "gpt2: no test results of its best checkpoint are recorded; `" in line
    command = shlex.split(line.split("`")[1])
    assert command == ["seqtrain", "evaluate", str(runs / "gpt2"), "--split", "test"]
    # Who evaluates only the good seeds shows what he likes: it stands beside the verdict, too.
    assert "1 run was left out: no test results" in text


def test_figures_of_weights_that_have_gone_on_since_are_left_out(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = runs / "gpt2"
    summary = json.loads((path / "summary.json").read_text())
    summary["best"]["step"] = 100
    (path / "summary.json").write_text(json.dumps(summary))
    text = shown(capsys, runs, "--split", "test")
    assert "gpt2: its test results are of step 50, but its best checkpoint is now of step 100; `seqtrain" in text


def test_evaluations_of_two_checkpoints_are_not_mixed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake_runs.evaluated(runs / "gpt1", 9.0, checkpoint="last")
    fake_runs.evaluated(runs / "lstm1", 8.0, checkpoint="last")
    values = [row["test"] for row in record(capsys, runs, "--split", "test")["runs"]]
    assert max(values) < 3
    found = record(capsys, runs, "--split", "test", "--checkpoint", "last")
    assert [row["test"] for row in found["runs"]] == [8.0, 9.0]
    assert sum("no test results of its last checkpoint" in line for line in found["not_run"]) == 4
    assert sum("--split test --checkpoint last" in line for line in found["not_run"]) == 4


def test_of_several_evaluations_the_newest_counts_and_looks_are_said(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_runs.evaluated(runs / "gpt1", 2.1, commit="f" * 40)
    fake_runs.evaluated(runs / "gpt1", 2.2, commit="f" * 40)
    (group,) = record(capsys, runs, "--split", "test")["groups"]
    assert max(group["variants"][0]["values"]) == 2.2
    notes = "\n".join(group["notes"])
    assert "test split evaluated 1 to 3 times in a run (most often in" in notes


def test_figures_of_other_text_or_another_reading_of_it_stand_apart(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"hash": "0" * 32}, "other test text"),
        ({"options": {"eval_lanes": 8}}, "test was read on another number of lanes: 8, not 4"),
    ]
    for changes, reason in cases:
        for seed in SEEDS:
            fake_runs.evaluated(runs / f"lstm{seed}", 1.0, **changes)
        first, second = record(capsys, runs, "--split", "test")["groups"]
        assert [first["reason"], second["reason"]] == [[], [reason]]
        assert "beats" not in str(first["verdict"]) + str(second["verdict"])


def test_a_torn_or_forged_line_is_said_and_steers_no_terminal(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (runs / "gpt1" / "evaluations.jsonl").open("a") as file:
        file.write('{"split": "test", "metrics": {"bits_per_byte": 0.1}, "date": "\\u001b[2J"}\n{"split": "te')
    text = shown(capsys, runs, "--split", "test")
    assert "gpt1/evaluations.jsonl: unreadable lines left out: 2" in text
    assert "\x1b" not in text


def test_where_no_run_has_test_figures_the_command_is_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(runs, "--split", "test", "--checkpoint", "last") == 2
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == "error: --split test: no run has comparable test results"
    assert "no test results of its last checkpoint are recorded; `seqtrain evaluate" in second


def test_what_a_run_keeps_is_no_place_for_a_table(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = runs / "gpt1" / "evaluations.jsonl"
    before = kept.read_text()
    assert compare(runs, "--latex", "--output", str(kept)) == 2
    assert kept.read_text() == before


def test_figures_of_a_named_test_set_are_compared_by_its_name_alone(tmp_path: Path) -> None:
    for seed, value in enumerate((1.0, 2.0), 1):
        run = fake_runs.run(tmp_path / str(seed), 1.5, seed=seed)
        fake_runs.evaluated(run, value, test_set="news")
        fake_runs.evaluated(run, value + 5, test_set="films", hash="f" * 32)
    entries = read([tmp_path])
    found, missing = held_out.with_results(entries, "best", "news")
    assert [entry.metric("bits_per_byte") for entry in found] == [1.0, 2.0]
    assert not missing
    (group,) = groups(found)
    assert held_out.compared_figures(group) == "test set news (best checkpoint)"
    assert not [note for note in notes(Case(group)) if "evaluated" in note]
    # A figure of one set is none of test: which one is meant must be said.
    with pytest.raises(UserError, match="--test-set films or news"):
        held_out.with_results(entries, "best")
