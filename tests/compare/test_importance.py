"""Which option mattered in a search: shares of a forest, beside random numbers, and what it cannot tell."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from seqtrain.cli import compare
from seqtrain.compare import importance
from seqtrain.compare.entries import read
from seqtrain.compare.importance import NEEDED, importances
from seqtrain.compare.page import report
from seqtrain.compare.verdict import Conclusion, conclusions
from tests.support import fake_runs
from tests.support.pages import content

LR, DIM, SEED = "optimizer.lr", "model.dim", "seed"


def trials(
    path: Path, settings: Sequence[Mapping[str, Any]], values: Sequence[float], *, kind: str = "optuna", **more: Any
) -> Path:
    """Writes a search whose trials had these settings and have come to these values."""
    (path / "trials").mkdir(parents=True)
    (path / "sweep.yaml").write_text(yaml.safe_dump({"kind": kind, "overrides": [], "config_dirs": [], "trust": []}))
    for number, (config, value) in enumerate(zip(settings, values, strict=True)):
        fake_runs.trial(path, number, " ".join(f"{key}={each}" for key, each in config.items()))
        fake_runs.run(path / f"{number:03d}", value, seed=config.get(SEED, 1), config=dict(config), **more)
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


def test_an_option_without_influence_is_not_told_apart_from_chance_and_the_other_one_has_nearly_all(
    tmp_path: Path,
) -> None:
    pytest.importorskip("sklearn")
    found = importances(read_one(searched(tmp_path / "s", 40, rate_alone)))
    first, *others = found.options
    assert (first.key, first.values, first.by_chance) == (LR, 40, False)
    assert first.share > 0.8
    assert {option.key for option in others} == {DIM, SEED}
    assert all(option.share < 0.1 for option in others)


def test_of_trials_that_are_noise_no_option_is_told_apart_from_chance(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    found = importances(read_one(searched(tmp_path / "s", 20, chance_alone)))
    assert len(found.options) == 3
    assert all(option.by_chance for option in found.options)


def test_of_few_trials_a_note_says_how_many_are_needed(tmp_path: Path) -> None:
    found = importances(read_one(searched(tmp_path / "s", 9, rate_alone)))
    assert importance.text_lines(found) == ["importance of options: at least 10 finished runs are needed, not 9"]


def test_of_a_grid_and_of_weights_that_have_read_validation_nothing_is_said(tmp_path: Path) -> None:
    assert importances(read_one(searched(tmp_path / "grid", 12, rate_alone, kind="grid"))).options == []
    leaks = {"validation": {"train": {"share": 0.5, "kind": "documents", "asked": 50}}}
    settings = [{DIM: 8 * (number % 2 + 1), SEED: number} for number in range(12)]
    leaked = trials(tmp_path / "leaked", settings, [1.0 + number for number in range(12)], leaks=leaks)
    assert importances(read_one(leaked)).options == []


def test_a_search_is_shown_with_its_options_the_most_important_first_and_what_was_pruned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    path = searched(tmp_path / "s", 12, rate_alone)
    fake_runs.trial(path, 12, "optimizer.lr=0.5", status="pruned", reason="behind")
    fake_runs.run(path / "012", 9.0, config={LR: 0.5}, status="pruned", metrics={}, best={})
    assert compare.main([str(path)]) == 0
    out = capsys.readouterr().out.splitlines()
    place = out.index(
        "which option mattered, of the values that were tried, by 12 finished runs (not by 1 that the search pruned):"
    )
    assert out[place + 1].startswith("  optimizer.lr: ")
    assert "of the variance (functional ANOVA, 12 values)" in out[place + 1]
    assert compare.main([str(path), "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert group["importance"]["options"][0]["key"] == LR
    page = content(report.page([read_one(path)], title="t"))
    assert page["groups"][0]["importance"] == group["importance"]


def test_without_the_package_a_note_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read_one(searched(tmp_path / "s", 13, rate_alone))  # of no other test: shares are kept
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert importances(found).note == NEEDED
