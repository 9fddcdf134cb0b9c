"""What a thinned curve is smoothed by: the weights of the points that are kept."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seqtrain.compare.page import curves

ROOT = Path(__file__).parents[2]


def weighed(values: Sequence[float]) -> float:
    """The mean of the points that are kept, by their weights."""
    kept = curves.thinned(values)
    digits = curves.weights(values, kept)
    assert len(digits) == len(kept)
    shares = [int(digit, 36) for digit in digits]
    return sum(share * values[place] for share, place in zip(shares, kept, strict=True)) / sum(shares)


@pytest.mark.parametrize("count", [201, 250, 1000, 12_345])
@pytest.mark.parametrize("spikes", [0, 17, 100])
def test_the_weighted_mean_of_what_is_kept_is_the_mean_of_all(count: int, spikes: int) -> None:
    chance = random.Random(count + spikes)
    values = [chance.gauss(1, 0.1) for _ in range(count)]
    if spikes:
        values[::spikes] = [50.0] * len(values[::spikes])
    mean = sum(values) / count
    kept = [values[place] for place in curves.thinned(values)]
    allowed = max(0.02, 0.02 * (max(values) - min(values)))  # a digit of 36 of each stretch
    assert weighed(values) == pytest.approx(mean, abs=allowed)
    if spikes == 100 and count > 1000:
        assert abs(sum(kept) / len(kept) - mean) > 10  # what the same points give without weights


def test_a_flat_curve_and_one_that_is_not_thinned_have_the_mean_that_they_have() -> None:
    assert weighed([3.0] * 1000) == 3.0
    records: list[dict[str, Any]] = []
    for step in range(1, 1001):
        record = {"step": step, "train/loss": 1 / step, "system/memory_mb": 800.0 + step, "other": 1.0}
        records.append(record | ({"validation/loss": 2.0} if step % 100 == 0 else {}))
    found = curves.curves(records)
    assert found.weights.keys() == {"train/loss", "system/memory_mb"}
    packed = {name: found.packed(name) for name in ("train/loss", "validation/loss", "other")}
    assert [None if each is None else len(each) for each in packed.values()] == [3, 2, None]


def test_plotly_is_pinned_to_one_version_whose_buttons_were_looked_at() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert [each for each in named if each.startswith("plotly")] == ["plotly==7.1.0"]
