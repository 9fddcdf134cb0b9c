"""Refused is not unlucky: what is wanting for a while fails a trial, its own words refuse it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from omegaconf import OmegaConf

from seqtrain.cli import sweep as command
from seqtrain.cli import trial as trials
from seqtrain.config import check, preflight, targets
from seqtrain.config.conf_files import ConfFiles
from seqtrain.config.trust import trusting
from seqtrain.data.sources import hub
from seqtrain.data.sources.files import find
from seqtrain.data.sources.opening import readable
from seqtrain.data.tokenizers.foreign import load_tokenizer
from seqtrain.distributed import ranks
from seqtrain.errors import Unavailable, UserError, kind_of, merged
from seqtrain.experiment import endings
from seqtrain.experiment import start as attempts
from seqtrain.experiment.start import Request
from seqtrain.experiment.story import Attempt
from seqtrain.files import untrusted
from seqtrain.runs import checkpoint
from seqtrain.runs.directory import Run
from seqtrain.sweeps import attempts as sweep_attempts
from seqtrain.sweeps.folder import Asked, Sweep, Trial
from seqtrain.sweeps.grid import Grid
from seqtrain.sweeps.sweeper import SweepAttempt
from seqtrain.training.callbacks.signals import Interrupted
from seqtrain.training.loggers import mlflow_logger, wandb_logger
from seqtrain.training.loggers.mlflow_logger import MLflowLogger
from tests.sweeps.test_search import Runner as SearchRunner
from tests.sweeps.test_search import end, run

# -- kinds of faults -----------------------------------------------------------------------------------------------


def test_faults_together_are_unavailable_only_where_each_of_them_is() -> None:
    missing, wrong = Unavailable("a file is not there"), UserError("lr=-1: too small")
    assert type(merged([missing, Unavailable("no network")])) is Unavailable
    assert type(merged([missing, wrong])) is UserError
    assert merged([missing, wrong, missing]).lines == ("a file is not there", "lr=-1: too small")


def test_processes_raise_together_what_one_of_them_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "all_gather", lambda value: [None, value])
    for kind in (UserError, Unavailable):

        def fails(kind: type[UserError] = kind) -> None:
            raise kind("it is so", "and so")

        with pytest.raises(UserError) as raised:
            ranks.run_on_all(fails)
        assert (type(raised.value), raised.value.lines) == (kind, ("it is so", "and so"))


def test_a_group_of_processes_says_of_which_kind_its_fault_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqtrain.training.trainer.on_gpu", lambda config: False)
    config: Any = OmegaConf.create({"trainer": {"devices": 2}})
    for kind in (UserError, Unavailable):

        def fails(*_: object, kind: type[UserError] = kind, **__: object) -> None:
            raise kind("it is so")

        monkeypatch.setattr("seqtrain.experiment.story.Experiment.train", fails)
        lines: list[str] = []
        code = attempts.worker(lines.append, tmp_path, {}, Attempt(), ())
        outcome = SimpleNamespace(code=code, lines=tuple(lines))
        monkeypatch.setattr(attempts.launch, "start", lambda *_, outcome=outcome, **__: outcome)
        with pytest.raises(UserError) as raised:
            attempts._in_group(Run.create(tmp_path / kind.__name__), config, Attempt())
        assert (type(raised.value), raised.value.lines) == (kind, ("it is so",))


def no_space(path: Path) -> Any:
    raise OSError(28, "No space left on device", str(path))


def read(path: Path) -> None:
    with readable(path):
        no_space(path)


def composed(*words: str) -> Any:
    return check.compose(words).config


def preflight_of(config: Any, target: str) -> None:
    """The second stage of a run with this model."""
    config.model._target_ = target
    with trusting([target.partition(".")[0]]):
        raise merged(check.signature_faults(config))


def full_disk(path: Path) -> None:
    with endings.writing(Run(path), "start again"):
        no_space(path)


WANTING: dict[str, Callable[[Path], Any]] = {
    "a data file": lambda path: find("data.path", f"{path}/corpus.txt", "auto", ()),
    "files of a pattern": lambda path: find("data.path", f"{path}/*.txt", "auto", ()),
    "files in a folder": lambda path: find("data.path", f"{path}", "auto", ()),
    "a file that can be read": read,
    "a folder of data": lambda path: hub.Hub(path=f"{path}/wikitext")._folder,
    "a file of JSON": lambda path: untrusted.read_json(path / "config.json"),
    "a file of YAML": lambda path: untrusted.read_yaml(path / "config.yaml"),
    "a tokenizer": lambda path: load_tokenizer(path / "tokenizer.json"),
    "a run": lambda path: Run.open(path / "run"),
    "a checkpoint": lambda path: checkpoint.load(path / "step-1.ckpt"),
    "room for checkpoints": lambda path: checkpoint.probe(path / "checkpoints", space=1 << 62),
    "a folder for checkpoints": lambda path: checkpoint.probe(path / "file" / "checkpoints"),
    "a folder for a run": lambda path: Run.create(path / "file" / "run"),
    "a folder for a sweep": lambda path: Sweep.create(path / "file" / "sweep", Asked(())),
    "room for a run": full_disk,
    "a folder of configs": lambda path: ConfFiles([path / "mine"]),
    "a package of a target": lambda path: preflight_of(composed(), "nowhere_installed.Model"),
    "a GPU": lambda path: preflight.check_machine_and_data(composed("trainer.accelerator=gpu")),
    "what to begin from": lambda path: preflight.check_machine_and_data(composed(f"init_from={path}/run")),
    "a server": lambda path: MLflowLogger(
        experiment="x", tracking_uri="http://127.0.0.1:9", log_model=False, directory=path, config={}
    ),
    "the network": lambda path: wandb_logger.wandb_mode("online"),
}


@pytest.mark.long
@pytest.mark.parametrize("what", WANTING)
def test_what_is_wanting_is_unavailable(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(preflight, "has_gpu", lambda: False)
    monkeypatch.setattr(wandb_logger, "wandb_problem", lambda: "no answer")
    monkeypatch.setattr(mlflow_logger, "answers", lambda uri: False)
    if what == "a server":
        pytest.importorskip("mlflow")
    with pytest.raises(Unavailable):
        WANTING[what](tmp_path)


OWN: dict[str, Callable[[Path], Any]] = {
    "a value": lambda path: composed("seed=nothing"),
    "a choice": lambda path: composed("model=lsmt"),
    "a name in a package": lambda path: targets.resolve("seqtrain.models.recurrent.Nobody"),
    "a GPU on the CPU": lambda path: preflight.check_machine_and_data(
        composed("trainer.accelerator=cpu", "trainer.precision=16-mixed")
    ),
    "two things, one of them wanting": lambda path: preflight.check_machine_and_data(
        composed("trainer.accelerator=cpu", "trainer.devices=all", f"init_from={path}/run")
    ),
    "a file of another kind": lambda path: find("data.path", f"{path}/file.xyz", "auto", ()),
}


def test_what_is_asked_for_itself_is_not(tmp_path: Path) -> None:
    (tmp_path / "file.xyz").touch()
    for what, ask in OWN.items():
        with pytest.raises(UserError) as refused:
            ask(tmp_path)
        assert type(refused.value) is UserError, what


def test_an_error_of_the_system_is_unavailable_and_one_of_a_value_is_not() -> None:
    for error in (FileNotFoundError("x"), MemoryError(), ImportError("x"), ConnectionError("x")):
        assert kind_of(error) is Unavailable, error
    assert kind_of(ValueError("x")) is UserError


# -- trials --------------------------------------------------------------------------------------------------------


def test_a_trial_that_could_not_begin_has_failed_and_one_that_never_can_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.create(tmp_path / "sweep", Asked(()))
    cases: list[tuple[BaseException, str, str, bool]] = [
        (Unavailable("no such file"), "failed", "no such file", True),
        (OSError(28, "No space left on device"), "failed", "OSError: [Errno 28] No space left on device", True),
        (UserError("lr=-1: too small", "dim=0: too small"), "refused", "lr=-1: too small; dim=0: too small", False),
        (RuntimeError("a bug"), "failed", "RuntimeError: a bug", False),
        (Interrupted(signal.SIGTERM), "interrupted", "", False),
    ]
    for number, (error, *outcome) in enumerate(cases):
        trial, during = sweep.plan(number, ["seed=1"], "seed=1"), []

        def fails(*_: object, error: BaseException = error, trial: Trial = trial, during: list[Any] = during) -> Run:
            during.append(trial.outcome)
            raise error

        monkeypatch.setattr(trials, "_run", fails)
        with pytest.raises(type(error)):
            trials._run_recorded(trial, "begin", sweep, None)
        assert (during[0]["status"], during[0]["pid"]) == ("running", os.getpid())
        assert [trial.outcome["status"], trial.outcome["reason"], trial.unavailable] == outcome


def test_a_trial_that_could_not_go_on_stands_as_it_did_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep.create(tmp_path / "sweep", Asked(()))
    trial = sweep.plan(0, ["seed=1"], "seed=1")
    end(trial, "interrupted")

    def fails(*_: object) -> Run:
        raise Unavailable("data.path=corpus.txt: no such file")

    monkeypatch.setattr(trials, "_run", fails)
    with pytest.raises(Unavailable):
        trials._run_recorded(trial, "resume", sweep, None)
    assert (trial.status, trial.reason) == ("interrupted", "data.path=corpus.txt: no such file")
    end(trial, "finished")
    assert (trial.status, trial.reason) == ("finished", "")


class Runner:
    """Stands for a launcher: a trial finishes where `corpus` is there, and fails for want of it where it is not."""

    pulled = "started"
    together = 1

    def __init__(self, corpus: Path) -> None:
        self.corpus = corpus

    def run(self, given: Any) -> Any:
        for trial in given:
            if self.corpus.exists():
                end(trial)
            else:
                trial.conclude("failed", "no such file", unavailable=True)
            yield trial


def test_a_grid_whose_configs_are_away_for_a_while_fails_and_is_run_by_a_retry(tmp_path: Path) -> None:
    configs, corpus = tmp_path / "configs", tmp_path / "corpus"
    corpus.touch()

    def run_attempt(sweep: Sweep, *, retry_failed: bool) -> list[str]:
        made = Grid()
        made.folder = sweep
        made.attempt = SweepAttempt(cast(Any, Runner(corpus)), say=lambda _: None, retry_failed=retry_failed)
        made.sweep(["seed=1,2", "task=next_token"])
        return [trial.status for trial in sweep.trials()]

    sweep = Sweep.create(tmp_path / "sweep", Asked((), config_dirs=(str(configs),)))
    configs.mkdir()
    made = Grid()
    made.folder, made.attempt = sweep, SweepAttempt(cast(Any, Runner(corpus)), say=lambda _: None)
    made.plan(["seed=1,2", "task=next_token"])
    shutil.rmtree(configs)
    assert run_attempt(sweep, retry_failed=False) == ["failed", "failed"]
    configs.mkdir()
    assert run_attempt(sweep, retry_failed=False) == ["failed", "failed"]
    assert run_attempt(sweep, retry_failed=True) == ["finished", "finished"]


@pytest.mark.long
def test_a_search_asks_no_more_where_something_is_wanting_and_a_retry_goes_on_under_the_same_numbers(
    tmp_path: Path,
) -> None:
    pytest.importorskip("optuna")
    whole = run(tmp_path / "whole", runner=Runner(tmp_path), n_trials=3)

    def unlucky(trial: Trial) -> None:
        if trial.number == 1:
            trial.conclude("failed", "no such file", unavailable=True)
        else:
            end(trial)

    made = run(tmp_path / "s", runner=SearchRunner(unlucky), n_trials=3)
    assert [found.state.name for found in made.study.get_trials()] == ["COMPLETE", "RUNNING"]
    made = run(tmp_path / "s", n_trials=3)
    assert [found.state.name for found in made.study.get_trials()] == ["COMPLETE", "RUNNING"], "it was not asked to"
    made = run(tmp_path / "s", n_trials=3, retry_failed=True)
    assert [found.state.name for found in made.study.get_trials()] == ["COMPLETE"] * 3
    assert [found.params for found in made.study.get_trials()] == [found.params for found in whole.study.get_trials()]
    with pytest.raises(UserError, match="a search does not repeat trials"):
        run(tmp_path / "s", n_trials=3, retry_failed=True)


def test_a_sweep_that_could_not_begin_a_single_trial_leaves_nothing_and_says_why_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep_attempts, "_runner", lambda *_: Runner(tmp_path / "corpus"))
    request = Request(["seed=1,2", "task=next_token", "hydra.sweep.dir=sweep"])
    with pytest.raises(UserError) as raised:
        command.start(request, as_json=False)
    assert raised.value.lines == ("no such file",)
    assert list(tmp_path.iterdir()) == []
