"""evaluations.jsonl: what is kept stays readable whatever ends the writer, and a stranger's lines do not count."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.runs.evaluations import EVALUATIONS, Evaluation, keep, kept
from tests.support import fake_runs

ONE = Evaluation(
    split="test",
    checkpoint="best",
    step=50,
    metrics={"bits_per_byte": 1.5},
    hash="d" * 32,
    date="2026-11-21T10:00:00+00:00",
    commit="e" * 40 + "+",
    options={"batch_size": None, "eval_lanes": 4},
)
OTHER = replace(ONE, checkpoint="last", step=60, metrics={"bits_per_byte": 1.25}, commit=None)


def test_what_was_kept_is_read_back_in_order_and_counted(tmp_path: Path) -> None:
    assert kept(tmp_path).evaluations == ()
    for each in (ONE, OTHER, ONE):
        keep(tmp_path, each)
    found = kept(tmp_path)
    assert found.evaluations == (ONE, OTHER, ONE)
    assert found.looks() == 3
    assert found.newest("test", "last") == OTHER
    assert found.newest("validation", "best") is None


def test_a_writer_that_is_killed_at_any_byte_loses_its_own_line_alone(tmp_path: Path) -> None:
    path = tmp_path / EVALUATIONS
    keep(tmp_path, ONE)
    first = path.read_bytes()
    keep(tmp_path, OTHER)
    second = path.read_bytes()[len(first) :]
    for cut in range(len(second)):
        path.write_bytes(first + second[:cut])
        keep(tmp_path, ONE)
        found = kept(tmp_path)
        whole = cut == len(second) - 1  # all but the end of the line, which says nothing
        assert found.evaluations == ((ONE, OTHER, ONE) if whole else (ONE, ONE)), cut
        assert found.unreadable == (cut > 0 and not whole)


@pytest.mark.parametrize(
    "changes",
    [
        {"split": "train "},
        {"split": ["test"]},
        {"checkpoint": "newest"},
        {"step": True},
        {"step": -1},
        {"step": "50"},
        {"metrics": [1.5]},
        {"hash": "../../x"},
        {"hash": 5},
        {"date": "yesterday"},
        {"date": "2026-11-21"},
        {"date": 20261121},
        {"commit": "HEAD; rm"},
        {"options": None},
        {"test_set": ["news"]},
    ],
    ids=str,
)
def test_a_line_that_evaluate_does_not_write_is_left_out_and_counted(tmp_path: Path, changes: dict[str, Any]) -> None:
    fake_runs.evaluated(tmp_path, 1.5)
    fake_runs.evaluated(tmp_path, 1.0, **changes)
    found = kept(tmp_path)
    assert [evaluation.metrics["bits_per_byte"] for evaluation in found.evaluations] == [1.5]
    assert found.unreadable == 1


def test_figures_that_are_no_finite_numbers_are_no_figures(tmp_path: Path) -> None:
    metrics = {"loss": "nan", "perplexity": "inf", "name": "<b>", "accuracy": True, "bits_per_byte": 2}
    fake_runs.evaluated(tmp_path, 1.5, metrics=metrics)
    assert kept(tmp_path).evaluations[0].metrics == {"bits_per_byte": 2.0}


@pytest.mark.parametrize("trap", ["link", "pipe", "large", "deep"])
def test_a_file_that_a_stranger_laid_there_hangs_nothing_and_leads_nowhere(tmp_path: Path, trap: str) -> None:
    run = fake_runs.run(tmp_path / "run")
    path = run / EVALUATIONS
    if trap == "link":
        (tmp_path / "outside").write_text(json.dumps({"secret": 1}))
        path.symlink_to(tmp_path / "outside")
    elif trap == "pipe":
        os.mkfifo(path)
    elif trap == "large":
        with path.open("wb") as file:
            file.truncate(1 << 30)
    else:
        path.write_text("[" * 100_000 + "\n" + '{"a":' * 100_000 + "\n")
        assert kept(run).unreadable == 2
        return
    with pytest.raises(UserError):
        Run.open(run)
    with pytest.raises(UserError):
        kept(run)
    if trap == "link":
        with pytest.raises(UserError):
            keep(run, ONE)
        assert (tmp_path / "outside").read_text() == '{"secret": 1}'
