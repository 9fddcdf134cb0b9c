"""Laws of the recorder: it changes no output, and costs nothing while nobody listens.

What its maps show is in tests/inference/test_attention_maps.py.
"""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F

from seqtrain.models.base import SequenceModel
from seqtrain.models.layers.recorder import active, record, recording
from tests.models.test_bert import make as bert
from tests.models.test_encoder_decoder import SOURCE
from tests.models.test_encoder_decoder import make as encoder_decoder
from tests.support.model_cases import Case, assert_near, some_tokens

BATCH, TIME = 3, 6
LENGTHS = torch.tensor([6, 2, 0])


def read(model: SequenceModel) -> Tensor:
    """Hidden states of some tokens, after a source where the model wants one, in two chunks where it can."""
    tokens = some_tokens(BATCH, TIME)
    if "source" in "".join(model.initial(1)):
        state = model.begin(some_tokens(BATCH, SOURCE, seed=1), LENGTHS.clamp(max=SOURCE))
        first, state = model(tokens[:, :2], state)
        return torch.cat([first, model(tokens[:, 2:], state)[0]], 1)
    if model.initial(1):
        first, state = model(tokens[:, :2])
        return torch.cat([first, model(tokens[:, 2:], state)[0]], 1)
    return model(tokens, None, LENGTHS)[0]


MODELS = {
    "gpt": lambda: Case("gpt", (("attention_window", 4),)).make(),
    "bert": lambda: bert(),
    "bert-rotary": lambda: bert(positions="rotary", max_length=None),
    "encoder_decoder": lambda: encoder_decoder(),
}
CALLS = {"gpt": 4, "bert": 2, "bert-rotary": 2, "encoder_decoder": 10}
"""How often each attends in `read`: in each layer, and in each of two chunks."""


def test_dropout_under_a_recorder_drops_the_same_and_leaves_the_map_whole() -> None:
    model = bert(dropout=0.5).train()
    torch.manual_seed(0)
    plain = read(model)
    with recording() as maps:
        torch.manual_seed(0)
        recorded = read(model)
    assert_near(recorded, plain)
    assert_near(maps[0].weights.sum(-1), torch.ones(BATCH, 2, TIME, dtype=torch.float64))
    assert not maps[0].weights.requires_grad


def test_without_a_recorder_only_the_fused_attention_runs() -> None:
    for name, make in MODELS.items():
        model: Any = make()
        with mock.patch.object(F, "scaled_dot_product_attention", wraps=F.scaled_dot_product_attention) as fused:
            read(model)
            assert fused.call_count == CALLS[name], name
            with recording():
                read(model)
            assert fused.call_count == CALLS[name], name


def test_a_recorder_hears_nothing_before_or_after_and_the_inner_one_wins() -> None:
    weights = torch.ones(1, 1, 1, 1)
    record("before", weights)
    with recording() as outer:
        record("one", weights)
        with contextlib.suppress(RuntimeError), recording() as inner:
            record("two", weights)
            raise RuntimeError
        assert active()
        record("three", weights)
    assert not active()
    record("after", weights)
    assert [found.name for found in outer] == ["one", "three"]
    assert [found.name for found in inner] == ["two"]
