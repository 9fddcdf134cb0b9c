"""Laws of a sweep's directory: what it takes, what it refuses to read, what it knows of its trials."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from seqtrain.distributed.fork_server import Child
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.sweeps.folder import Asked, Sweep, member_of
from seqtrain.sweeps.launchers import _after
from tests.support import fake_runs
from tests.support.refused import refusal
from tests.sweeps.test_sweep import statuses


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """A sweep with a trial of each status."""
    return fake_runs.of_each_status(tmp_path / "sweep")


def test_a_sweep_takes_no_folder_that_is_not_empty(sweep: Sweep) -> None:
    home = sweep.path.parent
    (home / "file").touch()
    (home / "taken").mkdir()
    (home / "taken" / "thesis.tex").touch()
    for place, said in (
        ("sweep", "exists already; use `seqtrain resume"),
        ("taken", "exists already and is not an empty folder; give another one"),
        ("file/sweep", "cannot be made: Not a directory; give another one"),
    ):
        assert f"hydra.sweep.dir={home / place} {said}" in refusal(Sweep.create, home / place, Asked(()))
    assert [path.name for path in (home / "taken").iterdir()] == ["thesis.tex"]


def test_a_link_in_a_sweep_is_refused(sweep: Sweep) -> None:
    for place in ("000", "trials/000.json", "logs/000.txt"):
        path, aside = sweep.path / place, sweep.path.parent / "aside"
        was_there = path.exists()
        if was_there:
            path.rename(aside)
        path.symlink_to(sweep.path.parent)
        assert f"{place}: is a link, which a sweep never makes" in refusal(sweep.check_entries)
        path.unlink()
        if was_there:
            aside.rename(path)


def test_what_no_sweep_writes_is_a_fault_that_names_the_file(sweep: Sweep) -> None:
    trial = {"overrides": [], "label": "", "status": "planned", "reason": ""}
    for content in ({**trial, "status": "done"}, {**trial, "overrides": [1]}, {"overrides": [], "label": ""}, []):
        (sweep.path / "trials/000.json").write_text(json.dumps(content))
        assert "trials/000.json: not in the form that a sweep writes" in refusal(sweep.trials), content
    for content in (
        {"kind": "grid", "overrides": "seed=1"},
        {"kind": "grid", "trust": [1]},
        {"kind": "bayes", "overrides": []},
    ):
        (sweep.path / "sweep.yaml").write_text(json.dumps(content))
        assert "sweep.yaml: not in the form that a sweep writes" in refusal(lambda: sweep.asked), content


def test_a_number_that_was_not_planned_and_a_folder_that_is_no_sweep_are_faults(sweep: Sweep) -> None:
    with pytest.raises(UserError, match=r"no trial 017$"):
        sweep.trial(17)
    with pytest.raises(UserError, match=r"is not a sweep: it has no sweep\.yaml"):
        Sweep.open(sweep.path.parent)


def test_a_run_is_a_trial_only_where_its_folder_is_a_sweep(sweep: Sweep) -> None:
    member = member_of(sweep.path / "003")
    assert member is not None
    assert (member.sweep, member.trial, member.label) == ("sweep", "003", "seed=3")
    assert member_of(sweep.path / "017") is None
    (sweep.path / "sweep.yaml").unlink()
    assert member_of(sweep.path / "003") is None


def test_a_trial_that_could_not_say_so_itself_has_failed_and_so_has_its_run(sweep: Sweep) -> None:
    for number in (4, 5):  # one has begun, one has not
        sweep.trial(number).fail("killed")
        assert (sweep.trial(number).status, sweep.trial(number).reason) == ("failed", "killed")
    assert Run(sweep.path / "004").summary.status == "failed"


def test_what_was_planned_already_stays_as_it_stands(sweep: Sweep) -> None:
    before = statuses(sweep.path)
    for trial in sweep.trials():
        sweep.plan(trial.number, ["seed=9"], "seed=9")
    assert statuses(sweep.path) == before
    assert sweep.trial(2).overrides == ("seed=2",)


def test_trials_come_by_number_beyond_a_thousand_and_what_is_named_otherwise_is_passed_over(sweep: Sweep) -> None:
    for name in ("\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT TWO}", "x"):
        shutil.copy(sweep.path / "trials" / "000.json", sweep.path / "trials" / f"{name}.json")
    for number in (1000, 999):
        sweep.plan(number, [], "")
    assert [trial.number for trial in sweep.trials()] == [*range(len(fake_runs.STATUSES)), 999, 1000]


def test_a_sweep_that_is_moved_while_a_trial_runs_is_told_by_its_path(sweep: Sweep) -> None:
    trial = sweep.trial(0)
    sweep.path.rename(sweep.path.with_name("moved"))
    child = SimpleNamespace(poll=lambda: 1, stderr="", close=lambda: None)
    with pytest.raises(FileNotFoundError, match="sweep/trials"):
        _after(trial, cast(Child, child))
    assert not sweep.path.exists()
