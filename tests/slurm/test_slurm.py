"""Laws of SLURM, by the script of docs/slurm.md: two tasks give the numbers of one process, interrupted or not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from seqtrain.runs.directory import Run
from tests.conftest import Seqtrain
from tests.slurm.cluster import Cluster, Job
from tests.support.tiny import OPTIONS, assert_twins, corpus, final_state, newest_step

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

MINUTE = 60.0  # that a sitting may take: two interpreters start cold on two cores
STEPS, VALIDATED, STOPPED = 400, 350, 5
TRAIN = (
    *(*OPTIONS, "trainer.accelerator=cpu", "trainer.precision=64-true", "trainer.threads=1"),
    *(f"trainer.max_steps={STEPS}", f"trainer.validate_every={VALIDATED}"),
    "trainer.checkpoint_every=1000",  # so that the only checkpoint in the middle is that of the signal
)


def submit(cluster: Cluster, script: str, folder: Path, *options: str, train: tuple[str, ...] = TRAIN) -> Job:
    """Hands in the script with `options` for sbatch and the options of the training."""
    (corpus(folder) / "train.sh").write_text(script)
    return cluster.submit(*options, "train.sh", *train, cwd=folder)


def run_of(job: Job) -> Path:
    return job.cwd / "outputs" / f"slurm-{job.number}"


def finished(job: Job) -> Path:
    """The run of a job that ended well."""
    facts = job.wait(3 * MINUTE)
    assert facts["JobState"] == "COMPLETED", f"{job.log}\n{job.history}"
    assert Run(run_of(job)).summary.status == "finished"
    return run_of(job)


def stopped(job: Job) -> Path:
    """The run of a job that is in the middle of its training and stands still until SLURM sends its next signal."""
    job.wait_until((run_of(job) / "config.yaml").exists, "the run", 2 * MINUTE)
    tasks = job.tasks()
    job.wait_until(lambda: newest_step(run_of(job)) >= STOPPED, f"step {STOPPED}", MINUTE)
    for pid in tasks:
        os.kill(pid, signal.SIGSTOP)
    return run_of(job)


@pytest.fixture(scope="module")
def alone(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process, without SLURM."""
    folder = corpus(tmp_path_factory.mktemp("alone"))
    answer = seqtrain("train", *TRAIN, "run_dir=alone", cwd=folder)
    assert answer.rc == 0, answer.err
    return folder / "alone"


@pytest.fixture(scope="module")
def twin(cluster: Cluster, script: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a job of two tasks that nobody interrupted."""
    return finished(submit(cluster, script, tmp_path_factory.mktemp("twin")))


def test_two_tasks_give_the_numbers_of_one_process(twin: Path, alone: Path) -> None:
    assert (Run(twin).summary.world_size, Run(alone).summary.world_size) == (2, 1)
    ours, other = (final_state(run)["state_dict"] for run in (twin, alone))
    assert ours.keys() == other.keys()
    for name, weight in ours.items():
        assert (weight - other[name]).abs().max() < 1e-9, name
    for split, values in Run(alone).summary.metrics.items():
        assert Run(twin).summary.metrics[split] == pytest.approx(values, abs=1e-9)


def test_two_nodes_give_the_bits_of_one(twin: Path, cluster: Cluster, script: str, tmp_path: Path) -> None:
    run = finished(submit(cluster, script, tmp_path, "--nodes=2", "--ntasks-per-node=1"))
    assert Run(run).config["trainer"]["num_nodes"] == 2
    assert_twins(twin, run)


def test_a_job_that_is_requeued_goes_on_to_the_bit(twin: Path, cluster: Cluster, script: str, tmp_path: Path) -> None:
    job = submit(cluster, script, tmp_path)
    run = stopped(job)
    cluster("scontrol", "requeue", str(job.number))
    assert_goes_on(job, run, twin, "SIGTERM")


def test_a_job_near_its_time_limit_saves_and_goes_on_to_the_bit(
    twin: Path, cluster: Cluster, script: str, tmp_path: Path
) -> None:
    job = submit(cluster, script, tmp_path, "--time=60")
    run = stopped(job)
    job.shorten()
    assert_goes_on(job, run, twin, "SIGUSR1")


def assert_goes_on(job: Job, run: Path, twin: Path, name: str) -> None:
    """The job, which SLURM is about to send this signal, leaves no step behind and ends as its twin."""
    job.requeued(MINUTE)
    step = newest_step(run)
    assert STOPPED <= step < VALIDATED, "stopped too late"
    assert Run(run).summary.status == "interrupted"
    assert f"interrupted by {name}: `seqtrain resume outputs/slurm-{job.number}` continues" in job.log
    assert finished(job) == run
    assert job.facts["Restarts"] == "1"
    assert f"run outputs/slurm-{job.number}: resumed from step {step}\n" in job.log
    assert_twins(twin, run)


def test_tasks_that_are_not_the_devices_asked_for_are_refused_in_one_line(
    cluster: Cluster, script: str, tmp_path: Path
) -> None:
    job = submit(cluster, script, tmp_path, train=(*TRAIN, "trainer.devices=3"))
    assert job.wait(MINUTE)["ExitCode"] == "2:0"
    ours = [line for line in job.log.splitlines() if not line.startswith("srun:")]
    assert ours == [
        "error: trainer.devices=3, trainer.num_nodes=1: 2 processes were started; "
        "use trainer.devices=2 and trainer.num_nodes=1"
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", f"slurm-{job.number}.out", "train.sh"]


def test_without_srun_the_script_is_one_process(alone: Path, cluster: Cluster, tmp_path: Path) -> None:
    corpus(tmp_path)
    job = cluster.submit("--ntasks-per-node=2", f"--wrap=seqtrain train run_dir=run {' '.join(TRAIN)}", cwd=tmp_path)
    assert job.wait(MINUTE)["JobState"] == "COMPLETED", job.log
    assert_twins(alone, tmp_path / "run")


def test_a_task_that_is_killed_ends_the_job_soon_and_the_run_resumes_anywhere(
    twin: Path, cluster: Cluster, script: str, seqtrain: Seqtrain, tmp_path: Path
) -> None:
    job = submit(cluster, script, tmp_path)
    run = stopped(job)
    first, second = job.tasks()
    os.kill(second, signal.SIGKILL)
    os.kill(first, signal.SIGCONT)
    facts = job.wait(30)
    assert (facts["JobState"], job.tasks()) == ("FAILED", []), job.log
    assert Run(run).summary.status == "failed"
    answer = seqtrain("resume", str(run.relative_to(tmp_path)), cwd=tmp_path)  # two processes, without SLURM
    assert answer.rc == 0, answer.err
    assert_twins(twin, run)


SLOW = """
import sys, time
from seqtrain.experiment import report
from seqtrain.cli.main import main
result = report.result
def slow(*args):
    time.sleep(8)
    return result(*args)
report.result = slow
sys.exit(main(sys.argv[1:]))
"""


def test_no_task_leaves_before_the_first_has_written_its_report(cluster: Cluster, tmp_path: Path) -> None:
    (corpus(tmp_path) / "slow.py").write_text(SLOW)
    command = f"srun --wait=3 python slow.py train run_dir=run trainer.devices=2 {' '.join(TRAIN)}"
    job = cluster.submit("--ntasks-per-node=2", f"--wrap={command}", cwd=tmp_path)
    assert job.wait(4 * MINUTE)["JobState"] == "COMPLETED", job.log
    assert Run(tmp_path / "run").summary.status == "finished"
