"""After a search: the commands that repeat its best trials are ones that a shell and a sweep take, with new seeds."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from seqtrain.config import check
from seqtrain.runs.directory import Run
from seqtrain.sweeps import repeat
from seqtrain.sweeps.folder import Asked, Sweep, Trial
from seqtrain.sweeps.grid import combinations
from seqtrain.sweeps.search import Search
from seqtrain.sweeps.settings import Settings, Words
from tests.sweeps.test_search import Runner, end, run

pytest.importorskip("optuna")


def ending(trial: Trial) -> None:
    """The larger the number of the trial, the better; each has been trained with seed 2."""
    end(trial, loss=1 / (1 + trial.number))
    Run(trial.path).write_config({"seed": 2})


def searched(folder: Path, **options: Any) -> Search:
    return run(folder, runner=Runner(ending), **{"n_trials": 5, **options})


def commands(made: Search, **options: Any) -> list[list[str]]:
    """The words of each command that is named, as a shell reads them."""
    lines = repeat.lines(made.folder, made.leaders(repeat.BEST), **options)
    return [shlex.split(line) for line in lines[1:]]


@pytest.mark.long
def test_the_best_three_are_repeated_with_three_seeds_that_the_search_has_not_used(tmp_path: Path) -> None:
    made = searched(tmp_path / "s")
    *trains, compare = commands(made)
    target = tmp_path / "s-repeated"
    assert compare == ["seqtrain", "compare", str(target)]
    assert [words[-1] for words in trains] == [f"hydra.sweep.dir={target}/{number}" for number in ("004", "003", "002")]
    for words, number in zip(trains, (4, 3, 2), strict=True):
        assert words[:3] == ["seqtrain", "train", "-m"]
        settings = Settings.read(Words.sort(words[3:]))
        assert settings.directory == target / f"{number:03d}"
        planned = [overrides for overrides, _ in combinations(Words.sort(words[3:]).trial, settings.files)]
        found = [check.compose(list(overrides)).config for overrides in planned]
        assert [config.seed for config in found] == [1, 3, 4]  # 2 was the search's
        searched_for = check.compose(list(made.folder.trial(number).overrides)).config
        for config in found:
            assert (config.model, config.optimizer) == (searched_for.model, searched_for.optimizer)


def test_the_reason_is_said_before_the_commands(tmp_path: Path) -> None:
    made = searched(tmp_path / "s")
    first = repeat.lines(made.folder, made.leaders(repeat.BEST))[0]
    assert first.startswith("the best of 5 trials was picked by its own number, which is partly luck: ")
    assert first.endswith("This repeats the best 3 with 3 seeds each that the search has not used:")


def test_of_several_objectives_only_the_front_is_repeated(tmp_path: Path) -> None:
    def of_both(trial: Trial) -> None:
        # Each trial but the last two is worse than another in both.
        end(trial, loss=[5.0, 4.0, 3.0, 1.0, 2.0][trial.number], seconds=[9.0, 8.0, 7.0, 6.0, 1.0][trial.number])

    made = run(tmp_path / "s", runner=Runner(of_both), n_trials=5, objectives=["best/loss", "seconds"])
    assert made.leaders(3) == [3, 4]


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_is_repeated_where_nothing_was_picked(tmp_path: Path, count: int) -> None:
    def few(trial: Trial) -> None:
        end(trial, "finished" if trial.number < count else "failed")

    made = run(tmp_path / "s", runner=Runner(few), n_trials=3)
    assert commands(made) == []


@pytest.mark.long
@pytest.mark.parametrize("name", ["a b", "it's", "a,b", "a=b", "$HOME", "[x]"])
def test_a_folder_of_any_name_reaches_the_sweep_as_it_is(tmp_path: Path, name: str) -> None:
    made = searched(tmp_path / "s")
    sweep = Sweep.create(tmp_path / name, Asked(("hydra.launcher.n_jobs=2", "sweep=lstm"), "optuna", ("my dir",)))
    words = shlex.split(repeat._command(sweep, made.folder.trial(0), [1, 2], sweep.path.with_name(f"{name}-repeated")))
    assert words[3:6] == ["--config-dir", "my dir", "hydra.launcher.n_jobs=2"]
    assert Settings.read(Words.sort(words[5:])).directory == tmp_path / f"{name}-repeated" / "000"


def test_what_is_typed_elsewhere_begins_with_the_folder_of_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = searched(tmp_path / "s")
    monkeypatch.chdir(tmp_path)
    assert commands(made, typed_in=tmp_path / "elsewhere")[0] == ["cd", str(tmp_path)]
    assert commands(made, typed_in=tmp_path)[0][:2] == ["seqtrain", "train"]


def test_a_second_time_nothing_that_is_there_is_named_again(tmp_path: Path) -> None:
    made = searched(tmp_path / "s")
    (tmp_path / "s-repeated").mkdir()
    assert commands(made)[-1] == ["seqtrain", "compare", str(tmp_path / "s-repeated-2")]
