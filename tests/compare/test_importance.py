"""Which option mattered: epsilon squared by hand, functional ANOVA of a forest, and what neither can tell."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from seqtrain.cli import compare
from seqtrain.compare import after_search, fanova, importance, records
from seqtrain.compare.entries import read
from seqtrain.compare.importance import Importances, epsilon_squared, importances, levels
from seqtrain.compare.page import report
from seqtrain.compare.verdict import Conclusion, conclusions
from tests.support import fake_runs
from tests.support.pages import content

LR, DIM, SEED = "optimizer.lr", "model.dim", "seed"


def trials(path: Path, settings: Sequence[Mapping[str, Any]], values: Sequence[float], *, kind: str = "optuna") -> Path:
    """Writes a search whose trials had these settings and have come to these values."""
    (path / "trials").mkdir(parents=True)
    (path / "sweep.yaml").write_text(yaml.safe_dump({"kind": kind, "overrides": [], "config_dirs": [], "trust": []}))
    for number, (config, value) in enumerate(zip(settings, values, strict=True)):
        fake_runs.trial(path, number, " ".join(f"{key}={each}" for key, each in config.items()))
        fake_runs.run(path / f"{number:03d}", value, seed=config.get(SEED, 1), config=dict(config))
    return path


def searched(path: Path, number: int, law: Callable[[float, int, random.Random], float], **more: Any) -> Path:
    """A search of so many trials over learning rate, width and seed, whose values follow a law of the first two."""
    draw = random.Random(5)
    settings, values = [], []
    for _ in range(number):
        lr, dim = 10 ** draw.uniform(-4, -1), draw.choice([16, 32, 64])
        settings.append({LR: lr, DIM: dim, SEED: draw.randrange(1000)})
        values.append(law(lr, dim, draw))
    return trials(path, settings, values, **more)


def rate_alone(lr: float, dim: int, draw: random.Random) -> float:
    return 3.0 - 20 * lr + draw.gauss(0, 0.02)


def chance_alone(lr: float, dim: int, draw: random.Random) -> float:
    return 3.0 + draw.gauss(0, 0.3)


def read_one(path: Path) -> Conclusion:
    (found,) = conclusions(read([path]))
    return found


def by_key(found: Importances) -> dict[str, importance.Importance]:
    return {option.key: option for option in found.options}


def told(share: float | None) -> float:
    """A share that could be told."""
    assert share is not None
    return share


# -- epsilon squared ---------------------------------------------------------------------------------------------


def test_epsilon_squared_is_that_of_a_hand_computation() -> None:
    # Means 2 and 5, squares within 2 + 2 = 4 with 4 degrees of freedom; all: mean 3.5, squares 17.5 with 5.
    found = epsilon_squared(list("aaabbb"), [1, 2, 3, 4, 5, 6])
    assert found is not None
    assert found[0] == pytest.approx(1 - (4 / 4) / (17.5 / 5))
    # F = 13.5, of 1 and 4 degrees: that is t = 3.674 of 4, two-sided.
    assert found[1] == pytest.approx(0.0213, abs=1e-4)


def test_epsilon_squared_is_one_where_levels_say_all_and_none_where_their_means_are_equal() -> None:
    assert epsilon_squared(list("aabb"), [1, 1, 2, 2]) == (1.0, 0.0)
    found = epsilon_squared(list("aabb"), [1, 2, 1, 2])
    assert found == (0.0, 1.0)


def test_what_cannot_be_told_is_none_and_no_number() -> None:
    assert epsilon_squared(list("abcd"), [1, 2, 3, 4]) is None, "each level has one value"
    assert epsilon_squared(list("aaaa"), [1, 2, 3, 4]) is None
    assert epsilon_squared(list("aabb"), [1, 1, 1, 1]) is None
    assert epsilon_squared([], []) is None


def test_a_number_of_many_values_is_cut_into_four_bins_of_equally_many_runs_and_no_other_value() -> None:
    assert levels([8, 7, 6, 5, 4, 3, 2, 1]) == [3, 3, 2, 2, 1, 1, 0, 0]
    assert len(set(levels([1, 2, 3, 4, 5, 6, 1]))) == 6
    assert len(set(levels([True, *range(8)]))) == 9, "a switch is no number"
    assert len(set(levels([None, *range(2, 9)]))) == 8


# -- both, of a search -------------------------------------------------------------------------------------------


def test_an_option_without_influence_gets_about_nothing_by_both_and_the_other_one_nearly_all(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    found = importances(read_one(searched(tmp_path / "s", 60, rate_alone)))
    assert found.options[0].key == LR
    options = by_key(found)
    assert (options[LR].epsilon or 0) > 0.6  # bins leave what differs within them
    assert (options[LR].fanova or 0) > 0.8
    assert options[LR].by_chance is False
    for key in (DIM, SEED):
        assert 0 <= told(options[key].epsilon) < 0.1
        assert 0 <= told(options[key].fanova) < 0.1
        assert options[key].by_chance is True
    assert found.predicted is not None
    assert found.predicted > 0.8


def test_the_forest_is_that_of_its_seed(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    found = read_one(searched(tmp_path / "s", 20, rate_alone))
    one = importances(found, seed=3)
    fanova._learn.cache_clear()
    assert importances(found, seed=3) == one
    assert importances(found, seed=4) != one


def test_an_option_that_acts_by_its_order_of_magnitude_is_weighed_as_it_was_tried(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")

    # On its own axis 9 of 10 rates from 0.0001 to 0.1 lie above 0.01, and what happens below would hardly count.
    def law(lr: float, dim: int, draw: random.Random) -> float:
        return (2.0 if lr < 1e-3 else 1.0) + 0.1 * (dim == 16) + draw.gauss(0, 0.01)

    options = by_key(importances(read_one(searched(tmp_path / "s", 60, law))))
    share = options[LR].fanova
    assert share is not None
    assert share > 0.85


def test_of_noise_no_option_is_said_to_matter(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    found = importances(read_one(searched(tmp_path / "s", 40, chance_alone)))
    assert all(option.by_chance for option in found.options)
    assert all(option.fanova is None for option in found.options)
    (note,) = found.notes
    assert re.fullmatch(
        r"functional ANOVA: cannot be told: its forest predicts \d% of the variance of unseen runs, "
        "too little to be read",
        note,
    )
    assert all("not told apart from chance" in line for line in importance.text_lines(found)[1:4])


def test_of_too_few_trials_functional_anova_says_that_it_cannot_tell(tmp_path: Path) -> None:
    found = importances(read_one(searched(tmp_path / "s", 9, rate_alone)))
    assert found.notes == ["functional ANOVA: cannot be told from 9 finished runs; 10 would be a start"]
    assert all(option.fanova is None for option in found.options)
    two = importances(read_one(trials(tmp_path / "t", [{DIM: 8}, {DIM: 16}], [1.0, 2.0])))
    assert importance.text_lines(two)[1] == "  model.dim: cannot be told from 2 values"


def test_options_that_one_model_alone_has_are_left_to_epsilon_squared(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    draw = random.Random(1)
    settings, values = [], []
    for number in range(24):
        dim = draw.choice([8, 64])
        own = {"model.bonus": draw.choice([1, 2])} if number % 2 else {}
        settings.append({DIM: dim, SEED: number, **own})
        values.append(2.0 - dim / 64 + draw.gauss(0, 0.01))
    options = by_key(importances(read_one(trials(tmp_path / "s", settings, values))))
    assert options[DIM].fanova is not None
    assert options["model.bonus"].fanova is None
    assert options["model.bonus"].epsilon is not None


def test_without_the_package_a_note_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read_one(searched(tmp_path / "s", 12, rate_alone))
    fanova._learn.cache_clear()
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    without = importances(found)
    assert without.notes == ["functional ANOVA needs optuna and scikit-learn: pip install 'seqtrain[sweep]'"]
    assert by_key(without)[LR].epsilon is not None


def test_a_grid_has_epsilon_squared_alone_and_says_nothing_of_it_in_the_terminal(tmp_path: Path) -> None:
    found = read_one(searched(tmp_path / "s", 12, rate_alone, kind="grid"))
    alone = importances(found)
    assert not alone.notes
    assert by_key(alone)[LR].epsilon is not None
    assert all(option.fanova is None for option in alone.options)
    assert after_search.lines(found) == []


def test_a_search_is_shown_with_its_options_the_most_important_first_and_what_was_pruned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    path = searched(tmp_path / "s", 30, rate_alone)
    fake_runs.trial(path, 30, "optimizer.lr=0.5", status="pruned", reason="behind")
    fake_runs.run(path / "030", 9.0, config={LR: 0.5}, status="pruned", metrics={}, best={})
    assert compare.main([str(path)]) == 0
    out = capsys.readouterr().out.splitlines()
    place = out.index(
        "which option mattered, of the values that were tried, by 30 finished runs (not by 1 that the search pruned):"
    )
    assert out[place + 1].startswith("  optimizer.lr: ")
    assert "of the variance (epsilon squared, 30 values)" in out[place + 1]
    assert out[place + 1].endswith(" by functional ANOVA")
    assert out[place + 4].startswith("  functional ANOVA: a forest that predicts ")
    assert compare.main([str(path), "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    keys = [option["key"] for option in group["importance"]["options"]]
    assert keys[0] == LR
    assert set(keys) == {LR, DIM, SEED}
    page = content(report.page([read_one(path)], title="t"))
    assert page["groups"][0]["importance"] == group["importance"]


def test_tables_of_a_notebook_do_not_wait_for_a_forest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read_one(searched(tmp_path / "s", 12, rate_alone))
    monkeypatch.delattr(fanova, "learn")
    assert records.group_records([found])[0]["variants"]


def test_of_weights_that_have_read_validation_no_option_is_said_to_matter(tmp_path: Path) -> None:
    leaks = {"validation": {"train": {"share": 0.5, "kind": "documents", "asked": 50}}}
    for seed, dim in enumerate((8, 8, 16, 16)):
        fake_runs.run(tmp_path / f"r{seed}", 1.0 + dim, seed=seed, config={DIM: dim}, leaks=leaks)
    assert importances(read_one(tmp_path)).options == []
