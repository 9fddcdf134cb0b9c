"""Laws of the encoder-decoder that the contract does not state: what it computes and keeps, and what it shares."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from seqtrain.models.encoder_decoder import EncoderDecoder
from seqtrain.models.layers.front_ends import TokenEmbedding
from tests.support.model_cases import some_tokens

VOCABULARY = 7
BATCH, SOURCE, TIME = 4, 5, 8
LENGTHS = torch.tensor([SOURCE, 2, 0, 3])
SHAPE: dict[str, Any] = {
    "encoder": "transformer",
    "decoder": "transformer",
    "dim": 8,
    "num_layers": 2,
    "num_heads": 2,
    "dropout": 0.0,
    "positions": "sinusoidal",
    "max_length": None,
    "norm": "pre",
    "activation": "relu",
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"norm": "post", "activation": "gelu"},
    {"positions": "learned", "max_length": 16},
    {"positions": "none"},
    {"positions": "rotary"},
]


def make(**options: Any) -> EncoderDecoder:
    """A small model in float64 with weights large enough that a wrong read shows; two vocabularies."""
    chosen = SHAPE | options
    torch.manual_seed(0)
    embeds = [TokenEmbedding(vocab_size=size, dim=chosen["dim"], specials=3) for size in (VOCABULARY, VOCABULARY + 2)]
    model = EncoderDecoder(embed=embeds[0], target_embed=embeds[1], **chosen).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def sources(*, seed: int = 1) -> Tensor:
    return some_tokens(BATCH, SOURCE, seed=seed)


def test_gradients_are_finite_where_a_source_is_empty() -> None:
    for options in OPTIONS:
        model = make(**options)
        model(some_tokens(BATCH, TIME), model.begin(sources(), LENGTHS))[0].square().sum().backward()
        assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters()), options


def test_training_computes_no_key_twice_and_attends_to_no_empty_slot() -> None:
    model = make()
    state = model.begin(sources(), LENGTHS)
    assert set(state) == {"source_filled", *(f"source_{part}.{layer}" for part in ("key", "value") for layer in (0, 1))}
    kept = model(some_tokens(BATCH, 3), state)[1]
    assert kept["key.0"].shape == kept["value.1"].shape == (BATCH, 2, 3, 4)
    assert all(kept[name] is value for name, value in state.items())
    grown = model(some_tokens(BATCH, 2), kept, torch.tensor([1, 0, 1, 1]))[1]
    assert grown["key.0"].shape[2] == 4
    assert grown["filled"].tolist() == [4, 3, 4, 4]
    assert not grown["key.0"][1, :, 0].any()  # room that this lane does not need holds nothing


def test_a_step_costs_the_same_matrices_whatever_was_read_before() -> None:
    model, counts = make(), []
    state = model.begin(sources())
    for _ in range(4):
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            state = model(some_tokens(BATCH, 1), state)[1]
        counts.append(counter.get_total_flops())
    assert len({later - earlier for earlier, later in pairwise(counts)}) == 1
    assert counts[1] - counts[0] == BATCH * 4 * len(model.decoder.blocks) * model.dim
