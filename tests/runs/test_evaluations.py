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


WRONG: list[dict[str, Any]] = [
    *({"split": "train "}, {"split": ["test"]}, {"checkpoint": "newest"}, {"metrics": [1.5]}, {"options": None}),
    *({"step": True}, {"step": -1}, {"step": "50"}, {"hash": "../../x"}, {"hash": 5}, {"test_set": ["news"]}),
    *({"date": "yesterday"}, {"date": "2026-11-21"}, {"date": 20261121}, {"commit": "HEAD; rm"}),
]


def test_a_line_that_evaluate_does_not_write_is_left_out_and_counted(tmp_path: Path) -> None:
    fake_runs.evaluated(tmp_path, 1.5)
    for number, changes in enumerate(WRONG, 1):
        fake_runs.evaluated(tmp_path, 1.0, **changes)
        found = kept(tmp_path)
        assert [evaluation.metrics["bits_per_byte"] for evaluation in found.evaluations] == [1.5], changes
        assert found.unreadable == number, changes


def test_figures_that_are_no_finite_numbers_are_no_figures(tmp_path: Path) -> None:
    metrics = {"loss": "nan", "perplexity": "inf", "name": "<b>", "accuracy": True, "bits_per_byte": 2}
    fake_runs.evaluated(tmp_path, 1.5, metrics=metrics)
    assert kept(tmp_path).evaluations[0].metrics == {"bits_per_byte": 2.0}


def test_a_file_that_a_stranger_laid_there_hangs_nothing_and_leads_nowhere(tmp_path: Path) -> None:
    run, outside = fake_runs.run(tmp_path / "run"), tmp_path / "outside"
    path = run / EVALUATIONS
    outside.write_text(json.dumps({"secret": 1}))
    traps = (lambda: os.mkfifo(path), lambda: path.open("wb").truncate(1 << 30), lambda: path.symlink_to(outside))
    for lay in traps:
        path.unlink(missing_ok=True)
        lay()
        for read in (Run.open, kept):
            with pytest.raises(UserError):
                read(run)
    with pytest.raises(UserError):
        keep(run, ONE)
    assert outside.read_text() == '{"secret": 1}'
    path.unlink()
    path.write_text("[" * 100_000 + "\n" + '{"a":' * 100_000 + "\n")
    assert kept(run).unreadable == 2
