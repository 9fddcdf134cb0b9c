"""Laws of the feed-forward network over a window that the contract does not state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seqtrain.models.mlp import MLP
from tests.support.model_cases import Case, assert_near, some_tokens

WINDOW, TIME = 3, 7


def make(**options: Any) -> MLP:
    model = Case("mlp", (("window", WINDOW),)).make(**options)
    assert isinstance(model, MLP)
    return model


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_each_hidden_state_is_that_of_the_window_side_by_side(activation: str) -> None:
    model, tokens = make(activation=activation), some_tokens(1, TIME)
    matrix = model.first.weight.permute(0, 2, 1).flatten(1)  # (D, window * D), the oldest token first
    act = getattr(torch, activation)
    vectors = torch.cat([torch.zeros(WINDOW - 1, model.dim).double(), model.embed(tokens)[0]])
    rows: list[Tensor] = []
    for time in range(TIME):
        hidden = act(matrix @ vectors[time : time + WINDOW].flatten() + model.first.bias)
        rows.append(act(model.layers[0](hidden)))
    assert_near(model(tokens)[0][0], torch.stack(rows), 1e-12)
