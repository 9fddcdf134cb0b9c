"""Laws of sweeps under SLURM: each trial a job whose tasks are its processes; out of time or cancelled, it goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest

from seqtrain.runs.directory import Run
from seqtrain.sweeps.folder import Sweep
from seqtrain.sweeps.launchers import attempts, submitted
from tests.conftest import Seqtrain
from tests.slurm.cluster import SOON, Cluster
from tests.slurm.test_slurm import TRAIN, VALIDATED
from tests.support.tiny import assert_twins, corpus, final_state, newest_step
from tests.sweeps.test_search import SEARCH, TWO

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

MINUTES = 180.0
VALUES = ("model=gru", "optimizer.lr=0.01,0.02")
SWEEP = (
    *("hydra/launcher=slurm", "hydra.launcher.tasks_per_node=2", "trainer.devices=2", "hydra.sweep.dir=sweep"),
    "hydra.launcher.array_parallelism=1",
)


@contextmanager
def command(cluster: Cluster, folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`seqtrain ...` as on a login node."""
    line = [sys.executable, "-m", "seqtrain", *words]
    with open(folder / "said.txt", "a") as said:
        process = subprocess.Popen(line, cwd=folder, env=cluster.environment, stdout=said, stderr=said, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def wait_until(reached: Callable[[], object], folder: Path, what: str) -> None:
    limit = time.monotonic() + MINUTES
    while not reached():
        assert time.monotonic() < limit, f"waited for {what}: {told(folder)}"
        time.sleep(0.002)


def told(folder: Path) -> str:
    logs = [*folder.glob("said.txt"), *folder.glob("sweep/logs/*"), *folder.glob("sweep/.submitit/*/*/*.err")]
    return "\n".join(f"-- {path.name}\n{path.read_text()[-3000:]}" for path in logs)


def assert_finished(process: subprocess.Popen[str], folder: Path) -> list[Path]:
    """The runs of a sweep that ends well."""
    assert process.wait(MINUTES) == 0, told(folder)
    trials = Sweep.open(folder / "sweep").trials()
    assert [trial.status for trial in trials] == ["finished", "finished"], told(folder)
    assert [Run(trial.path).summary.world_size for trial in trials] == [2, 2]
    return [trial.path for trial in trials]


@pytest.fixture(scope="module")
def twins(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The runs of a sweep of two trials of two tasks each, that nobody interrupted."""
    folder = corpus(tmp_path_factory.mktemp("twins"))
    with command(cluster, folder, "train", *TRAIN, "-m", *VALUES, *SWEEP) as process:
        return assert_finished(process, folder)


def test_each_trial_has_the_parameters_of_its_config_on_all_tasks(
    twins: list[Path], seqtrain: Seqtrain, tmp_path: Path
) -> None:
    corpus(tmp_path)
    for run, rate in zip(twins, ("0.01", "0.02"), strict=True):
        answer = seqtrain("train", *TRAIN, "model=gru", f"optimizer.lr={rate}", f"run_dir=run{rate}", cwd=tmp_path)
        assert answer.rc == 0, answer.err
        ours, other = (final_state(path)["state_dict"] for path in (run, tmp_path / f"run{rate}"))
        for name, weight in ours.items():
            assert (weight - other[name]).abs().max() < 1e-9, name


def stopped(folder: Path) -> tuple[str, int]:
    """The job of the first trial, which is in the middle of its training and stands still; and its step."""
    run = folder / "sweep" / "000"
    wait_until(lambda: newest_step(run) >= 5, folder, "step 5")
    pids = trial_processes(run)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return f"{submitted(attempts(folder / 'sweep'))[0]}_0", newest_step(run)


def trial_processes(run: Path) -> list[int]:
    """The processes that train the trial."""
    words = ["trial", str(run.parent.name), run.name]
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            line = (path / "cmdline").read_text().split("\0")
            here = (path / "cwd").resolve() == run.parent.parent
        except OSError:
            continue
        if here and "trial" in line and line[line.index("trial") :][:3] == words:
            found.append(int(path.name))
    return found


def test_a_trial_near_its_time_limit_saves_is_requeued_and_goes_on_to_the_bit(
    twins: list[Path], cluster: Cluster, tmp_path: Path
) -> None:
    with command(cluster, corpus(tmp_path), "train", *TRAIN, "-m", *VALUES, *SWEEP) as process:
        job, step = stopped(tmp_path)
        hours, minutes, _ = map(int, fact(cluster, job, "RunTime").split(":"))
        cluster("scontrol", "update", f"JobId={job}", f"TimeLimit={60 * hours + minutes + 3}")
        wait_until(lambda: fact(cluster, job, "JobState") == "PENDING", tmp_path, "it is back in the queue")
        cluster("scontrol", "update", f"JobId={job}", f"StartTime={SOON}", "TimeLimit=60")
        runs = assert_finished(process, tmp_path)
    resumed = re.findall(r"resumed from step (\d+)", (tmp_path / "sweep" / "logs" / "000.txt").read_text())
    assert len(resumed) == 1
    assert step <= int(resumed[0]) < VALIDATED, "it went on where it had saved"
    for run, twin in zip(runs, twins, strict=True):
        assert_twins(twin, run)


def fact(cluster: Cluster, job: str, name: str) -> str:
    found = re.search(rf"\b{name}=(\S+)", cluster("scontrol", "--oneliner", "show", "job", job))
    return found.group(1) if found else ""


def test_an_interrupt_cancels_the_jobs_and_a_resume_goes_on_to_the_bit(
    twins: list[Path], cluster: Cluster, tmp_path: Path
) -> None:
    with command(cluster, corpus(tmp_path), "train", *TRAIN, "-m", *VALUES, *SWEEP) as process:
        run = tmp_path / "sweep" / "000"
        wait_until(lambda: newest_step(run) >= 5, tmp_path, "step 5")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130, told(tmp_path)
    assert [trial.status for trial in Sweep.open(tmp_path / "sweep").trials()] == ["interrupted", "planned"]
    with command(cluster, tmp_path, "resume", "sweep") as process:
        runs = assert_finished(process, tmp_path)
    for run, twin in zip(runs, twins, strict=True):
        assert_twins(twin, run)


def test_a_search_reports_every_validation_of_its_jobs_and_finds_what_it_finds_here(
    cluster: Cluster, seqtrain: Seqtrain, tmp_path: Path
) -> None:
    search = (*SEARCH, *TWO, "hydra.sweep.dir=sweep")
    (tmp_path / "here").mkdir()
    answer = seqtrain(*search, cwd=corpus(tmp_path / "here"))
    assert answer.rc == 0, answer.err
    words = ("hydra/launcher=slurm", "hydra.launcher.array_parallelism=1")
    with command(cluster, corpus(tmp_path), *search, *words) as process:
        assert process.wait(MINUTES) == 0, told(tmp_path)
    assert len(submitted(attempts(tmp_path / "sweep"))) == 2
    ours, other = (reported(folder / "sweep") for folder in (tmp_path, tmp_path / "here"))
    assert [state for state, *_ in ours] == ["COMPLETE", "PRUNED"]
    assert ours == other


def reported(sweep: Path) -> list[tuple[Any, ...]]:
    """What the study knows of each trial: what became of it, what it was, what it came to, and its validations."""
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{sweep}/study.db")
    return [(one.state.name, one.params, one.values, one.intermediate_values) for one in study.get_trials()]
