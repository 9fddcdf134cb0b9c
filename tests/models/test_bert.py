"""Laws of the encoder that the contract does not state: segments, padding of empty lanes, first weights."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from seqtrain.models.bert import BERT
from seqtrain.models.layers.front_ends import TokenEmbedding
from tests.models.test_attention import sinusoid
from tests.support.model_cases import assert_near, outputs, some_tokens

VOCABULARY = 7
SEPARATOR = VOCABULARY + 1
SHAPE: dict[str, Any] = {
    "dim": 8,
    "num_layers": 2,
    "num_heads": 2,
    "dropout": 0.0,
    "positions": "learned",
    "max_length": 32,
    "num_segments": 2,
    "norm": "pre",
    "bias": True,
    "activation": "gelu",
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"norm": "post"},
    {"bias": False, "activation": "relu"},
    *({"positions": positions, "max_length": None} for positions in ("rotary", "sinusoidal", "none")),
]


def make(**options: Any) -> BERT:
    """A small model in float64 with weights large enough that a wrong read shows."""
    embed = TokenEmbedding(vocab_size=VOCABULARY, dim=SHAPE["dim"], specials=3)
    torch.manual_seed(0)
    model = BERT(embed=embed, **SHAPE | options).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def test_a_lane_of_padding_only_gives_finite_numbers_and_gradients() -> None:
    for options in OPTIONS:
        model = make(**options)
        hidden, state = model(some_tokens(2, 5), None, torch.tensor([0, 5]))
        hidden[1].sum().backward()
        assert (state, model.initial(4)) == ({}, {})
        assert hidden.isfinite().all(), options
        assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters()), options


def test_a_tokens_segment_is_the_number_of_separators_before_it() -> None:
    model = make(num_segments=3)
    seen = outputs(model.segments)
    model(torch.tensor([[7, 1, SEPARATOR, 2, 3, SEPARATOR, 4, SEPARATOR, 5], [SEPARATOR] * 9]))
    expected = torch.tensor([[0, 0, 0, 1, 1, 1, 2, 2, 2], [0, 1, 2, 2, 2, 2, 2, 2, 2]])
    assert torch.equal(seen[0], model.segments.weight[expected])


def test_the_first_block_reads_a_token_its_position_and_its_segment() -> None:
    tokens = some_tokens(2, 6)
    for positions in ("learned", "sinusoidal", "rotary", "none"):
        model = make(positions=positions, max_length=32 if positions == "learned" else None)
        seen = outputs(model.first_norm)
        model(tokens)
        expected = model.embed(tokens) + model.segments(model._segment(tokens))
        if positions == "sinusoidal":
            expected = expected + model.embed(tokens) * (math.sqrt(8) - 1)
            expected = expected + torch.stack([sinusoid(place, 8) for place in range(6)])
        if model.table is not None:
            expected = expected + model.table.weight[:6]
        assert_near(seen[0], expected)


def test_first_matrices_keep_the_scale_of_what_they_read_and_embeddings_are_the_papers() -> None:
    embed = TokenEmbedding(vocab_size=500, dim=64, specials=3)
    torch.manual_seed(0)
    chosen: dict[str, Any] = {**SHAPE, "dim": 64}
    model = BERT(embed=embed, **chosen)
    tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding | TokenEmbedding)}
    for name, weight in model.named_parameters():
        if weight.dim() == 2 and weight.numel() > 1000:
            last = name.endswith("out.weight")  # of a block: two of them in each layer add up
            scale = weight.shape[1] ** -0.5 / (math.sqrt(2 * len(model.blocks)) if last else 1)
            expected = 0.02 if id(weight) in tables else scale
            assert abs(weight.std().item() / expected - 1) < 0.05, name
