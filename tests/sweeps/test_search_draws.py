"""What a search draws for one trial: each parameter has random numbers of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sweeps.test_search import asked, run

pytest.importorskip("optuna")

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
