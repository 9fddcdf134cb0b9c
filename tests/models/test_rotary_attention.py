"""Attention of an encoder with rotary positions, against scores reckoned pair by pair."""

from __future__ import annotations

import math

import torch

from seqtrain.models.layers.attention import BidirectionalSelfAttention
from seqtrain.models.layers.positions import rotary_table
from tests.models.test_attention import turned
from tests.support.model_cases import assert_near

DIM, HEADS, TIME = 12, 3, 5


def test_each_key_is_turned_by_its_own_position_and_each_query_by_its_own() -> None:
    torch.manual_seed(0)
    made = BidirectionalSelfAttention(dim=DIM, num_heads=HEADS, dropout=0.0, bias=True, name="self").double()
    x, width = torch.randn(1, TIME, DIM, dtype=torch.float64), DIM // HEADS
    queries, keys, values = (part.view(TIME, HEADS, width) for part in made.query_key_value(x[0]).chunk(3, -1))
    rows = []
    for now in range(TIME):
        for head in range(HEADS):
            known = torch.stack([turned(keys[place, head], place) for place in range(TIME)])
            weights = (known @ turned(queries[now, head], now) / math.sqrt(width)).softmax(0)
            rows.append(weights @ values[:, head])
    expected = made.out(torch.cat(rows).view(1, TIME, DIM))
    assert_near(made(x, None, rotary_table(TIME, width, x.device)), expected)
