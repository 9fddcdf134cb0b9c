"""Laws of what cannot be read: it is neither absent nor broken, and nothing is begun or marked because of it."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seqtrain.cli import main
from seqtrain.compare.entries import read
from seqtrain.errors import UserError
from seqtrain.files.atomic import exists
from seqtrain.runs.checkpoint import step_name
from seqtrain.runs.directory import METRICS, Run, is_written, list_runs
from seqtrain.runs.summary import of_the_machine
from seqtrain.sweeps.attempts import _has_runs
from seqtrain.sweeps.folder import ASKED, Asked, Sweep, is_sweep
from tests.conftest import Seqtrain
from tests.support.tiny import OPTIONS, corpus

STEPS = 12
TRAIN = ("train", *OPTIONS, "trainer.checkpoint_every=4", "trainer.validate_every=100", f"trainer.max_steps={STEPS}")

Refuse = Callable[[Path, int], None]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Iterator[Refuse]:
    """`refuse(path, errno)`: that path cannot be read from here on; no permission keeps root out."""
    refused: dict[str, int] = {}

    def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
        def ask(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            name = os.path.abspath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else ""
            if name in refused:
                raise OSError(refused[name], os.strerror(refused[name]), str(path))
            return call(path, *args, **kwargs)

        return ask

    for module, name in ((os, "scandir"), (os, "listdir"), (os, "open"), (builtins, "open"), (io, "open")):
        monkeypatch.setattr(module, name, guarded(getattr(module, name)))
    yield lambda path, number: refused.update({os.path.abspath(path): number})
    refused.clear()


@pytest.fixture(scope="module")
def finished(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and a run on it of 12 steps, with checkpoints of steps 8 and 12."""
    folder = corpus(tmp_path_factory.mktemp("finished"))
    answer = seqtrain(*TRAIN, "run_dir=run", cwd=folder)
    assert answer.rc == 0, answer.err
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seqtrain_environment: dict[str, str]) -> Run:
    """A copy of it that was killed at step 12, in the folder where commands stand."""
    folder = shutil.copytree(finished, tmp_path / "copy")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SEQTRAIN_CACHE", seqtrain_environment["SEQTRAIN_CACHE"])
    run = Run(Path("run"))
    run.update_summary(status="running")
    for name in (step_name(STEPS), "best.ckpt"):
        (run.checkpoints / name).unlink()
    return run


@pytest.fixture
def refusal(run: Run, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Gives the one line with which a resume is refused, which must leave every file of the run as it was."""
    files = [path for path in run.path.rglob("*") if path.is_file()]
    before = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in files]

    def refusal(*options: str) -> str:
        assert main.main(["resume", "run", *options]) == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "rror" in line]
        assert [(path.stat().st_ino, path.stat().st_mtime_ns) for path in files] == before
        return line.removeprefix("error: ")

    return refusal


UNREADABLE = {
    # what cannot be read: how the one line begins
    "checkpoints": "run/checkpoints cannot be read: ",
    f"checkpoints/{step_name(8)}": f"checkpoint run/checkpoints/{step_name(8)} cannot be read: ",
    "config.yaml": "run/config.yaml cannot be read: ",
    "summary.json": "run/summary.json cannot be read: ",
    METRICS: f"run/{METRICS} cannot be read: ",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_neither_absent_nor_broken(
    name: str, run: Run, refuse: Refuse, refusal: Callable[..., str]
) -> None:
    for number in (errno.EACCES, errno.EIO):
        refuse(run.path / name, number)
        line = refusal()
        assert line.startswith(UNREADABLE[name])
        assert os.strerror(number) in line
        assert "delete" not in line


def test_a_folder_among_runs_that_cannot_be_read_is_told_and_hides_no_other(
    run: Run, refuse: Refuse, tmp_path: Path
) -> None:
    shutil.copytree("run", tmp_path / "runs" / "private")
    shutil.copytree("run", tmp_path / "runs" / "mine")
    refuse(tmp_path / "runs" / "private", errno.EACCES)
    with pytest.raises(
        UserError, match=r"private cannot be read: Permission denied; make it readable, or name the runs"
    ):
        list_runs(tmp_path / "runs")
    left_out: list[str] = []
    assert [entry.path.name for entry in read([tmp_path / "runs"], left_out)] == ["mine"]
    assert left_out == [f"left out: {tmp_path / 'runs' / 'private'} cannot be read: Permission denied"]


def test_whether_a_run_is_written_is_not_guessed(run: Run, refuse: Refuse) -> None:
    run.claim()
    run.close()
    assert not is_written(run.path)
    refuse(run.path / ".lock", errno.EACCES)
    with pytest.raises(UserError, match=r"\.lock cannot be read: Permission denied"):
        is_written(run.path)


def test_a_resume_that_is_refused_marks_nothing(run: Run, refusal: Callable[..., str]) -> None:
    text = Path("corpus.txt").read_text()
    Path("corpus.txt").write_text(text.replace("line", "LINE"))
    assert "has changed since run run began" in refusal("trainer.max_steps=20")
    assert [record["step"] for record in run.metrics() if "train/loss" in record] == list(range(1, STEPS + 1))
    assert (run.summary.status, run.config["trainer"]["max_steps"]) == ("running", STEPS)


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what clock and machine say."""
    return {key: value for key, value in record.items() if not of_the_machine(key)}


def test_a_record_that_ends_before_the_checkpoint_is_told_and_goes_on_behind_it(
    run: Run, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (run.path / METRICS).read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["step"] <= 5]
    (run.path / METRICS).write_bytes(b"".join(kept) + b'{"step": 6, "tr')
    assert main.main(["resume", "run"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "metrics.jsonl" in line]
    assert said == [
        "run run: metrics.jsonl ends at step 5, but the checkpoint is from step 8: the records between them are lost; "
        "later ones are complete"
    ]
    whole = [record for record in Run(finished / "run").metrics() if record["step"] <= 5 or record["step"] > 8]
    assert [timeless(record) for record in run.metrics()] == [timeless(record) for record in whole]
    (run.path / "checkpoints" / step_name(STEPS)).unlink()
    run.update_summary(status="running")
    assert main.main(["resume", "run"]) == 0
    assert "metrics.jsonl" not in capsys.readouterr().err, "it was told once, and nothing more was lost"


def test_a_folder_of_a_run_that_cannot_be_listed_is_not_passed_by(run: Run, refuse: Refuse) -> None:
    refuse(run.samples, errno.EACCES)
    with pytest.raises(UserError, match=r"samples cannot be read: Permission denied; make it readable"):
        Run.open("run")


def test_whether_a_folder_is_a_sweep_is_not_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_sweep(tmp_path)
    (tmp_path / ASKED).touch()
    assert is_sweep(tmp_path)
    assert not is_sweep(tmp_path / ASKED), "a file is no folder of a sweep"
    assert not exists(tmp_path / ("x" * 300))

    def refused(path: Path, **kwargs: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os.path, "isdir", lambda path: True)
    monkeypatch.setattr(os, "stat", refused)
    with pytest.raises(UserError, match=r"sweep\.yaml cannot be read: Permission denied"):
        is_sweep(tmp_path)


def test_the_trials_of_a_sweep_that_cannot_be_listed_are_not_none(tmp_path: Path, refuse: Refuse) -> None:
    sweep = Sweep.create(tmp_path / "s", Asked(("seed=1",)))
    sweep.plan(0, ("seed=1",), "seed=1")
    refuse(sweep.path / "trials", errno.EACCES)
    with pytest.raises(UserError, match="trials cannot be read: Permission denied"):
        sweep.trials()
    with pytest.raises(UserError, match="trials cannot be read: Permission denied"):
        sweep.check_entries()


def test_a_trial_that_was_not_made_whole_is_nothing_to_keep(tmp_path: Path) -> None:
    sweep = Sweep.create(tmp_path / "s", Asked(("seed=1",)))
    staged = sweep.path / ".new-01234567.tmp"
    staged.mkdir()
    (staged / "config.yaml").touch()
    assert not _has_runs(sweep)
    Run.create(sweep.path / "000").close()
    assert _has_runs(sweep)
