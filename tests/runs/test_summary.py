"""Laws of summary.json: which entries it has, in which order, and what is made of one that a stranger wrote."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.runs.summary import RELIED_ON, TYPES, Summary
from tests.conftest import Seqtrain
from tests.support.tiny import OPTIONS, corpus

TASK = (
    "task",
    "monitor",
    "compared_by",
    "measures",
    "trained_by",
    "answered_by",
    "signatures",
    "baseline_words",
    "example_text",
)
MACHINE = ("versions", "platform", "cpu", "cores", "commit", "world_size")
COST = ("parameters", "padding", "state", "max_steps", "flops_per_token", "context")
RESULT = (
    *("metrics", "best", "baselines", "splits", "steps", "ended_by", "tokens", "skipped", "clipped"),
    *("flops", "seconds", "tokens_per_second", "unknown"),
)
BEGUN = ("status", "command", "trust", *MACHINE, *TASK)
LIMITS = ("trainer.max_steps=4", "trainer.validate_every=4", "trainer.log_every=2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus(tmp_path_factory.mktemp("summary"))


def entries(run: Path) -> tuple[str, ...]:
    """Names in summary.json, in their order."""
    return tuple(json.loads((run / "summary.json").read_text()))


@pytest.mark.long
def test_a_run_writes_the_same_entries_in_the_same_order_also_when_it_goes_on(folder: Path, seqtrain: Seqtrain) -> None:
    assert seqtrain("train", *OPTIONS, *LIMITS, "run_dir=run", cwd=folder).rc == 0
    expected = (*BEGUN, "identity", "hashes", "data", "sizes", "leaks", *COST, *RESULT)
    assert entries(folder / "run") == expected
    Run(folder / "run").update_summary(status="failed", reason="the disk is full")
    assert entries(folder / "run") == (*expected, "reason")
    assert seqtrain("resume", "run", "trainer.max_steps=6", cwd=folder).rc == 0
    assert entries(folder / "run") == (*expected, "extended")
    assert Run(folder / "run").summary.extended == ["trainer.max_steps: 4 -> 6 at step 4"]
    assert set(expected) <= TYPES.keys()


def test_with_a_budget_the_identity_is_known_once_it_is_solved_for(folder: Path, seqtrain: Seqtrain) -> None:
    limits = ("budget=params:3e4", *LIMITS)
    options = [option for option in OPTIONS if not option.startswith("model.dim")]
    assert seqtrain("train", *options, *limits, "run_dir=solved", cwd=folder).rc == 0
    assert entries(folder / "solved") == (
        *BEGUN,
        "hashes",
        "data",
        "sizes",
        "leaks",
        "identity",
        *COST,
        "budget",
        *RESULT,
    )


def test_what_is_read_is_written_again_to_the_byte(tmp_path: Path) -> None:
    content = {
        "steps": 4,
        "status": "finished",  # not in the order of the fields
        "of another version": [1, {"a": "nan"}],
        "order": "an entry of this name, too",
        "commit": None,
        "metrics": {"validation": {"loss": "nan", "bits": "-inf", "accuracy": 0.5}},
        "flops": 7,
        "tokens_per_second": "inf",
        "reason": "nan",
        "trust": ["ünïcode"],
    }
    before = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    (tmp_path / "summary.json").write_text(before)
    summary = Summary.read(tmp_path / "summary.json")
    assert (summary.tokens_per_second, summary.reason) == (math.inf, "nan")
    assert math.isnan(summary.metrics["validation"]["loss"])
    summary.write(tmp_path / "summary.json")
    assert (tmp_path / "summary.json").read_text() == before


OTHERS: dict[type, Any] = {str: 7, int: True, float: "fast", bool: 1, dict: ["a"], list: {"a": 1}}
"""For each type of a field a value of another type."""


def test_an_entry_of_another_type_counts_as_absent() -> None:
    for name, (kind, *_) in TYPES.items():
        summary = Summary.from_plain({name: OTHERS[kind]})
        assert getattr(summary, name) == getattr(Summary(), name), name
        assert summary.to_plain() == {}, name


def test_what_decides_of_a_run_is_refused_where_it_has_another_type(tmp_path: Path) -> None:
    for name in RELIED_ON:
        for value in (None, True, 1.5, ["a"]):
            (tmp_path / "summary.json").write_text(json.dumps({name: value}))
            with pytest.raises(UserError, match=f"{name}=.*: not in the form that a run writes"):
                Summary.read(tmp_path / "summary.json")


def test_an_entry_that_is_removed_leaves_its_default_and_comes_back_at_the_end() -> None:
    summary = Summary.from_plain({"reason": "full", "hashes": {"train": "a"}, "status": "failed"})
    summary.remove("reason")
    assert summary.reason is None
    summary.update(status="pruned", reason="slow")
    assert summary.to_plain() == {"hashes": {"train": "a"}, "status": "pruned", "reason": "slow"}
    assert list(summary.to_plain()) == ["hashes", "status", "reason"]


def test_an_entry_of_any_name_is_kept_and_names_nothing_of_ours() -> None:
    for name in ("self", "entries", "cls", "order", "other", "update"):
        content = {"status": "finished", name: 1}
        summary = Summary.from_plain(content)
        assert (summary.status, summary.to_plain()) == ("finished", content)
