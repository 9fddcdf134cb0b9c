"""Laws of the demonstration `half-life`: what it says of the claim follows from its numbers."""

from __future__ import annotations

import math
from typing import Any

from seqtrain.analysis.demos.half_life import _findings


def rows(rnn: list[float], lstm: list[float], accuracy: float = 1.0) -> list[dict[str, Any]]:
    made = []
    for model, half_lives in (("rnn", rnn), ("lstm", lstm)):
        for seed, half_life in enumerate(half_lives, 1):
            row = {"model": model, "seed": seed, "rate": 0.5, "half_life": half_life, "r2": 1.0}
            row |= {"faded": half_life, "last_above_half": 43.0}
            made.append(row | {"weights": "untrained", "accuracy": "-"})
            made.append(row | {"weights": "trained", "accuracy": accuracy})
    return made


def test_the_claim_holds_where_the_least_favourable_seeds_are_three_times_apart() -> None:
    assert _findings(rows([1.0, 2.0], [6.0, 9.0])).holds is True
    assert _findings(rows([1.0, 2.1], [6.0, 9.0])).holds is False
    assert _findings(rows([2.0], [math.nan])).holds is True  # a gradient that does not fade outlives any that does


def test_nothing_is_claimed_where_the_lstm_learnt_nothing_or_the_rnn_does_not_fade() -> None:
    assert _findings(rows([1.0], [9.0], accuracy=0.5)).holds is None
    assert _findings(rows([math.nan], [math.nan])).holds is None
    verdict = _findings(rows([1.0], [math.nan])).verdict
    assert "RNN at 1 tokens, LSTM at no measured distance" in verdict
    assert "LSTM none, its gradient is above half of its start at 43 tokens" in verdict
