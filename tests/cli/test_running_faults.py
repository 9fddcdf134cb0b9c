"""Laws of faults while a run goes on: one line, what was good stays good, and the run goes on from there to the bit."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
import torch

from seqtrain.cli import main
from seqtrain.errors import OutOfMemory
from seqtrain.experiment import endings
from seqtrain.runs.checkpoint import load, newest_valid, step_name
from seqtrain.runs.directory import Run
from seqtrain.training.learner import _nan_if_any_term_is_not_finite
from tests.conftest import Answer, Seqtrain
from tests.support import fault_injection
from tests.support.tiny import OPTIONS, assert_twins, corpus, difference

STEPS = 20
TRAIN = (
    *("train", *OPTIONS, "trainer.checkpoint_every=3", "trainer.validate_every=6", f"trainer.max_steps={STEPS}"),
    *fault_injection.OPTIONS,
)
CALM: dict[str, str | None] = {"MISHAP": None}


class Place:
    """A folder with a text and the package of mishaps, where commands run."""

    def __init__(self, folder: Path, seqtrain: Seqtrain) -> None:
        self.folder = corpus(folder)
        self.environment = fault_injection.package(folder)
        self.seqtrain = seqtrain

    def train(self, *options: str, name: str = "run", **env: str | None) -> Answer:
        return self.seqtrain(*TRAIN, *options, f"run_dir={name}", cwd=self.folder, env={**self.environment, **env})

    def resume(self, *options: str, **env: str | None) -> Answer:
        args = ("resume", "run", *fault_injection.TRUST, *options)
        return self.seqtrain(*args, cwd=self.folder, env={**self.environment, **CALM, **env})

    @property
    def run(self) -> Run:
        return Run(self.folder / "run")

    def names(self) -> list[str]:
        return sorted(path.name for path in self.run.checkpoints.iterdir())


@pytest.fixture
def place(tmp_path: Path, seqtrain: Seqtrain) -> Place:
    return Place(tmp_path, seqtrain)


@pytest.fixture(scope="module")
def twin(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which nothing goes wrong."""
    place = Place(tmp_path_factory.mktemp("twin"), seqtrain)
    answer = place.train("callbacks=none")
    assert answer.rc == 0, answer.err
    return place.run.path


@pytest.fixture(scope="module")
def killed_at_15(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was killed while it wrote its checkpoint of step 15."""
    place = Place(tmp_path_factory.mktemp("killed"), seqtrain)
    assert place.train(*mishap("killed", 13, "step-"), "logger=tensorboard").rc == -9
    assert place.names()[-2:] == [step_name(9), step_name(12)]
    return place.folder


@pytest.fixture
def killed(killed_at_15: Path, tmp_path: Path, seqtrain: Seqtrain) -> Place:
    """A copy of it."""
    return Place(shutil.copytree(killed_at_15, tmp_path / "copy"), seqtrain)


def mishap(what: str, at: int, name: str = "''") -> tuple[str, ...]:
    mine = "callbacks.mishap"
    return ("callbacks=mishap", f"{mine}.what={what}", f"{mine}.at={at}", f"{mine}.name={name}")


def told(answer: Answer) -> str:
    """The one line of an error; no traceback beside it."""
    assert "Traceback" not in answer.err, answer.err
    (line,) = [line for line in answer.err.splitlines() if "rror" in line]
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


# -- numbers that are none ---------------------------------------------------------------------------------------


def wild(steps: list[int], what: str = "hidden") -> tuple[str, ...]:
    listed = str(steps).replace(" ", "")
    return (
        "callbacks=wild",
        f"callbacks.wild.steps={listed}",
        f"callbacks.wild.what={what}",
        "trainer.on_nonfinite=skip",
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "options"),
    [
        ("hidden", ("model=lstm", "trainer.accumulate=2")),
        ("gradient", ("model=gpt", "model.num_layers=1", "model.num_heads=2", "optimizer=muon")),
    ],
)
def test_a_skipped_update_changes_no_weight_and_no_moment_and_is_counted(
    what: str, options: tuple[str, ...], place: Place
) -> None:
    steps = [4, 5, 11, 12, 13]
    answer = place.train(*wild(steps, what), *options, "trainer.checkpoint_every=1", "trainer.keep_last=100")
    assert answer.rc == 0, answer.err
    saved = {step: load(place.run.checkpoints / step_name(step)) for step in range(1, STEPS + 1)}
    for step in range(2, STEPS + 1):
        same = difference(saved[step - 1]["state_dict"], saved[step]["state_dict"]) is None
        kept = difference(saved[step - 1]["optimizer_states"][0]["state"], saved[step]["optimizer_states"][0]["state"])
        assert (same, kept is None) == (step in steps, step in steps), step
    assert place.run.summary.skipped == len(steps)
    points = [point for point in place.run.metrics() if "lr" in point]
    assert [point["skipped"] for point in points] == [sum(one <= step for one in steps) for step in range(1, STEPS + 1)]
    assert [point["step"] for point in points if "train/loss" not in point] == steps
    numbers = [value for point in place.run.metrics() for value in point.values() if not isinstance(value, str)]
    assert all(abs(value) < float("inf") for value in numbers)
    said = [line for line in answer.err.splitlines() if "skipped" in line]
    assert [line.partition(":")[0] for line in said] == ["step 4", "step 5", "step 11"]
    assert said[-1].endswith("more are counted only: `skipped` in metrics.jsonl")


@pytest.mark.long
def test_what_is_no_number_on_one_process_is_skipped_by_all_or_stops_all(place: Place) -> None:
    several = ("trainer.devices=2", "trainer.accelerator=cpu", "trainer.check_ranks_every=1")
    steps = wild([4, 5])
    for name, more in (("one", ()), ("two", several)):
        answer = place.train(*steps, *more, "trainer.precision=64-true", name=name)
        assert answer.rc == 0, answer.err
    runs = [Run(place.folder / name) for name in ("one", "two")]
    assert [run.summary.skipped for run in runs] == [2, 2]
    losses = [[point["train/loss"] for point in run.metrics() if "train/loss" in point] for run in runs]
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    answer = place.train(*steps[:-1], *several)
    assert (answer.rc, told(answer).partition(";")[0]) == (1, "the gradient's norm is nan at step 4")


def test_a_loss_that_is_no_number_has_no_gradient_that_is_one() -> None:
    for value, sound in ((2.0, True), (float("inf"), False), (float("nan"), False)):
        weights = torch.ones(3, requires_grad=True)
        loss = (weights * torch.tensor([1.0, 0.0, 2.0])).sum() + value
        _nan_if_any_term_is_not_finite(loss, {"loss": (loss.detach(), 1), "accuracy": (torch.tensor(1), 1)}).backward()
        assert weights.grad is not None
        assert torch.equal(weights.grad, torch.tensor([1.0, 0.0, 2.0])) if sound else weights.grad.isnan().all()


@pytest.mark.long
def test_stopping_is_the_default_and_keeps_the_last_good_checkpoint(place: Place) -> None:
    for what, words in (("hidden", "the loss is nan at step 8"), ("gradient", "the gradient's norm is inf at step 8")):
        answer = place.train(*wild([8], what)[:-1], name=what)
        assert answer.rc == 1
        assert told(answer).startswith(f"{words}; the last good checkpoint is step-00000006.ckpt")


# -- memory ------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "words"),
    [
        (
            "no_memory",
            "at step 8, training on a batch of 4 lanes x 8 tokens; in a new run set trainer.accumulate=2, "
            "which changes no loss, or lower data.batch_size or tbptt.k2; "
            "the last good checkpoint is step-00000006.ckpt",
        ),
        (
            "no_memory_to_evaluate",
            "at step 12, evaluating a batch of 4 lanes x 8 tokens; resume with a lower data.eval_batch_size",
        ),
    ],
)
def test_out_of_memory_names_the_batch_and_what_to_lower_and_the_run_goes_on(
    what: str, words: str, place: Place, twin: Path
) -> None:
    answer = place.train(*mishap(what, 8))
    assert answer.rc == 1
    assert told(answer).startswith(f"out of memory {words}")
    assert place.run.summary.status == "failed"
    if what == "no_memory":
        assert place.resume().rc == 0
        assert_twins(twin, place.run.path)


def test_whatever_else_does_not_fit_is_said_so_in_one_line(tmp_path: Path) -> None:
    for allocate in (lambda: torch.empty(1 << 50), lambda: bytearray(1 << 60)):
        with pytest.raises((RuntimeError, MemoryError)) as caught:
            allocate()
        reason, told = endings.verdict(Run(tmp_path), caught.value)
        assert reason == "out of memory while the model was built or the data read; lower model.dim, or read less"
        assert isinstance(told, OutOfMemory)


# -- disks -------------------------------------------------------------------------------------------------------

FULL = "the disk is full; make room, then `seqtrain resume run`"


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "name", "words"),
    [
        ("full", "step-00000012.ckpt", FULL),
        ("full", "summary.json", FULL),
        ("full_for_records", "", FULL),
        ("full_in_the_middle", "", "the file would exceed the size limit; raise it (ulimit -f), then `seqtrain"),
        ("no_folder", "checkpoints", "cannot be written"),
    ],
)
def test_a_disk_that_fails_while_training_costs_one_line_and_no_bit(
    what: str, name: str, words: str, place: Place, twin: Path
) -> None:
    answer = place.train(*mishap(what, 8, name or "''"))
    assert answer.rc == 2
    line = told(answer)
    assert line.startswith("run run: ")
    assert words in line
    if what == "no_folder":
        (place.folder / "run" / "checkpoints").unlink()
        (place.folder / "run" / "elsewhere").rename(place.folder / "run" / "checkpoints")
    assert newest_valid(place.run.checkpoints, pytest.fail) is not None
    assert not list(place.run.checkpoints.glob(".*"))
    assert place.resume().rc == 0
    assert_twins(twin, place.run.path)


@pytest.mark.long
@pytest.mark.parametrize("command", ["train", "resume"])
def test_a_disk_that_is_full_at_the_start_costs_one_line_and_leaves_things_as_they_were(
    command: str, killed: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.chdir(killed.folder)
    monkeypatch.syspath_prepend(str(killed.folder))
    left = {*killed.folder.rglob(".*.tmp")}  # of the killed writer: a resume makes room
    before = {path: path.read_bytes() for path in {*killed.folder.rglob("*.*")} - left if path.is_file()}
    args = (
        (*TRAIN, "callbacks=none", "run_dir=fresh") if command == "train" else ("resume", "run", *fault_injection.TRUST)
    )
    assert main.main(list(args)) == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "rror" in line]
    assert line.startswith(f"error: run {'fresh' if command == 'train' else 'run'}: the disk is full; make room, then ")
    assert not (killed.folder / "fresh").exists()
    after = {path: path.read_bytes() for path in killed.folder.rglob("*.*") if path.is_file()}
    # Python may write the compiled form of a package of the user's anew.
    kept = {path for path in before if path.suffix != ".pyc"}
    assert {path: after.get(path) for path in kept} == {path: before[path] for path in kept}


# -- checkpoints -------------------------------------------------------------------------------------------------


def damage(path: Path) -> None:
    """Flips a bit of a checkpoint; its other names are left whole."""
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 8
    path.unlink()
    path.write_bytes(whole)


def test_of_a_bad_newest_checkpoint_resume_says_so_and_goes_on_from_the_one_before(killed: Place, twin: Path) -> None:
    damage(killed.run.checkpoints / step_name(12))
    answer = killed.resume()
    assert answer.rc == 0, answer.err
    skipped, resumed = [line for line in answer.err.splitlines() if "run run: resumed" in line or "skipped" in line]
    assert skipped.startswith(f"skipped run/checkpoints/{step_name(12)}: ")
    assert resumed == "run run: resumed from step 9"
    assert_twins(twin, killed.run.path)


def test_where_no_checkpoint_is_sound_resume_refuses_in_one_line_and_changes_nothing(killed: Place) -> None:
    for step in (9, 12):
        damage(killed.run.checkpoints / step_name(step))
    before = {path: path.read_bytes() for path in killed.run.path.rglob("*") if path.is_file()}
    answer = killed.resume()
    assert (answer.rc, "all checkpoints are damaged; move run/checkpoints" in told(answer)) == (2, True)
    assert {path: path.read_bytes() for path in killed.run.path.rglob("*") if path.is_file()} == before


# -- loggers and clocks ------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("logger", "words"),
    [
        ("raises", "Raises failed and is disabled from here on: the host is gone"),
        ("hangs", "Hangs failed and is disabled from here on: no answer for 0.2 s"),
    ],
)
def test_a_logger_that_fails_or_hangs_is_left_out_and_the_record_is_complete(
    logger: str, words: str, place: Place, twin: Path
) -> None:
    answer = place.train("callbacks=none", f"logger={logger}")
    assert answer.rc == 0, answer.err
    assert answer.err.splitlines().count(words) == 1
    assert_twins(twin, place.run.path)


@pytest.mark.long
def test_a_clock_that_goes_backwards_changes_no_record(killed: Place, twin: Path) -> None:
    assert killed.resume(MISHAP="clock").rc == 0
    assert_twins(twin, killed.run.path)
    seconds = [point["seconds"] for point in killed.run.metrics()]
    assert seconds == sorted(seconds)
    assert 0 < (killed.run.summary.seconds or 0) < 3600, "the clock of the day, which went back by an hour at each look"
