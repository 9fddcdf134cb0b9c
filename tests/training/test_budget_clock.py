"""Laws of runs with a budget: the clock of training ends one in time, and each tells what it has cost."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seqtrain.runs.directory import Run
from seqtrain.runs.summary import Summary
from seqtrain.training.callbacks import record
from seqtrain.training.callbacks.record import Deadline, Recorder
from seqtrain.training.optim.schedules import Cosine
from tests.conftest import Seqtrain
from tests.support.examples import DATA, SMALL, files
from tests.support.tiny import newest_step, wait_until

FREE = [word for word in SMALL if not word.startswith("model.")]  # the width is what is solved for


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files(tmp_path_factory.mktemp("text"))


def test_the_clock_of_training_stands_still_while_others_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(record.time, "monotonic", lambda: now[0])
    recorder, nobody = Recorder(run=cast(Any, None), every=1, plan=cast(Any, None)), cast(Any, None)

    def after(seconds: float) -> float:
        now[0] += seconds
        return round(recorder.elapsed(), 6)

    assert after(9) == 0, "before the first batch"
    recorder.on_train_batch_start(nobody, nobody, None, 0)
    assert after(2) == 2
    recorder.on_train_batch_start(nobody, nobody, None, 1)
    assert after(1) == 3
    recorder.on_validation_start(nobody, nobody)
    assert after(50) == 3
    recorder.on_train_batch_start(nobody, nobody, None, 2)
    assert after(1) == 4
    recorder.on_train_end(nobody, nobody)
    assert after(50) == 4


def looked(deadline: Deadline, step: int, seconds: float) -> tuple[int, int]:
    """Steps that the schedule reckons with, and that training has, after so many of both."""
    cast(Any, deadline.recorder).seconds = seconds
    loop = SimpleNamespace(max_steps=100)
    trainer: Any = SimpleNamespace(global_step=step, max_steps=100, fit_loop=SimpleNamespace(epoch_loop=loop))
    learner: Any = SimpleNamespace(max_steps=100)
    deadline.on_train_start(trainer, learner)
    return learner.max_steps, loop.max_steps


def test_the_schedule_reckons_with_the_steps_that_the_clock_still_allows() -> None:
    recorder = Recorder(run=cast(Any, None), every=1, plan=cast(Any, None))
    deadline = Deadline(recorder=recorder, seconds=10.0)
    assert looked(deadline, 0, 0.0) == (100, 100), "no pace is known"
    assert looked(deadline, 8, 2.0) == (40, 100)
    assert looked(deadline, 8, 9.9) == (9, 100), "the step that begins is taken"
    assert looked(deadline, 60, 2.0) == (100, 100), "trainer.max_steps ends training before the clock does"
    assert not deadline.met
    recorder._started_at = record.time.monotonic()
    assert looked(deadline, 8, 10.0) == (8, 8)
    assert deadline.met
    assert recorder._started_at is None, "what is saved and measured from here on is not training"


TRAIN = (
    *("train", "tokenizer=char", *DATA["next_token"], *FREE[1:], "tbptt.k2=8", "trainer.validate_every=100"),
    *("trainer.checkpoint_every=5", "run_dir=run"),
)


def assert_as_planned(run: Run, step: int, seconds: float) -> None:
    """The learning rate of a step was that of a run of as many steps as the clock still allowed just before it."""
    points = {point["step"]: point for point in run.metrics() if "lr" in point}
    allowed = round((step - 1) * seconds / points[step - 1]["seconds"])
    expected = Cosine(warmup=50, final=0.0)(step - 1, max(allowed, step))
    assert points[step]["lr"] / run.config["optimizer"]["lr"] == pytest.approx(expected, abs=0.1)


def ended_by_the_clock(run: Run, seconds: float) -> Summary:
    """The summary of a run that ended with the first step after its seconds; its rate fell as the clock ran."""
    summary, points = run.summary, [point for point in run.metrics() if "lr" in point]
    assert (summary.status, summary.ended_by) == ("finished", "seconds")
    assert summary.seconds is not None
    assert summary.steps is not None
    # Each step is recorded before its clock is looked at, in thousandths of a second.
    assert points[-2]["seconds"] <= seconds <= summary.seconds
    assert [point["step"] for point in points[-2:]] == [summary.steps - 1, summary.steps]
    assert_as_planned(run, summary.steps, seconds)
    assert all(point["seconds"] <= summary.seconds for point in run.metrics())
    return summary


@pytest.mark.long
def test_a_run_costs_its_budget_and_tells_it(seqtrain: Seqtrain, text: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").symlink_to(text / "text.txt")
    answer = seqtrain(*TRAIN, "model=gru", "budget=[params:3e4,seconds:1]", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    run = Run(tmp_path / "run")
    summary = ended_by_the_clock(run, 1.0)
    assert run.config["budget"] == ["params:3e4", "seconds:1"]
    assert f"model.dim={run.config['model']['dim']}, {summary.parameters['total']:,} parameters" in answer.err
    assert "the number of steps is not reproducible" in answer.err
    reached = {"params": (3e4, summary.parameters["total"]), "seconds": (1, summary.seconds)}
    assert summary.budget == {
        kind: {"asked": asked, "reached": found, "within": abs(found / asked - 1)}
        for kind, (asked, found) in reached.items()
    }
    assert summary.budget["params"]["within"] <= 0.01


@pytest.mark.long
def test_a_run_costs_its_operations_and_no_resume_changes_that(seqtrain: Seqtrain, text: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").symlink_to(text / "text.txt")
    answer = seqtrain(*TRAIN, "model=gru", "budget=[params:3e4,flops:2e8]", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    run = Run(tmp_path / "run")
    assert run.summary.ended_by == "steps"
    assert run.summary.steps == run.config["trainer"]["max_steps"]
    assert run.summary.flops == run.summary.budget["flops"]["reached"] == pytest.approx(2e8, rel=0.01)
    for words, told in {
        (): "run run is finished: its budget is spent; start a new run with another one",
        ("trainer.max_steps=999",): "trainer.max_steps: budget=flops:2e+08 determines it; leave it out",
    }.items():
        again = seqtrain("resume", "run", *words, cwd=tmp_path)
        assert (again.rc, again.err) == (2, f"error: {told}\n")


@pytest.mark.long
def test_a_run_by_the_clock_goes_on_for_what_is_left_of_its_seconds(
    seqtrain: Seqtrain, text: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").symlink_to(text / "text.txt")
    child = seqtrain.start(*TRAIN, "model.dim=8", "trainer.devices=2", "budget=seconds:3", cwd=tmp_path)
    run = Run(tmp_path / "run")
    wait_until(lambda: newest_step(run.path) > 20 and any(run.checkpoints.glob("step-*.ckpt")), child, "step 20")
    child.kill_group()
    child.wait()
    before = newest_step(run.path)
    answer = seqtrain("resume", "run", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    assert "resumed from step 0" not in answer.err
    assert newest_step(run.path) > before > 20
    ended_by_the_clock(run, 3.0)


@pytest.mark.long
def test_a_run_by_the_clock_alone_can_be_given_more_seconds(seqtrain: Seqtrain, text: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").symlink_to(text / "text.txt")
    limits = ("model.dim=8", "trainer.max_seconds=1", "trainer.max_steps=null")
    assert seqtrain(*TRAIN, *limits, cwd=tmp_path).rc == 0
    run = Run(tmp_path / "run")
    before = ended_by_the_clock(run, 1.0).steps or 0
    again = seqtrain("resume", "run", cwd=tmp_path)
    told = f"extend it with trainer.max_seconds=S above {run.summary.seconds:g}"
    assert (again.rc, again.err) == (2, f"error: run run is finished: {told}\n")
    run.update_summary(status="interrupted")  # as if killed just before it could say so
    assert seqtrain("resume", "run", cwd=tmp_path).rc == 0
    assert ended_by_the_clock(run, 1.0).steps == before
    assert seqtrain("resume", "run", "trainer.max_seconds=2", cwd=tmp_path).rc == 0
    assert (ended_by_the_clock(run, 2.0).steps or 0) > before
    assert_as_planned(run, before + 1, 2.0)
