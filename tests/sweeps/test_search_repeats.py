"""A search of a small space: what is proposed once more is told to the study, not trained again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seqtrain.runs.directory import Run
from seqtrain.sweeps.folder import Asked, Trial
from seqtrain.sweeps.search import Search, other_model
from seqtrain.training.callbacks.pruning import Pruning
from tests.conftest import Seqtrain
from tests.support.tiny import OPTIONS, corpus
from tests.sweeps.test_search import Killed, Runner, asked, end, run, told

optuna = pytest.importorskip("optuna")

FOUR = ("model.dim=choice(16,32)", "optimizer.lr=choice(0.1,0.2)")
ONE = ("model.dim=choice(16)", "optimizer.lr=0.1")
NINE: dict[str, Any] = {
    "n_trials": 9,
    "sampler": {"_target_": "optuna.samplers.TPESampler", "n_startup_trials": 3},
}


def ending(trial: Trial) -> None:
    """Ends a trial as its parameters alone decide."""
    loss = sum(map(ord, trial.label)) % 89 / 100
    for step in (20, 40):
        Pruning(run=Run(trial.path))._judged(step, {"loss": loss + 1 / step}, last=True)
    end(trial, loss=loss)


def known(made: Search) -> list[Any]:
    """What the study knows of each trial, but for why it was not trained."""
    found = made.study.get_trials()
    return [(one.number, one.state.name, one.params, one.values, one.intermediate_values) for one in found]


def repeats(made: Search) -> dict[int, int]:
    """Of the trials that the index says were refused, the one that each of them repeats."""
    rows = json.loads((made.folder.path / "index.json").read_text())["trials"]
    reasons = {int(row["trial"]): row["reason"] for row in rows if row["status"] == "refused"}
    return {number: int(reason.removeprefix("the same as trial ")[:3]) for number, reason in reasons.items()}


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What the search `whole` said."""
    return []


@pytest.fixture(scope="module")
def whole(said: list[str], tmp_path_factory: pytest.TempPathFactory) -> Search:
    """A search of nine trials among four points, that nobody interrupted."""
    return run(tmp_path_factory.mktemp("whole") / "s", *FOUR, runner=Runner(ending, said=said), **NINE)


@pytest.mark.long
def test_what_is_proposed_once_more_is_not_trained_again_and_the_study_is_told_what_it_came_to(
    whole: Search, said: list[str]
) -> None:
    trials, params = whole.folder.trials(), asked(whole)
    firsts = [number for number in range(9) if params[number] not in params[:number]]
    assert len(firsts) <= 4
    assert [trial.number for trial in trials if trial.path.exists()] == firsts
    assert repeats(whole) == {number: params.index(params[number]) for number in range(9) if number not in firsts}
    for number, first in repeats(whole).items():
        assert known(whole)[number][1:] == known(whole)[first][1:]
        line = f"trial {number:03d} of 9 {trials[number].label}: refused: the same as trial {first:03d}, whose numbers"
        assert len([words for words in said if words.startswith(line)]) == 1


@pytest.mark.long
def test_it_proposes_what_a_search_does_that_trains_every_repeat(
    whole: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Search, "_same", lambda *_: None)
    patient = run(tmp_path / "s", *FOUR, runner=Runner(ending), **NINE)
    assert all(trial.path.exists() for trial in patient.folder.trials())
    assert known(patient) == known(whole)


@pytest.mark.long
@pytest.mark.parametrize("step", ["_same", "told", "_copy"])
def test_a_search_that_is_killed_at_a_repeat_goes_on_as_if_it_had_not_been(
    step: str, whole: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = max(repeats(whole))
    real = getattr(Search, step)

    def kill(self: Search, *about: Any) -> Any:
        if len(self.study.get_trials(deepcopy=False)) == last + 1:
            raise Killed
        return real(self, *about)

    with monkeypatch.context() as patched:
        patched.setattr(Search, step, kill)
        killed = run(tmp_path / "s", *FOUR, runner=Runner(ending), **NINE)
    assert known(killed) != known(whole)
    again = run(tmp_path / "s", *FOUR, runner=Runner(ending), **NINE)
    assert known(again) == known(whole)
    assert repeats(again) == repeats(whole)


@pytest.mark.long
def test_a_trial_that_runs_failed_or_was_pruned_has_no_numbers_to_be_told_again(tmp_path: Path) -> None:
    endings = ["failed", "pruned", "finished", "finished"]
    runner = Runner(lambda trial: end(trial, endings[trial.number], loss=trial.number), at_once=2)
    made = run(tmp_path / "s", *ONE, runner=runner, n_trials=6)
    assert [trial.state.name for trial in made.study.get_trials()] == ["FAIL", "PRUNED", *["COMPLETE"] * 4]
    assert repeats(made) == {4: 2, 5: 2}


@pytest.mark.long
def test_what_has_begun_is_trained_to_its_end_though_an_earlier_one_has_come_to_the_same(tmp_path: Path) -> None:
    def interrupted(trial: Trial) -> None:
        end(trial, "interrupted")
        if trial.number == 1:
            raise Killed

    run(tmp_path / "s", *ONE, runner=Runner(interrupted, at_once=2), n_trials=3)
    again = run(tmp_path / "s", *ONE, n_trials=3)
    assert [trial.status for trial in again.folder.trials()] == ["finished", "finished", "refused"]


@pytest.mark.long
def test_a_front_names_no_trial_that_has_no_run(tmp_path: Path) -> None:
    runner = Runner(lambda trial: end(trial, flops=1.0))
    made = run(tmp_path / "s", *ONE, runner=runner, n_trials=3, objectives=["best/loss", "flops"])
    assert len(made.study.best_trials) == 3
    assert [line[:23] for line in made.best()] == ["Pareto front: trial 000"]


@pytest.mark.long
@pytest.mark.parametrize(("together", "lines"), [(2, 0), (3, 1)])
def test_a_search_that_runs_all_trials_at_a_time_is_told_that_it_learns_nothing(
    together: int, lines: int, tmp_path: Path
) -> None:
    runner = Runner(at_once=together)
    run(tmp_path / "s", runner=runner, n_trials=3)
    run(tmp_path / "s", runner=Runner(at_once=6, said=runner.said), n_trials=6)  # these know of the first three
    assert len([line for line in runner.said if "trials run at a time" in line]) == lines


@pytest.mark.parametrize(
    ("params", "word", "line"),
    [
        ({"model": "lstm"}, "model=gpt", "model=gpt: searched in the space of sweep=lstm; sweep=gpt is its own"),
        ({"model": "lstm"}, "model=mine", "model=mine: searched in the space of sweep=lstm"),
        ({"model": "lstm"}, "model='lstm'", None),
        ({"model": "lstm"}, "model.dim=16", None),
        ({}, "model=gpt", None),
    ],
)
def test_a_model_in_the_space_of_another_one_is_told(params: dict[str, str], word: str, line: str | None) -> None:
    found = list(other_model(params, ["seed=1", word], Asked(("sweep=lstm", "seed=1", word), "optuna")))
    assert found == ([] if line is None else [line])


@pytest.mark.long
def test_a_search_that_has_repeats_ends_well_and_is_compared_without_them(seqtrain: Seqtrain, tmp_path: Path) -> None:
    fixed = ("optimizer.lr=0.01", "~model.dropout", "model.num_layers=1", "trainer.max_steps=5")
    space = ("train", "-m", "sweep=gru", *OPTIONS, "model=rnn", *fixed, "model.dim=choice(8,16)")
    answer = seqtrain(*space, "hydra.sweeper.n_trials=4", "hydra.sweep.dir=s", cwd=corpus(tmp_path))
    assert answer.rc == 0, answer.err
    assert "model=rnn: searched in the space of sweep=gru; sweep=rnn is its own\n" in answer.err
    assert answer.out.count("refused: the same as trial 00") == 2
    assert "4 trials: 2 finished, 2 refused\n" in answer.out
    runs = sorted(path.parent.name for path in tmp_path.glob("s/00?/config.yaml"))
    assert len(runs) == 2
    assert [state for _, state, *_ in told(tmp_path / "s")] == ["COMPLETE"] * 4
    compared = seqtrain("compare", "s", "--json", cwd=tmp_path)
    assert sorted(row["name"][-3:] for row in json.loads(compared.out)["runs"]) == runs
    again = seqtrain("resume", "s", cwd=tmp_path)
    assert again.err.splitlines()[-1] == "error: sweep s: nothing to do, every trial has ended"
