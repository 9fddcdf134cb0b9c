"""Laws of a sweep that need no training: which trials a sitting runs, what each leaves, what is refused at once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seqtrain import runs
from seqtrain.callbacks.signals import Interrupted
from seqtrain.commands import sweep as command
from seqtrain.commands import train
from seqtrain.commands import trial as trials
from seqtrain.faults import Fault
from seqtrain.runs import Run
from seqtrain.sweeps import launchers
from seqtrain.sweeps.folder import STOP, Asked, Sweep, Trial, member_of
from seqtrain.sweeps.grid import Grid
from seqtrain.sweeps.launchers import Local, gpus
from seqtrain.sweeps.sweeper import Sitting, _ending
from tests import made
from tests.test_sweep import index, statuses

LEFT = ("finished", "failed", "refused", "pruned", "interrupted", "planned")
"""How the trials of `sweep` stand, by number."""


@dataclass
class Runner:
    """Stands for a launcher: every trial that it is given finishes."""

    pulled: str = "started"
    together: int | None = 1
    ran: list[str] = field(default_factory=list)
    seen: list[dict[str, str]] = field(default_factory=list)  # what index.json says when a trial is pulled

    def run(self, trials: Iterator[Trial]) -> Iterator[Trial]:
        for trial in trials:
            self.seen.append({row["trial"]: row["status"] for row in index(trial.sweep)})
            self.ran.append(trial.name)
            end(trial, "finished")
            yield trial


def end(trial: Trial, status: str, reason: str = "") -> None:
    """Leaves what a trial leaves that ended so."""
    if status not in ("refused", "planned"):
        run = Run(trial.path) if trial.path.exists() else Run.create(trial.path)
        run.write_config({})
        run.write_summary({"status": status, "reason": reason})
        run.close()
    trial.conclude(cast(Any, status), reason)


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """A sweep with a trial of each status, and an index of them."""
    sweep = Sweep.create(tmp_path / "sweep", Asked(()))
    for number, status in enumerate(LEFT):
        end(sweep.plan(number, [f"seed={number}"], f"seed={number}"), status, reason="it is so")
    sweep.write_index()
    return sweep


def grid(sweep: Sweep, *words: str, runner: Any = None, **options: Any) -> tuple[Grid, Any, list[str]]:
    """The grid of these words in the sweep, whose trials are not composed; its runner, and what it says."""
    made, runner, said = Grid(), runner or Runner(), []
    made.folder, made.sitting = sweep, Sitting(runner, say=said.append, **options)
    made._check = lambda trial: None
    made.sweep(words)
    return made, runner, said


# -- which trials are run ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("retry_failed", [False, True])
def test_a_sitting_runs_what_has_not_ended_and_what_failed_only_if_asked(sweep: Sweep, retry_failed: bool) -> None:
    _, runner, _ = grid(sweep, retry_failed=retry_failed)
    assert runner.ran == (["001"] if retry_failed else []) + ["004", "005"]


def test_the_index_says_how_every_trial_stands_before_the_next_one_begins(tmp_path: Path) -> None:
    _, runner, said = grid(Sweep.create(tmp_path / "sweep", Asked(())), "seed=1,2")
    assert runner.seen == [{"000": "planned", "001": "planned"}, {"000": "finished", "001": "planned"}]
    assert [line.partition(":")[0] for line in said[1:]] == [f"trial 00{n} of 2 seed={n + 1}" for n in (0, 0, 1, 1)]


def test_a_combination_that_is_there_twice_is_run_once(tmp_path: Path) -> None:
    made, _, said = grid(Sweep.create(tmp_path / "sweep", Asked(())), "seed=1,2,1", "model=gru")
    assert said[:2] == ["1 of 3 combinations are there twice: left out", "2 trials"]
    assert [trial.label for trial in made.folder.trials()] == ["seed=1", "seed=2"]


def test_what_was_planned_already_stays_as_it_stands(sweep: Sweep) -> None:
    before = statuses(sweep.path)
    for trial in sweep.trials():
        sweep.plan(trial.number, ["seed=9"], "seed=9")
    assert statuses(sweep.path) == before
    assert sweep.trial(2).overrides == ("seed=2",)


def test_trials_beyond_a_thousand_come_by_number(sweep: Sweep) -> None:
    for number in (1000, 999):
        sweep.plan(number, [], "")
    assert [trial.number for trial in sweep.trials()] == [*range(len(LEFT)), 999, 1000]


@pytest.mark.parametrize(
    ("word", "swept", "said"),
    [
        ("run_dir=here", "", "run_dir=here: the directory of a trial is its number; name that of the sweep with"),
        ("dry_run=true", "", "dry_run=true: use --dry-run"),
        ("logger.wandb.project=a", "logger.wandb.project=a", "swept, but it cannot change a run: give it one value"),
    ],
)
def test_a_trial_with_a_word_that_a_sweep_decides_is_refused(sweep: Sweep, word: str, swept: str, said: str) -> None:
    made = Grid()
    made.folder, made.sitting = sweep, Sitting(cast(Any, None))
    with pytest.raises(Fault) as refused:
        made._check(sweep.plan(9, [word], swept))
    assert said in str(refused.value)


def test_how_a_trial_ended_is_said_with_its_reason_or_in_what_others_can_be_held_against(tmp_path: Path) -> None:
    sweep = Sweep.open(made.sweep(tmp_path / "sweep", {"gru": [1.25]}))
    made.trial(sweep.path, 1, "seed=2", status="refused", reason="it is so")
    said = [_ending(trial, 7.4) for trial in sweep.trials()]
    assert said == ["finished in 7 s, validation bits_per_byte 1.25", "refused: it is so"]


# -- one trial ---------------------------------------------------------------------------------------------------


def test_a_trial_begins_or_goes_on_and_one_that_has_come_to_its_end_is_left_alone(sweep: Sweep) -> None:
    todo = {trial.status: trials._todo(trial) for trial in sweep.trials()}
    assert todo == {
        **{"finished": None, "pruned": None, "failed": "resume", "interrupted": "resume"},
        **{"refused": "begin", "planned": "begin"},
    }
    (sweep.path / STOP).touch()
    assert {trials._todo(trial) for trial in sweep.trials()} == {None}, "the sitting is being ended"


def test_a_trial_that_another_process_writes_is_left_to_it(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "is_written", lambda run: run.name == "004")
    assert trials._todo(sweep.trial(4)) is None


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (Fault("lr=-1: too small", "dim=0: too small"), "refused", "lr=-1: too small; dim=0: too small"),
        (RuntimeError("no memory"), "failed", "RuntimeError: no memory"),
        (Interrupted(signal.SIGTERM), "interrupted", ""),
    ],
)
def test_what_ends_a_trial_before_its_run_has_begun_is_recorded(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: str, reason: str
) -> None:
    trial, during = sweep.trial(5), []

    def fails(*_: object) -> Run:
        during.append(trial.outcome)
        raise error

    monkeypatch.setattr(trials, "_run", fails)
    with pytest.raises(type(error)):
        trials._recorded(trial, "begin", sweep, (), None)
    assert (during[0]["status"], during[0]["pid"]) == ("running", os.getpid())
    assert (trial.outcome["status"], trial.outcome["reason"]) == (status, reason)


def test_of_a_trial_whose_run_has_begun_the_run_says_how_it_ended(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = sweep.trial(4)

    def ends(*_: object) -> Run:
        end(trial, "pruned", "behind")
        return Run(trial.path)

    monkeypatch.setattr(trials, "finish", lambda work, as_json: work() and 0)
    monkeypatch.setattr(trials, "_run", ends)
    trials._recorded(trial, "resume", sweep, (), None)
    assert (trial.outcome["status"], trial.outcome["reason"]) == ("pruned", "behind")


def test_what_a_trial_prints_stands_behind_what_it_printed_before_and_in_no_file_of_others(tmp_path: Path) -> None:
    log, outside = tmp_path / "log", tmp_path / "outside"
    log.write_text("first\n")
    kept = [os.dup(number) for number in (1, 2)]
    try:
        trials._redirect(log)
        os.write(1, b"second\n")
        os.write(2, b"third\n")
    finally:
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)
    assert log.read_text() == "first\nsecond\nthird\n"
    log.unlink()
    log.symlink_to(outside)
    with pytest.raises(OSError, match="symbolic link"):
        trials._redirect(log)
    assert not outside.exists()


@pytest.mark.parametrize(("typed", "threads"), [("seed=1", 3), ("trainer.threads=2", 2)])
def test_a_trial_has_the_threads_of_its_share_unless_it_asks_for_others(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, typed: str, threads: int
) -> None:
    configs: list[Any] = []
    monkeypatch.setattr(train, "start", lambda config, choices, request: configs.append(config))
    trial = sweep.plan(9, [typed], typed)
    trials._run(trial, "begin", sweep, (), 3)
    assert (configs[0].trainer.threads, configs[0].run_dir) == (threads, str(trial.path))


# -- the folder --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("sweep", "exists already; use `seqtrain resume"),
        ("taken", "exists already and is no empty folder; give another one"),
        ("file/sweep", "cannot be made: Not a directory; give another one"),
    ],
)
def test_a_sweep_takes_no_folder_that_is_not_empty(sweep: Sweep, place: str, said: str) -> None:
    home = sweep.path.parent
    (home / "file").touch()
    (home / "taken").mkdir()
    (home / "taken" / "thesis.tex").touch()
    with pytest.raises(Fault, match=f"^hydra.sweep.dir=.*{place} {said}"):
        Sweep.create(home / place, Asked(()))
    assert [path.name for path in (home / "taken").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("place", ["000", "trials/000.json", "logs/000.txt"])
def test_a_link_in_a_sweep_is_refused(sweep: Sweep, place: str) -> None:
    path = sweep.path / place
    if path.exists():
        path.rename(sweep.path.parent / "moved")
    path.symlink_to(sweep.path.parent)
    with pytest.raises(Fault, match=f"{place}: a link, which no sweep makes"):
        sweep.check_entries()


@pytest.mark.parametrize(
    ("place", "content", "ask"),
    [
        ("sweep.yaml", {"kind": "grid", "overrides": "seed=1"}, lambda sweep: sweep.asked),
        ("sweep.yaml", {"kind": "grid", "trust": [1]}, lambda sweep: sweep.asked),
        ("sweep.yaml", {"kind": "bayes", "overrides": []}, lambda sweep: sweep.asked),
        ("trials/000.json", {"overrides": [], "label": "", "status": "done", "reason": ""}, Sweep.trials),
        ("trials/000.json", {"overrides": [1], "label": "", "status": "planned", "reason": ""}, Sweep.trials),
        ("trials/000.json", {"overrides": [], "label": ""}, Sweep.trials),
        ("trials/000.json", [], Sweep.trials),
    ],
)
def test_what_no_sweep_writes_is_a_fault_that_names_the_file(sweep: Sweep, place: str, content: Any, ask: Any) -> None:
    (sweep.path / place).write_text(json.dumps(content))
    with pytest.raises(Fault, match=f"{place}: not what a sweep writes there"):
        ask(sweep)


def test_a_number_that_was_not_planned_and_a_folder_that_is_no_sweep_are_faults(sweep: Sweep) -> None:
    with pytest.raises(Fault, match=r"no trial 017$"):
        sweep.trial(17)
    with pytest.raises(Fault, match=r"is no sweep: it has no sweep\.yaml"):
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
    assert Run(sweep.path / "004").summary["status"] == "failed"


@pytest.mark.parametrize(("others", "left"), [(["run"], ["run"]), ([], None)])
def test_what_is_removed_takes_outputs_along_only_where_that_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[str], left: list[str] | None
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (*others, "refused"):
        (Path("outputs") / name).mkdir(parents=True)
    runs.remove(Path("outputs/refused"))
    assert ([path.name for path in Path("outputs").iterdir()] if Path("outputs").exists() else None) == left


# -- our launcher ------------------------------------------------------------------------------------------------


class Server:
    """Stands for the fork server: a trial has finished as soon as it is begun."""

    begun: list[tuple[list[str], dict[str, str]]]

    def __init__(self, *_: object, **__: object) -> None:
        Server.begun = []

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left."""

    def popen(self, words: list[str], *, env: dict[str, str]) -> Any:
        Sweep.open(words[1]).trial(int(words[2])).conclude("finished")
        Server.begun.append((words, env))
        reader, writer = os.pipe()
        os.close(writer)  # `select` finds it readable
        return Ended(reader)


@dataclass(frozen=True)
class Ended:
    """A process that has ended, with this exit status."""

    line: int = -1
    code: int = 0
    stderr: str = ""

    def fileno(self) -> int:
        return self.line

    def poll(self) -> int:
        return self.code

    def close(self) -> None:
        if self.line >= 0:
            os.close(self.line)


def test_every_slot_has_its_share_of_gpus_and_cores_and_its_trials_are_trusted_as_their_sweep_was(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "ForkServer", Server)
    monkeypatch.setattr(launchers.os, "sched_getaffinity", lambda pid: set(range(7)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    said: list[str] = []
    launcher = Local(n_jobs=2)
    launcher.trust, launcher.say = ("mine", "theirs"), said.append
    assert [trial.number for trial in launcher.run(iter(sweep.trials()[:3]))] == [0, 1, 2]
    assert said == ["2 trials at a time, each with 3 threads and GPUs 0,1 | 2,3"]
    assert [env["CUDA_VISIBLE_DEVICES"] for _, env in Server.begun] == ["0,1", "2,3", "0,1"]
    assert {env["OMP_NUM_THREADS"] for _, env in Server.begun} == {"3"}
    trusted = ("--trust", "mine", "--trust", "theirs", "--threads=3")
    assert [words for words, _ in Server.begun] == [["trial", str(sweep.path), f"00{n}", *trusted] for n in (0, 1, 2)]


def test_threads_are_left_to_whoever_has_said_something_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert Local(n_jobs=1)._threads() is None
    assert Local(n_jobs=10**6)._threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert Local(n_jobs=2)._threads() is None
    assert Local(n_jobs=2, threads=4)._threads() == 4


@pytest.mark.parametrize(("names", "found"), [("", []), ("-1", []), ("3", ["3"]), ("GPU-a,1", ["GPU-a", "1"])])
def test_the_gpus_are_those_that_the_environment_shows(names: str, found: list[str]) -> None:
    assert gpus({"CUDA_VISIBLE_DEVICES": names}) == found


@pytest.mark.parametrize("options", [{"n_jobs": 0}, {"threads": 0}, {"n_jobs": -1}])
def test_no_trial_or_no_thread_at_a_time_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(Fault, match="expected a whole number above 0"):
        Local(**options)


@pytest.mark.parametrize(
    ("status", "code", "stderr", "ends"),
    [
        ("running", 1, "Traceback\nOSError: no space\n", ("failed", "OSError: no space")),
        ("running", 3, "", ("failed", "its process ended with 3")),
        ("running", -9, "", ("failed", "its process was killed by SIGKILL (the machine may have run out of memory)")),
        ("running", -15, "", ("failed", "its process was killed by SIGTERM")),
        ("interrupted", 143, "", ("planned", "")),
        ("refused", 2, "error: too small", ("refused", "")),
    ],
)
def test_a_process_that_could_not_say_how_its_trial_ended_is_spoken_for(
    sweep: Sweep, status: str, code: int, stderr: str, ends: tuple[str, str]
) -> None:
    trial = sweep.trial(5)
    trial.conclude(cast(Any, status))
    launchers._after(trial, cast(Any, Ended(code=code, stderr=stderr)))
    assert (trial.status, trial.reason) == ends


# -- the command -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "code"),
    [
        (("finished", "pruned"), 0),
        (("finished", "refused"), 2),
        (("refused", "failed"), 2),
        (("pruned", "failed"), 1),
        (("finished", "interrupted"), 1),
        (("finished", "planned"), 1),
    ],
)
def test_a_sweep_ends_with_the_worst_code_of_its_trials_and_a_row_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left: tuple[str, ...], code: int
) -> None:
    sweep = Sweep.create(tmp_path / "sweep", Asked(()))
    for number, status in enumerate(left):
        end(sweep.plan(number, [f"seed={number}"], f"seed={number}"), status)
    assert command._finish(sweep, as_json=True) == code
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["status"] for row in rows] == list(left) == [row["status"] for row in index(sweep.path)]
    begun = [None if status in ("refused", "planned") else str(sweep.path / f"00{n}") for n, status in enumerate(left)]
    assert [row["run"] for row in rows] == begun


@pytest.mark.parametrize(
    ("status", "again"),
    [("pruned", []), ("interrupted", ["seqtrain resume"]), ("failed", ["seqtrain resume --retry-failed"])],
)
def test_what_is_left_to_do_is_said_as_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: str, again: list[str]
) -> None:
    path = made.sweep(tmp_path / "a sweep", {"gru": [1.25, 1.5]})
    Run(path / "001").write_summary(Run(path / "001").summary | {"status": status})
    command._finish(Sweep.open(path), as_json=False)
    said = capsys.readouterr().out
    assert "validation" in said, "the table of the runs"
    assert f"sweep {path}: 2 trials: 1 finished, 1 {status}" in said
    commands = said.splitlines()[-1].removeprefix("go on: ").replace(f" '{path}'", "").split("; ")
    assert commands == ["seqtrain compare --html report.html", *again]


def test_a_sweep_is_run_once_and_not_by_every_process_of_a_group(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    for ask in (
        lambda: command.start(train.Request(["seed=1,2"]), as_json=False),
        lambda: command.resume(sweep.path, [], (), retry_failed=False, as_json=False),
    ):
        with pytest.raises(Fault, match="run it once, without srun or torchrun"):
            ask()


def test_a_search_has_no_dry_run() -> None:
    with pytest.raises(Fault, match="--dry-run: a search proposes its trials as it goes"):
        command.start(train.Request(["sweep=optuna", "dry_run=true"]), as_json=False)


def test_a_dry_grid_tells_the_cost_of_each_trial_once_and_ends_with_2_where_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "dry_run", lambda config, request: config.seed)
    monkeypatch.setattr(train, "print_cost", lambda cost, as_json: print(cost))
    monkeypatch.chdir(tmp_path)
    assert command.start(train.Request(["seed=3,nothing,4,3", "dry_run=true"]), as_json=False) == 2
    out, err = capsys.readouterr()
    assert out.splitlines() == ["3", "4"]
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "seed=nothing" in errors[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("begun", [False, True])
def test_a_sweep_that_a_fault_ends_is_removed_unless_a_trial_has_left_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    def sit(sweep: Sweep, *_: object, **__: object) -> None:
        end(sweep.plan(0, ["seed=1"], "seed=1"), "finished" if begun else "refused")
        raise Fault("hydra.launcher: gave up")

    monkeypatch.setattr(command, "_sit", sit)
    words = ["seed=1,2", f"hydra.sweep.dir={tmp_path}/sweep"]
    with pytest.raises(Fault, match="gave up"):
        command.start(train.Request(words), as_json=False)
    assert (tmp_path / "sweep").exists() == begun
    assert not begun or Sweep.open(tmp_path / "sweep").asked == Asked(tuple(words))


@pytest.mark.parametrize("planned", [False, True])
def test_an_interrupt_leaves_an_index_of_what_was_planned_whole(sweep: Sweep, planned: bool) -> None:
    def interrupted(words: object) -> None:
        assert not (sweep.path / STOP).exists(), "an earlier sitting's: with it no trial would begin"
        sweep.trial(5).conclude("refused")
        raise Interrupted(signal.SIGTERM)

    (sweep.path / STOP).touch()
    if not planned:
        (sweep.path / "index.json").unlink()
    sweeper = SimpleNamespace(setup=lambda **_: None, sweep=interrupted)
    settings: Any = SimpleNamespace(files=SimpleNamespace(loader=None), config=None, trust=())
    with pytest.raises(Interrupted):
        command._sit(sweep, sweeper, None, [], settings, retry_failed=False)
    assert (sweep.path / "index.json").exists() == planned
    assert not planned or index(sweep.path)[5]["status"] == "refused" == statuses(sweep.path)["005"]
