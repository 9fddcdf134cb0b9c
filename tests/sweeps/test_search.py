"""A search: what it asks for, what it tells its study, and how it goes on after a kill."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from omegaconf import OmegaConf

from seqtrain.config import check
from seqtrain.config.conf_files import ConfFiles
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.sweeps import study as studies
from seqtrain.sweeps.folder import Asked, Sweep, Trial
from seqtrain.sweeps.search import Search, ends, space
from seqtrain.sweeps.settings import Settings, Words
from seqtrain.sweeps.sweeper import SweepAttempt, Sweeper
from seqtrain.training import compatibility
from seqtrain.training.callbacks.pruning import Pruning
from tests.conftest import Seqtrain
from tests.support.refused import refusal
from tests.support.tiny import OPTIONS, assert_twins, corpus

optuna = pytest.importorskip("optuna")

WORDS = ("optimizer.lr=tag(log,interval(1e-4,1e-1))", "model.dim=range(16,65,16)", "seed=7")
Ending = Callable[[Trial], None]


def end(trial: Trial, status: str = "finished", *, loss: float = 1.0, **more: Any) -> None:
    """Leaves what a trial's process leaves when it ends so."""
    run = Run(trial.path) if trial.path.exists() else Run.create(trial.path)
    run.write_config({})
    best, last = {"validation": {"loss": loss}}, {"validation": {"loss": 100 - loss}}  # in the other order
    run.update_summary(status=status, best=best, metrics=last, **more)
    run.close()


@dataclass
class Runner:
    """Stands for a launcher: `at_once` trials begin before the first of them ends, in the way that `ending` says."""

    ending: Ending = end
    at_once: int = 1
    pulled: str = "started"
    said: list[str] = field(default_factory=list)

    @property
    def together(self) -> int:
        return self.at_once

    def run(self, trials: Iterator[Trial]) -> Iterator[Trial]:
        while batch := list(itertools.islice(trials, self.at_once)):
            for trial in batch:
                self.ending(trial)
                yield trial


class Killed(BaseException):  # as no code can take a kill for an error
    """Stands for the end of the process that searches."""


def kill(trial: Trial) -> None:
    raise Killed


@functools.cache
def defaults() -> dict[str, Any]:
    """What conf/hydra/sweeper/optuna.yaml says."""
    node = OmegaConf.to_container(Settings.read(Words.sort(["sweep=optuna"])).config.hydra.sweeper)
    assert isinstance(node, dict)
    assert node.pop("_target_") == "seqtrain.sweeps.search.Search"
    return {str(name): value for name, value in node.items()}


@functools.cache
def config() -> Any:
    return check.compose(WORDS[2:]).config


def search(path: Path, *words: str, runner: Any, retry_failed: bool = False, **options: Any) -> Search:
    """A search in `path`, begun there if it is not."""
    made = Search(**{**defaults(), "n_trials": 3, **options})
    made.folder = Sweep.open(path) if path.exists() else Sweep.create(path, Asked((*WORDS, *words), "optuna"))
    runner = runner or Runner()
    made.attempt = SweepAttempt(runner, retry_failed=retry_failed, say=getattr(runner, "said", []).append)
    return made


def run(path: Path, *words: str, runner: Any = None, **options: Any) -> Search:
    """A search from its beginning, or from where it was, to its end or a kill; its trials are not composed."""
    made = search(path, *words, runner=runner, **options)
    made._corner = lambda folders: config()
    with contextlib.suppress(Killed), mock.patch.object(Sweeper, "_check"):
        made.sweep([*WORDS, *words])
    return made


def asked(made: Search) -> list[dict[str, Any]]:
    return [trial.params for trial in made.study.get_trials()]


def test_a_word_replaces_what_a_space_says_of_its_key_and_a_deletion_takes_it_out() -> None:
    params = {"model": "lstm", "model.dim": "range(1,9)", "model.dropout": "interval(0,0.5)", "seed": 1}
    swept, fixed = space(params, ["model.dim=64", "~model.dropout", "model=choice(gru,lstm)", "tbptt.k2=8"])
    assert list(swept) == ["model"]
    assert swept["model"] == optuna.distributions.CategoricalDistribution(["gru", "lstm"])
    assert fixed == ["model.dim=64", "seed=1", "tbptt.k2=8"]
    with pytest.raises(UserError, match="no space to search"):
        space({}, ["model=glob(*)"])


@pytest.mark.long
def test_trials_have_the_numbers_of_their_directories_and_stay_within_the_space(tmp_path: Path) -> None:
    made = run(tmp_path / "s", n_trials=4, runner=Runner(at_once=2))
    planned = made.folder.trials()
    assert [trial.number for trial in planned] == [0, 1, 2, 3]
    for trial, params in zip(planned, asked(made), strict=True):
        assert trial.overrides == ("seed=7", *(f"{name}={value}" for name, value in params.items()))
        assert 1e-4 <= params["optimizer.lr"] <= 1e-1
        assert params["model.dim"] in (16, 32, 48, 64)
    assert len({str(params) for params in asked(made)}) == 4


def test_the_study_is_told_how_each_trial_ended(tmp_path: Path) -> None:
    def ending(trial: Trial) -> None:
        if trial.number == 0:
            end(trial, loss=0.5)
        elif trial.number == 1:
            Pruning(run=Run(trial.path))._judged(20, {"loss": 3.0}, last=False)
            end(trial, "pruned", reason="behind")
        elif trial.number == 2:
            end(trial, "failed", reason="out of memory")
        else:
            trial.conclude("refused", "no such pair")

    made = run(tmp_path / "s", n_trials=4, runner=Runner(ending))
    found = made.study.get_trials()
    assert [trial.state.name for trial in found] == ["COMPLETE", "PRUNED", "FAIL", "FAIL"]
    assert [trial.value for trial in found] == [0.5, 3.0, None, None]
    assert [trial.user_attrs for trial in found[2:]] == [{"failed": "out of memory"}, {"refused": "no such pair"}]
    plain = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path}/s/study.db")
    assert plain.best_trial.number == 0
    assert plain.metric_names == ["best/loss"]


@pytest.mark.long
def test_a_trial_that_ended_before_its_search_was_killed_is_told_and_not_run_again(tmp_path: Path) -> None:
    begun: list[int] = []

    def ending(trial: Trial) -> None:
        begun.append(trial.number)
        end(trial, loss=trial.number)
        if trial.number == 2:
            raise Killed

    for _ in range(2):
        made = run(tmp_path / "s", runner=Runner(ending), n_trials=4)
    assert begun == [0, 1, 2, 3]
    assert [trial.value for trial in made.study.get_trials()] == [0.0, 1.0, 2.0, 3.0]


def test_a_trial_that_was_half_asked_for_is_completed_under_its_number(tmp_path: Path) -> None:
    made = run(tmp_path / "s", n_trials=1)
    made.study.ask()
    again = run(tmp_path / "s", n_trials=3)
    assert [set(params) for params in asked(again)] == [{"optimizer.lr", "model.dim"}] * 3
    assert [trial.status for trial in again.folder.trials()] == ["finished"] * 3


def test_several_objectives_have_their_directions_a_front_and_no_pruning(tmp_path: Path) -> None:
    def ending(trial: Trial) -> None:
        assert Pruning(run=Run(trial.path))._judged(20, {"loss": 9e9}, last=False) == ""
        end(trial, loss=1.0 + (trial.number == 2), flops=5.0 + trial.number)

    runner = Runner(ending)
    made = run(tmp_path / "s", runner=runner, objectives=["best/loss", "flops"])
    assert runner.said[0].startswith("no trial is pruned")
    assert [direction.name for direction in made.study.directions] == ["MINIMIZE", "MINIMIZE"]
    assert made.study.get_trials()[2].values == [2.0, 7.0]
    assert [line.partition(":")[0] for line in made.best()] == ["Pareto front"]
    command = next(iter(made.best())).partition("seqtrain train ")[2].split()
    assert command == list(made.folder.trial(0).overrides)


MEDIAN = {"_target_": "optuna.pruners.MedianPruner"}
FAULTS: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "nothing to search": (("optimizer.lr=0.1", "model.dim=16"), {}, "nothing to search"),
    "an unknown objective": ((), {"objectives": ["best/los"]}, "did you mean best/loss"),
    "a sampler that unpickles": ((), {"sampler": {"_target_": "optuna.samplers.CmaEsSampler"}}, "expected one of"),
    "an unknown option": ((), {"pruner": {**MEDIAN, "startup": 3}}, "unexpected keyword argument 'startup'"),
    "a value that cannot be": ((), {"pruner": {**MEDIAN, "n_startup_trials": -1}}, "cannot be negative"),
    "a key that no trial has": (("optimizer.lrr=interval(0.1,0.2)",), {}, "did you mean lr"),
    "a swept task": (("task=sentiment,next_token",), {}, "name one"),
    "a storage of no kind": ((), {"storage": "nonsense"}, "cannot be opened"),
}


def test_a_faulty_search_is_refused_before_its_first_trial(tmp_path: Path) -> None:
    for fault, (words, options, expected) in FAULTS.items():

        def start(fault: str = fault, words: tuple[str, ...] = words, options: dict[str, Any] = options) -> None:
            search(tmp_path / fault, *words, runner=Runner(kill), **options).sweep([*WORDS, *words])

        assert expected in refusal(start), fault


RANDOM: dict[str, Any] = {"n_trials": 4, "sampler": {"_target_": "optuna.samplers.RandomSampler"}}
ALIKE = (
    "model.dropout=interval(0.0,1.0)",
    "optimizer.lr=interval(0.0,1.0)",
    "optimizer.weight_decay=interval(0.0,1.0)",
)


def test_no_parameter_of_a_trial_follows_another(tmp_path: Path) -> None:
    trials = asked(run(tmp_path / "sweep", *ALIKE, **RANDOM))
    for params in trials:
        values = [params[word.partition("=")[0]] for word in ALIKE]
        assert len({round(value, 6) for value in values}) == len(ALIKE), params


def test_without_optuna_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"pip install 'seqtrain\[sweep\]'"):
        Search(**defaults())


def test_a_disk_that_is_full_when_a_trial_is_planned_is_no_fault_of_the_study(tmp_path: Path) -> None:
    full = mock.patch.object(Sweep, "plan", side_effect=OSError(errno.ENOSPC, "no space"))
    with full, pytest.raises(OSError, match="no space"):
        run(tmp_path / "s", n_trials=2)


def test_a_study_that_is_removed_while_its_search_runs_or_is_damaged_is_one_line(tmp_path: Path) -> None:
    def removing(trial: Trial) -> None:
        end(trial)
        (trial.sweep / "study.db").unlink()

    assert f"sweep {tmp_path}/a: its study cannot be opened: " in refusal(run, tmp_path / "a", runner=Runner(removing))
    run(tmp_path / "b", n_trials=1)
    (tmp_path / "b" / "study.db").write_bytes(b"no database" * 100)
    assert f"sweep {tmp_path}/b: its study cannot be opened: " in refusal(run, tmp_path / "b", n_trials=2)


@pytest.mark.long
def test_a_search_repeats_a_proposal_and_names_the_first_of_equal_trials_as_best(tmp_path: Path) -> None:
    made = run(tmp_path / "s", "model.dim=16", "optimizer.lr=choice(0.1,0.2)", n_trials=6)
    assert all(trial.path.exists() for trial in made.folder.trials())
    assert len({str(params) for params in asked(made)}) < 6
    assert [line[:15] for line in made.best()] == ["best: trial 000"]


@pytest.mark.long
@pytest.mark.parametrize(("together", "lines"), [(2, 0), (3, 1)])
def test_a_search_that_runs_all_trials_at_a_time_is_told_that_it_learns_nothing(
    together: int, lines: int, tmp_path: Path
) -> None:
    runner = Runner(at_once=together)
    run(tmp_path / "s", runner=runner, n_trials=3)
    run(tmp_path / "s", runner=Runner(at_once=6, said=runner.said), n_trials=6)  # these know of the first three
    assert len([line for line in runner.said if "trials run at once" in line]) == lines


@pytest.mark.long
def test_a_study_that_was_lost_is_not_begun_again_over_the_directories_that_there_are(tmp_path: Path) -> None:
    run(tmp_path / "s", n_trials=1)
    (tmp_path / "s" / "study.db").unlink()
    with pytest.raises(UserError, match="fewer trials than its folder \\(1\\)"):
        run(tmp_path / "s", n_trials=2)


@pytest.mark.long
def test_a_storage_elsewhere_holds_the_studies_of_several_sweeps_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(studies.ELSEWHERE, "")  # so that it is put back
    url = f"sqlite:///{tmp_path}/shared.db"

    def ending(trial: Trial) -> None:
        Pruning(run=Run(trial.path))._judged(20, {"loss": 1.0}, last=False)
        end(trial)

    for name in ("one", "other"):
        run(tmp_path / name, runner=Runner(ending), n_trials=1, storage=url)
        assert not (tmp_path / name / "study.db").exists()
        study = optuna.load_study(study_name=name, storage=url)
        assert [found.intermediate_values for found in study.get_trials()] == [{20: 1.0}]


def test_a_storage_that_nobody_typed_is_refused() -> None:
    recorded = ["sweep=optuna", "hydra.sweeper.storage=sqlite:////elsewhere.db"]
    with pytest.raises(UserError, match="you did not type it"):
        Settings.read(Words.sort([]), recorded=recorded)
    assert Settings.read(Words.sort(recorded)).config.hydra.sweeper.storage == "sqlite:////elsewhere.db"


def spaces() -> list[str]:
    """The files of conf/sweep that say what is worth searching of a model."""
    return [name for name in ConfFiles().options("sweep") if name != "optuna" and not name.startswith("_")]


TASKS = {"bert": "masked_lm", "cbow": "sentiment", "elmo": "bidirectional_lm"} | dict.fromkeys(
    ["encoder_decoder", "rnn_encoder_decoder"], "translation"
)
"""What models learn that cannot learn next_token."""


@pytest.mark.long
@pytest.mark.parametrize("name", spaces())
def test_every_corner_of_a_shipped_space_is_a_run(name: str) -> None:
    params = Settings.read(Words.sort([f"sweep={name}"])).config.hydra.sweeper.params
    swept, fixed = space(params, [f"task={TASKS.get(name, 'next_token')}"])
    for side in (0, -1):
        words = [f"{key}={ends(kind)[side]}" for key, kind in swept.items()]
        composed = check.compose([*fixed, *words]).config
        assert check.signature_faults(composed) == []
        compatibility.check_pair(composed)


def test_every_space_is_that_of_a_shipped_model() -> None:
    found = set(spaces())
    assert len(found) > 8
    assert found <= set(ConfFiles().options("model"))


# -- whole searches, by the command ------------------------------------------------------------------------------

SPACE = ("model.dim=range(8,33,8)", "optimizer.lr=tag(log,interval(1e-4,1e-1))")
STEPS = (
    *("trainer.max_steps=60", "trainer.validate_every=10", "trainer.checkpoint_every=5", "trainer.accelerator=cpu"),
    "schedule.warmup=5",  # within which none is pruned
)
FEW = (
    "hydra.sweeper.n_trials=7",
    "hydra.sweeper.pruner.n_startup_trials=2",
    "hydra.sweeper.sampler.n_startup_trials=3",
)
SEARCH = ("train", "-m", "sweep=optuna", *OPTIONS, "model=gru", *SPACE, *STEPS, *FEW)


def told(sweep: Path) -> list[tuple[Any, ...]]:
    """What the study knows of each trial."""
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{sweep}/study.db")
    return [(found.number, found.state.name, found.params, found.values) for found in study.get_trials()]


@pytest.mark.long
def test_two_trials_of_two_processes_each_at_a_time_share_nothing_and_are_pruned_whole(
    seqtrain: Seqtrain, tmp_path: Path
) -> None:
    folder = corpus(tmp_path)
    two = ("trainer.devices=2", "hydra.launcher.n_jobs=2", "hydra.sweep.dir=s")
    answer = seqtrain(*SEARCH, *two, cwd=folder)
    assert answer.rc == 0, answer.err
    states = [state for _, state, *_ in told(folder / "s")]
    assert len(states) == 7
    assert set(states) == {"COMPLETE", "PRUNED"}
    for number, state, params, _ in told(folder / "s"):
        run = Run(folder / "s" / f"{number:03d}")
        assert run.summary.status == {"COMPLETE": "finished", "PRUNED": "pruned"}[state]
        assert (run.config["model"]["dim"], run.config["optimizer"]["lr"]) == tuple(params.values())
        assert run.summary.world_size == 2
        assert ((run.summary.steps or 0) < 60) == (state == "PRUNED")


TWO = (
    *("hydra.sweeper.n_trials=2", "hydra.sweeper.seed=0"),
    *("hydra.sweeper.pruner.n_startup_trials=1", "hydra.sweeper.sampler.n_startup_trials=1"),
)
"""The second of these trials is proposed from what the first came to, and is pruned."""


@pytest.mark.long
def test_joblib_searches_as_the_local_launcher_where_one_trial_runs_at_a_time(
    seqtrain: Seqtrain, tmp_path: Path
) -> None:
    folder = corpus(tmp_path)
    for name in ("local", "joblib"):
        one = (f"hydra/launcher={name}", "hydra.launcher.n_jobs=1", f"hydra.sweep.dir={name}")
        answer = seqtrain(*SEARCH, *TWO, *one, cwd=folder)
        assert answer.rc == 0, answer.err
        assert answer.err.splitlines()[-2].startswith("best: trial ")  # before a line on luck
    assert [state for _, state, *_ in told(folder / "local")] == ["COMPLETE", "PRUNED"]
    assert told(folder / "joblib") == told(folder / "local")
    for number in range(2):
        assert_twins(folder / "joblib" / f"{number:03d}", folder / "local" / f"{number:03d}")
