"""Laws of sweeps: what becomes of each trial, what a killed sweep resumes, whose parameters each process has."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from seqtrain.cli.trial import _clear
from seqtrain.distributed.fork_server import Child
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.sweeps.folder import Sweep
from tests.conftest import Seqtrain
from tests.support.tiny import OPTIONS, assert_twins, corpus, final_state, newest_step, wait_until

TRAIN = ("train", *OPTIONS, "model=gru", "trainer.accelerator=cpu")
LONG = (*TRAIN, "trainer.max_steps=300", "trainer.checkpoint_every=10")
PATIENCE = 60.0


def statuses(sweep: Path) -> dict[str, str]:
    return {trial.name: trial.status for trial in Sweep.open(sweep).trials()}


def index(sweep: Path) -> list[dict[str, Any]]:
    return json.loads((sweep / "index.json").read_text())["trials"]


def written(sweep: Path) -> dict[Path, int]:
    """Every file of the runs, and when it was last written."""
    return {path: path.stat().st_mtime_ns for path in sweep.glob("[0-9]*/**/*") if path.is_file()}


# -- what becomes of trials --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of which trials finish, fail, are refused, and lack a key that others have; two at a time."""
    folder = corpus(tmp_path_factory.mktemp("mixed"), lines=100)
    grid = ("-m", "model=gru,min_gru", "model.bidirectional=false", "optimizer.lr=-1,0.01,1e30")
    options = ("trainer.max_steps=3", "hydra.sweep.dir=sweep", "hydra.launcher.n_jobs=2")
    answer = seqtrain("train", *OPTIONS, *grid, *options, cwd=folder)
    assert answer.rc == 2, answer.err
    assert "sweep sweep: 6 trials: 4 refused, 1 finished, 1 failed" in answer.out
    assert "2 trials at a time" in answer.err
    assert "trial 001 of 6 model=gru optimizer.lr=0.01: finished" in answer.err
    return folder / "sweep"


def test_each_trial_is_recorded_with_its_reason_and_the_others_are_trained_in_the_directories_of_their_numbers(
    mixed: Path,
) -> None:
    rows = {row["trial"]: (row["status"], row["reason"]) for row in index(mixed)}
    assert rows["000"] == ("refused", "optimizer.lr=-1: expected a number from 1e-12 to 1e+38")
    assert rows["001"] == ("finished", "")
    assert rows["002"][0] == "failed"
    assert "the loss is nan" in rows["002"][1]
    assert [rows[name][0] for name in ("003", "004", "005")] == ["refused"] * 3
    assert "min_gru has no option bidirectional" in rows["004"][1]
    assert [row["label"] for row in index(mixed)][1] == "model=gru optimizer.lr=0.01"
    assert sorted(path.name for path in mixed.glob("[0-9]*")) == ["001", "002"]
    assert Run(mixed / "001").config["optimizer"]["lr"] == 0.01
    assert Run(mixed / "001").summary.steps == 3
    assert "finished after 3 steps" in (mixed / "logs" / "001.txt").read_text()


@pytest.mark.long
def test_a_sweep_that_has_ended_is_left_alone(mixed: Path, seqtrain: Seqtrain) -> None:
    before = written(mixed)
    answer = seqtrain("resume", "sweep", cwd=mixed.parent)
    assert answer.rc == 2
    assert answer.err.splitlines()[-1] == (
        "error: sweep sweep: nothing to do, every trial has ended; `seqtrain resume sweep --retry-failed` retries the "
        "failed ones"
    )
    assert written(mixed) == before
    answer = seqtrain("resume", "sweep", "seed=7", cwd=mixed.parent)
    assert (answer.rc, "seed=7: a resumed sweep keeps its trials" in answer.err) == (2, True)


def test_a_trial_whose_run_was_deleted_is_missing_and_one_without_its_config_loses_nothing(
    mixed: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(mixed, tmp_path / "copy")
    (copy / "001" / "config.yaml").unlink()
    kept = written(copy)
    assert statuses(copy)["001"] == "planned"
    with pytest.raises(UserError, match=r"001 is a run without its config\.yaml: restore it, or delete the folder"):
        _clear(copy / "001")
    assert written(copy) == kept
    shutil.rmtree(copy / "001")
    assert statuses(copy)["001"] == "planned"
    (copy / "001").mkdir()
    (copy / "001" / "metrics.jsonl").touch()
    _clear(copy / "001")
    assert not (copy / "001").exists(), "what was killed before it began is removed"


@pytest.mark.long
def test_a_trial_that_is_killed_has_failed_and_the_others_go_on(seqtrain: Seqtrain, tmp_path: Path) -> None:
    folder = corpus(tmp_path)
    child = seqtrain.start(*LONG, "-m", "seed=1,2", "hydra.sweep.dir=sweep", cwd=folder)
    wait_until(lambda: newest_step(folder / "sweep" / "000") >= 10, child, "step 10")
    os.kill(pid_of(folder / "sweep", 0), signal.SIGKILL)
    assert child.wait(PATIENCE) == 1, child.stderr
    assert statuses(folder / "sweep") == {"000": "failed", "001": "finished"}
    assert "killed by SIGKILL" in index(folder / "sweep")[0]["reason"]
    answer = seqtrain("resume", "sweep", "--retry-failed", cwd=folder)
    assert answer.rc == 0, answer.err
    assert "already ended: 1 failed, 1 finished" not in answer.out
    assert statuses(folder / "sweep") == {"000": "finished", "001": "finished"}


def pid_of(sweep: Path, number: int) -> int:
    return Sweep.open(sweep).trial(number).outcome["pid"]


# -- kills, signals, resumes -------------------------------------------------------------------------------------


GRID = ("-m", "model=gru,rnn", "seed=1,2", "hydra.sweep.dir=sweep", "hydra.launcher.n_jobs=2")


def begun(folder: Path, child: Child) -> Path:
    """Waits until the sweep has finished a trial and is in the middle of another one."""
    sweep = folder / "sweep"

    def between() -> bool:
        if not (sweep / "index.json").exists():
            return False
        running = [trial for trial in Sweep.open(sweep).trials() if trial.status == "running"]
        return "finished" in statuses(sweep).values() and any(newest_step(trial.path) >= 20 for trial in running)

    wait_until(between, child, "a trial has finished and another one is in the middle")
    return sweep


@pytest.mark.long
def test_a_sweep_that_is_killed_resumes_what_is_missing_and_ends_with_the_same_bits(
    seqtrain: Seqtrain, tmp_path: Path
) -> None:
    answer = seqtrain(*LONG, *GRID, "hydra.sweep.dir=whole", cwd=corpus(tmp_path))
    assert answer.rc == 0, answer.err
    child = seqtrain.start(*LONG, *GRID, cwd=tmp_path)
    sweep = begun(tmp_path, child)
    child.kill()
    assert child.wait(PATIENCE) == -9, child.stderr
    wait_until_all_left(sweep)
    before = statuses(sweep)
    done = [name for name, status in before.items() if status == "finished"]
    middle = [name for name in before if name not in done and newest_step(sweep / name) >= 20]
    assert 1 <= len(done) < 4
    assert "running" not in before.values()
    kept = {path: when for path, when in written(sweep).items() if path.relative_to(sweep).parts[0] in done}
    answer = seqtrain("resume", "sweep", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    assert set(statuses(sweep).values()) == {"finished"}
    for path, when in kept.items():
        assert path.stat().st_mtime_ns == when, f"{path} was written again"
    for name in middle:
        assert re.search(r"resumed from step [1-9]", (sweep / "logs" / f"{name}.txt").read_text()), "it began again"
    for name in before:
        assert_twins(tmp_path / "whole" / name, sweep / name)


def wait_until_all_left(sweep: Path) -> None:
    limit = time.monotonic() + PATIENCE
    while "running" in statuses(sweep).values():
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.mark.long
def test_a_grid_that_is_stopped_while_it_is_planned_is_planned_whole_by_a_resume(
    seqtrain: Seqtrain, tmp_path: Path
) -> None:
    folder = corpus(tmp_path)
    child = seqtrain.start(*TRAIN, "-m", "model.dim=range(1,2001)", "hydra.sweep.dir=sweep", cwd=folder)
    trials = folder / "sweep" / "trials"
    wait_until(lambda: trials.exists() and any(trials.iterdir()), child, "the first trial is planned")
    child.kill(signal.SIGTERM)
    assert child.wait(PATIENCE) == 128 + signal.SIGTERM
    assert len(list(trials.iterdir())) < 2000, "it was planned whole before the signal came"
    assert not (folder / "sweep" / "index.json").exists(), "a resume would take this for the whole plan"


@pytest.mark.long
def test_only_one_command_at_a_time_runs_a_sweep(seqtrain: Seqtrain, tmp_path: Path) -> None:
    child = seqtrain.start(*LONG, "-m", "seed=1,2", "hydra.sweep.dir=sweep", cwd=corpus(tmp_path))
    wait_until(lambda: newest_step(tmp_path / "sweep" / "000") >= 2, child, "step 2")
    answer = seqtrain("resume", "sweep", cwd=tmp_path)
    assert answer.rc == 2
    assert answer.err == "error: sweep sweep is being run by another process: wait for it or stop it\n"
    answer = seqtrain(*LONG, "-m", "seed=1,2", "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert answer.err.endswith(
        "error: hydra.sweep.dir=sweep exists already; use `seqtrain resume sweep` or another directory\n"
    )
    child.kill(signal.SIGINT)
    assert child.wait(PATIENCE) == 130, child.stderr
    assert "interrupted by SIGINT: `seqtrain resume sweep` continues it" in child.stderr
    assert statuses(tmp_path / "sweep") == {"000": "interrupted", "001": "planned"}


def test_a_strangers_sweep_runs_no_commands_and_needs_its_trust_again(tmp_path: Path, seqtrain: Seqtrain) -> None:
    sweep = tmp_path / "sweep"
    (sweep / "trials").mkdir(parents=True)
    setup = ["hydra/launcher=slurm", f"hydra.launcher.setup=[touch {tmp_path}/executed]"]
    asked = {"kind": "grid", "overrides": setup, "config_dirs": [], "trust": [], "cwd": str(tmp_path)}
    (sweep / "sweep.yaml").write_text(json.dumps(asked))
    answer = seqtrain("resume", "sweep", cwd=tmp_path)
    assert answer.rc == 2
    assert "hydra.launcher.setup=" in answer.err
    assert "becomes a command that you did not type; add it to the command line" in answer.err
    (sweep / "sweep.yaml").write_text(json.dumps(asked | {"overrides": [], "trust": ["os"]}))
    answer = seqtrain("resume", "sweep", cwd=tmp_path)
    assert answer.err == "error: sweep sweep was run with --trust os; if you trust that code, add --trust os\n"
    (sweep / "000").symlink_to(tmp_path)
    answer = seqtrain("resume", "sweep", cwd=tmp_path)
    assert answer.err == "error: sweep/000: is a link, which a sweep never makes; replace it by its target\n"


# -- cross-validation ---------------------------------------------------------------------------------------------

FOLDS = ("model=cbow", "model.dim=8", "trainer.max_steps=2", "trainer.accelerator=cpu", "logger=none")


@pytest.mark.long
def test_folds_that_a_killed_sweep_left_unmeasured_are_measured_by_a_resume(tmp_path: Path, seqtrain: Seqtrain) -> None:
    rows = [f"word{n % 7} text{n}\t{'ab'[n % 2]}" for n in range(40)]
    (tmp_path / "a.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    words = ("task=sentiment", "data=labelled", "data.path=a.tsv", "data.folds=2", "hydra.sweep.dir=sweep")
    answer = seqtrain("train", *words, *FOLDS, "--json", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    assert [json.loads(line)["status"] for line in answer.out.splitlines()] == ["finished"] * 2
    kept = [tmp_path / f"sweep/00{fold}/evaluations.jsonl" for fold in range(2)]
    before = [json.loads(path.read_text()) for path in kept]  # measured with --json, too

    kept[1].unlink()  # what a kill between the last training and its measuring leaves
    answer = seqtrain("resume", "sweep", cwd=tmp_path)
    assert (answer.rc, "accuracy of test" in answer.out) == (0, True), answer.err
    after = [json.loads(path.read_text()) for path in kept]
    assert after[0] == before[0]
    assert after[1]["metrics"] == before[1]["metrics"]

    answer = seqtrain("resume", "sweep", cwd=tmp_path)
    assert (answer.rc, "nothing to do, every trial has ended" in answer.err) == (2, True), answer.err


# -- several processes -------------------------------------------------------------------------------------------

TWO = (*TRAIN, "trainer.precision=64-true", "trainer.max_steps=20", "trainer.threads=1")
RATES = ("0.01", "0.02")


@pytest.fixture(scope="module")
def alone(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the runs that a sweep of RATES consists of, each trained by itself in one process."""
    folder = corpus(tmp_path_factory.mktemp("alone"))
    for number, rate in enumerate(RATES):
        answer = seqtrain(*TWO, f"optimizer.lr={rate}", f"run_dir={number:03d}", cwd=folder)
        assert answer.rc == 0, answer.err
    return folder


def assert_same_weights(run: Path, other: Path) -> None:
    ours, theirs = (final_state(path)["state_dict"] for path in (run, other))
    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        assert (weight - theirs[name]).abs().max() < 1e-9, name


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["local", "joblib"])
def test_a_trial_of_two_processes_has_its_own_parameters_on_both(
    seqtrain: Seqtrain, alone: Path, tmp_path: Path, launcher: str
) -> None:
    words = ("trainer.devices=2", f"hydra/launcher={launcher}", "hydra.launcher.n_jobs=2", "hydra.sweep.dir=sweep")
    answer = seqtrain(*TWO, "-m", f"optimizer.lr={','.join(RATES)}", *words, cwd=corpus(tmp_path))
    assert answer.rc == 0, answer.err
    for number in range(len(RATES)):
        run = tmp_path / "sweep" / f"{number:03d}"
        assert Run(run).summary.world_size == 2
        assert_same_weights(run, alone / run.name)


@pytest.mark.long
def test_an_interrupt_reaches_the_trials_that_joblib_runs(seqtrain: Seqtrain, tmp_path: Path) -> None:
    words = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "hydra.sweep.dir=sweep")
    child = seqtrain.start(*LONG, "trainer.max_steps=100000", "-m", "seed=1,2,3", *words, cwd=corpus(tmp_path))
    sweep = tmp_path / "sweep"
    wait_until(lambda: all(newest_step(sweep / name) >= 5 for name in ("000", "001")), child, "step 5 of two trials")
    child.kill(signal.SIGTERM)
    assert child.wait(PATIENCE) == 143, child.stderr
    assert statuses(sweep) == {"000": "interrupted", "001": "interrupted", "002": "planned"}
    for name in ("000", "001"):
        assert "interrupted by SIGTERM" in (sweep / "logs" / f"{name}.txt").read_text(), "it saved, and left"
