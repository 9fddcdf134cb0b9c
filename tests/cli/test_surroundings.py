"""Laws of what a training needs of its machine: its directory, shared memory, standard output; each a line, no loss."""

from __future__ import annotations

import errno
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seqtrain.cli import main
from seqtrain.config import check, preflight
from seqtrain.data.cache import Store
from seqtrain.data.sources.files import find
from seqtrain.errors import Unavailable
from seqtrain.experiment import endings
from seqtrain.runs.directory import METRICS, SUMMARY, Run
from seqtrain.training.callbacks.checkpoints import Checkpoints
from seqtrain.training.loggers import wandb_logger
from tests.support import tiny

QUICK = ("trainer.max_steps=4", "trainer.validate_every=4")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run.create(tmp_path / "run", config={"seed": 1})
    run.append({"step": 1})
    return run


# -- the run's directory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["moved", "replaced"])
def test_a_directory_that_is_gone_takes_no_record_no_summary_and_no_checkpoint(how: str, run: Run) -> None:
    assert not run.lost()
    if how == "moved":
        run.path.rename(run.path.with_name("elsewhere"))
    else:
        shutil.rmtree(run.path)
    other = Run.create(run.path, config={"seed": 2}) if how == "replaced" else None
    if other is not None:
        other.append({"step": 1})
    steps = (
        lambda: run.append({"step": 2}),
        lambda: run.update_summary(status="running"),
        lambda: run.write_config({"seed": 3}),
        run.sync,
    )
    for step in steps:
        with pytest.raises(FileNotFoundError) as error:
            step()
        reason, told = endings.verdict(run, error.value)
        assert reason == "its directory, or the lock in it, was removed or moved during training"
        assert isinstance(told, Unavailable)
        assert told.lines == (f"run {run.path}: {reason}; resume it where it is now, or start a new run",)
    run.close()
    assert run.lost()
    if other is not None:
        assert other.config == {"seed": 2}
        assert other.metrics() == [{"step": 1}]
        assert not (run.path / SUMMARY).exists()


def test_a_checkpoint_is_not_saved_in_another_runs_place(run: Run) -> None:
    saved: list[Any] = []
    trainer = SimpleNamespace(
        global_step=2,
        lightning_module=SimpleNamespace(parameters=lambda: []),
        strategy=SimpleNamespace(reduce_boolean_decision=bool),
        save_checkpoint=saved.append,
        is_global_zero=True,
    )
    callback = Checkpoints(run=run, every=1, keep_last=1, keep_best=1, signals=cast(Any, None))
    shutil.rmtree(run.path)
    Run.create(run.path, config={"seed": 2})
    with pytest.raises(FileNotFoundError):
        callback._save(cast(Any, trainer))
    assert saved == []


def test_a_training_whose_directory_is_removed_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tiny.corpus(tmp_path, lines=60))
    append = Run.append

    def removing(run: Run, record: dict[str, Any]) -> None:
        if record.get("step") == 2:
            shutil.rmtree(run.path)
        append(run, record)

    monkeypatch.setattr(Run, "append", removing)
    assert main.main(["train", *tiny.OPTIONS, *QUICK, "run_dir=run"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert line.startswith("error: run run: its directory, or the lock in it, was removed or moved during training; ")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]


def test_a_resume_where_nothing_can_be_written_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path) -> Any:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    run.close()
    monkeypatch.setattr("seqtrain.files.atomic.open_append", refuse)
    with pytest.raises(Unavailable) as fault, endings.writing(run, "again"):
        Run.open(run.path).claim()
    assert fault.value.lines == (
        f"run {run.path}: {run.path / '.lock'} cannot be written (Read-only file system); correct that, then again",
    )


# -- standard output -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["full", pytest.param("closed", marks=pytest.mark.long)])
def test_a_training_whose_result_cannot_be_printed_is_finished_all_the_same(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tiny.corpus(tmp_path, lines=60))
    stdout = open("/dev/full", "w") if how == "full" else None  # noqa: SIM115
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr("seqtrain.terminal.drop_output", lambda: None)  # it is for the process's own
    assert main.main(["train", *tiny.OPTIONS, *QUICK, "run_dir=run"]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert line.endswith("so the result could not be printed")
    run = Run.open(tmp_path / "run")
    assert (run.summary.status, run.newest_step()) == ("finished", 4)
    assert (run.path / METRICS).stat().st_size


# -- shared memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "told"), [("absent", "does not exist; mount it"), ("a full one", "is full; make room")]
)
def test_data_workers_without_shared_memory_are_refused(
    what: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.corpus(tmp_path, lines=60))
    place = Path("absent") if what == "absent" else tmp_path
    monkeypatch.setattr(preflight, "SHARED_MEMORY", place)
    monkeypatch.setattr(preflight, "MIN_FREE_BYTES", 1 << 62)
    preflight.check_machine_and_data(check.compose([*tiny.OPTIONS, "data.workers=0"]).config)
    with pytest.raises(Unavailable) as fault:
        preflight.check_machine_and_data(check.compose([*tiny.OPTIONS, "data.workers=2"]).config)
    (line,) = fault.value.lines
    assert line == f"data.workers=2: workers pass batches through {place}, which {told}, or use data.workers=0"


def test_what_semaphores_find_no_room_for_is_not_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.ENOSPC, "No space left on device")
    assert "the disk is full" in str(endings.verdict(Run(tmp_path), error)[1])
    monkeypatch.setattr(preflight, "MIN_FREE_BYTES", 1 << 62)
    assert "/dev/shm is full, which data.workers need" in str(endings.verdict(Run(tmp_path), error)[1])


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user of a container: a number without a name, and no home folder."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("HOME", "SEQTRAIN_CACHE", "NETRC"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_is_told_what_to_set() -> None:
    with pytest.raises(Unavailable, match=r"^~/\.cache/seqtrain: this system knows of no home folder; set HOME"):
        Store()
    with pytest.raises(Unavailable, match=r"^~/x\.txt: this system knows of no home folder"):
        find("data.path", "~/x.txt", "auto", [])
    assert not wandb_logger._in_netrc("api.wandb.ai")
