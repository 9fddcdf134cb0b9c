"""Laws of a sweep that need no training: which trials a sitting runs, what it says, and with what it ends."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seqtrain.cli import sweep as command
from seqtrain.cli import train
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.sweeps import attempts
from seqtrain.sweeps.folder import STOP, Asked, Status, Sweep, Trial
from seqtrain.sweeps.grid import Grid
from seqtrain.sweeps.settings import Settings, Words
from seqtrain.sweeps.sweeper import SweepAttempt, _ending
from seqtrain.training.callbacks.signals import Interrupted
from tests.support import fake_runs
from tests.support.fake_runs import ended
from tests.support.refused import refusal
from tests.sweeps.test_sweep import index, statuses


@dataclass
class Runner:
    """Stands for a launcher: every trial that it is given finishes."""

    pulled: str = "started"
    together: int | None = 1
    ran: list[tuple[str, str, str]] = field(default_factory=list)  # trials, and how they stood before
    seen: list[dict[str, str]] = field(default_factory=list)  # what index.json says when a trial is pulled

    def run(self, trials: Iterator[Trial]) -> Iterator[Trial]:
        for trial in trials:
            self.seen.append({row["trial"]: row["status"] for row in index(trial.sweep)})
            self.ran.append((trial.name, trial.outcome["status"], trial.outcome["reason"]))
            ended(trial, "finished")
            yield trial


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """A sweep with a trial of each status."""
    return fake_runs.of_each_status(tmp_path / "sweep")


def grid(sweep: Sweep, *words: str, **options: Any) -> tuple[Grid, Runner, list[str]]:
    """The grid of these words in the sweep, whose trials are not composed; its runner, and what it says."""
    made, runner, said = Grid(), Runner(), []
    made.folder, made.attempt = sweep, SweepAttempt(runner, say=said.append, **options)
    made._check = lambda trial: None
    made.sweep(words)
    return made, runner, said


def test_a_sitting_runs_what_has_not_ended_and_what_failed_or_was_refused_only_if_asked(tmp_path: Path) -> None:
    for retry_failed, numbers in ((False, ["004", "005"]), (True, ["001", "002", "004", "005"])):
        sweep = fake_runs.of_each_status(tmp_path / str(retry_failed))
        _, runner, _ = grid(sweep, retry_failed=retry_failed)
        # What an earlier sitting left says nothing of a trial that is run again.
        assert runner.ran == [(name, "planned", "") for name in numbers]


def test_the_index_says_how_every_trial_stands_before_the_next_one_begins(tmp_path: Path) -> None:
    _, runner, said = grid(Sweep.create(tmp_path / "sweep", Asked(())), "seed=1,2")
    assert runner.seen == [{"000": "planned", "001": "planned"}, {"000": "finished", "001": "planned"}]
    assert [line.partition(":")[0] for line in said[1:]] == [f"trial 00{n} of 2 seed={n + 1}" for n in (0, 0, 1, 1)]


def test_a_combination_that_is_there_twice_is_run_once(tmp_path: Path) -> None:
    made, _, said = grid(Sweep.create(tmp_path / "sweep", Asked(())), "seed=1,2,1", "model=gru")
    assert said[:2] == ["1 of 3 combinations are repeated: left out", "2 trials"]
    assert [trial.label for trial in made.folder.trials()] == ["seed=1", "seed=2"]


def test_a_trial_with_a_word_that_a_sweep_decides_is_refused(sweep: Sweep) -> None:
    made = Grid()
    made.folder, made.attempt = sweep, SweepAttempt(cast(Any, None))
    for number, (word, swept, said) in enumerate(
        (
            ("run_dir=here", "", "run_dir=here: a trial's directory is its number; set the sweep's directory with"),
            ("dry_run=true", "", "dry_run=true: use --dry-run"),
            (
                "logger.wandb.project=a",
                "logger.wandb.project=a",
                "a logger cannot be swept, since it does not change a run",
            ),
        ),
        9,
    ):
        assert said in refusal(made._check, sweep.plan(number, [word], swept)), word


def test_how_a_trial_ended_is_said_with_its_reason_or_in_what_others_can_be_held_against(tmp_path: Path) -> None:
    sweep = Sweep.open(fake_runs.sweep(tmp_path / "sweep", {"gru": [1.25]}))
    fake_runs.trial(sweep.path, 1, "seed=2", status="refused", reason="it is so")
    said = [_ending(trial, 7.4) for trial in sweep.trials()]
    assert said == ["finished in 7 s, validation bits_per_byte 1.25", "refused: it is so"]


# -- the command -------------------------------------------------------------------------------------------------


def test_a_sweep_ends_with_the_worst_code_of_its_trials_and_a_row_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends: list[tuple[tuple[Status, ...], int]] = [
        (("finished", "pruned"), 0),
        (("finished", "refused"), 2),
        (("refused", "failed"), 2),
        (("pruned", "failed"), 1),
        (("finished", "interrupted"), 1),
        (("finished", "planned"), 1),
    ]
    for left, code in ends:
        sweep = Sweep.create(tmp_path / "-".join(left), Asked(()))
        for number, status in enumerate(left):
            ended(sweep.plan(number, [f"seed={number}"], f"seed={number}"), status)
        assert command._finish(sweep, as_json=True) == code, left
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [row["status"] for row in rows] == list(left) == [row["status"] for row in index(sweep.path)]
        begun = [None if end in ("refused", "planned") else str(sweep.path / f"00{n}") for n, end in enumerate(left)]
        assert [row["run"] for row in rows] == begun
    command._finish(Sweep.open(fake_runs.sweep(tmp_path / "sweep", {"gru": [1.25]})), as_json=True)
    row = json.loads(capsys.readouterr().out)
    assert (row["label"], row["metrics"]["validation"]["bits_per_byte"]) == ("model=gru seed=1", 1.25)


def test_what_is_left_to_do_is_said_as_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = fake_runs.sweep(tmp_path / "a sweep", {"gru": [1.25, 1.5]})
    for status, again in (
        ("pruned", []),
        ("interrupted", ["seqtrain resume"]),
        ("failed", ["seqtrain resume --retry-failed"]),
    ):
        Run(path / "001").update_summary(status=status)
        command._finish(Sweep.open(path), as_json=False)
        said = capsys.readouterr().out
        assert "validation" in said, "the table of the runs"
        assert f"sweep {path}: 2 trials: 1 finished, 1 {status}" in said
        commands = said.splitlines()[-1].removeprefix("next: ").replace(f" '{path}'", "").split("; ")
        assert commands == ["seqtrain compare --html report.html", *again]


def test_a_sweep_is_run_once_and_not_by_every_process_of_a_group(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    for ask in (
        lambda: command.start(train.Request(["seed=1,2"]), as_json=False),
        lambda: command.resume(sweep.path, [], retry_failed=False, as_json=False),
    ):
        with pytest.raises(UserError, match="run it once, without srun or torchrun"):
            ask()


def test_a_dry_grid_tells_the_cost_of_each_trial_once_and_ends_with_2_where_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "dry_run", lambda composed, request: composed.config.seed)
    monkeypatch.setattr(command, "print_cost", lambda cost, as_json: print(cost))
    monkeypatch.chdir(tmp_path)
    assert command.start(train.Request(["seed=3,nothing,4,3", "dry_run=true"]), as_json=False) == 2
    out, err = capsys.readouterr()
    assert out.splitlines() == ["3", "4"]
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "seed=nothing" in errors[0]
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_that_a_fault_ends_is_removed_unless_a_trial_has_left_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["seed=1,2", f"hydra.sweep.dir={tmp_path}/sweep"]
    for status in ("refused", "finished"):

        def run_attempt(sweep: Sweep, *_: object, status: Status = status, **__: object) -> None:
            ended(sweep.plan(0, ["seed=1"], "seed=1"), status)
            raise UserError("hydra.launcher: gave up")

        monkeypatch.setattr(attempts, "_run_trials", run_attempt)
        with pytest.raises(UserError, match="gave up"):
            command.start(train.Request(words), as_json=False)
        assert (tmp_path / "sweep").exists() == (status == "finished")
    assert Sweep.open(tmp_path / "sweep").asked == Asked(tuple(words))


def test_where_the_study_of_a_search_is_kept_is_not_written_down_for_its_address_may_hold_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setattr(attempts, "_run_trials", lambda *_, **__: None)
    words = ["sweep=optuna", "seed=range(1,9)", f"hydra.sweep.dir={tmp_path}/sweep"]
    command.start(train.Request([*words, "hydra.sweeper.storage=mysql://me:secret@host/db"]), as_json=False)
    assert Sweep.open(tmp_path / "sweep").asked == Asked(tuple(words), "optuna")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"secret" in path.read_bytes()]


def test_a_search_hands_out_as_many_trials_as_its_launcher_runs_together_and_a_grid_hands_out_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("hydra_joblib_launcher", "hydra_submitit_launcher"):
        pytest.importorskip(f"hydra_plugins.{package}")
    monkeypatch.setattr(attempts.os, "sched_getaffinity", lambda pid: set(range(7)))
    for words, together in (
        (["hydra/launcher=joblib", "hydra.launcher.n_jobs=-1"], 7),
        (["hydra/launcher=slurm", "hydra.launcher.array_parallelism=4"], 4),
    ):
        settings = Settings.read(Words.sort([*words, f"hydra.sweep.dir={tmp_path}/sweep"]))
        assert attempts._runner(settings, has_search=True).together == together
        assert attempts._runner(settings, has_search=False).together is None


def test_an_interrupt_leaves_an_index_of_what_was_planned_whole(sweep: Sweep) -> None:
    def interrupted(words: object) -> None:
        assert not (sweep.path / STOP).exists(), "an earlier sitting's: with it no trial would begin"
        sweep.trial(5).conclude("refused")
        raise Interrupted(signal.SIGTERM)

    sweeper = SimpleNamespace(setup=lambda **_: None, sweep=interrupted)
    settings: Any = SimpleNamespace(files=SimpleNamespace(loader=None), config=None)
    for planned in (True, False):
        (sweep.path / STOP).touch()
        with pytest.raises(Interrupted):
            attempts._run_trials(sweep, sweeper, None, [], settings, retry_failed=False)
        assert (sweep.path / "index.json").exists() == planned
        if planned:
            assert index(sweep.path)[5]["status"] == "refused" == statuses(sweep.path)["005"]
            (sweep.path / "index.json").unlink()
