"""The Transformer of two sides against that of torch.nn, with random weights carried over.

Other Transformers are held against `transformers` in tests/hub.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqtrain.models.encoder_decoder import EncoderDecoder
from seqtrain.models.layers.front_ends import TokenEmbedding
from tests.support.model_cases import assert_near

VOCABULARY, DIM, LAYERS, HEADS = 11, 16, 3, 4
EPS = nn.LayerNorm(1).eps
SIZES: dict[str, Any] = {"dim": DIM, "num_layers": LAYERS, "num_heads": HEADS, "dropout": 0.0}
Weights = dict[str, Tensor]


def front_end(specials: int = 3) -> TokenEmbedding:
    return TokenEmbedding(vocab_size=VOCABULARY, dim=DIM, specials=specials)


def scattered(reference: nn.Module) -> nn.Module:
    """The reference with every weight far from its first value: norms and biases take part too."""
    torch.manual_seed(0)
    for name, weight in reference.named_parameters():
        nn.init.normal_(weight, mean=float(weight.dim() == 1 and name.endswith("weight")), std=0.3)
    return reference.double().eval()


def tokens_of(*shape: int, below: int = VOCABULARY, seed: int = 0) -> Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(seed))


def renamed(weights: Weights, names: dict[str, str], prefix: str, to: str) -> Weights:
    """Weight and bias of each part that `names` maps from their name to ours."""
    kinds = ("weight", "bias")
    return {
        f"{to}.{ours}.{kind}": weights[f"{prefix}.{theirs}.{kind}"] for theirs, ours in names.items() for kind in kinds
    }


def encoder_decoder_weights(theirs: Weights, norm: str) -> Weights:
    shared = {"self_attn.out_proj": "attention.out", "linear1": "feed_forward.wide", "linear2": "feed_forward.out"}
    sides = {
        "encoder": {**shared, "norm1": "norm1", "norm2": "norm2"},
        "decoder": {
            **shared, "multihead_attn.out_proj": "cross.out", "norm1": "norm1", "norm2": "norm2", "norm3": "norm3",
        },
    }  # fmt: skip
    ours: Weights = {}
    for side, names in sides.items():
        for layer in range(LAYERS):
            prefix, to = f"{side}.layers.{layer}", f"{side}.blocks.{layer}"
            ours |= renamed(theirs, names, prefix, to)
            for kind in ("weight", "bias"):
                ours[f"{to}.attention.query_key_value.{kind}"] = theirs[f"{prefix}.self_attn.in_proj_{kind}"]
                if side == "decoder":
                    query, key_value = theirs[f"{prefix}.multihead_attn.in_proj_{kind}"].split([DIM, 2 * DIM])
                    ours |= {f"{to}.cross.query.{kind}": query, f"{to}.cross.key_value.{kind}": key_value}
    if norm == "pre":
        for side, to in (("encoder", "source_norm"), ("decoder", "norm")):
            ours |= {f"{to}.{kind}": theirs[f"{side}.norm.{kind}"] for kind in ("weight", "bias")}
    return ours


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize(("norm", "activation"), [("pre", "relu"), ("post", "gelu")])
def test_the_encoder_decoder_equals_that_of_torch(norm: Any, activation: Any) -> None:
    reference: Any = nn.Transformer(
        DIM,
        HEADS,
        LAYERS,
        LAYERS,
        4 * DIM,
        0.0,
        activation,
        layer_norm_eps=EPS,
        batch_first=True,
        norm_first=norm == "pre",
    )
    if norm == "post":  # each block ends with a norm: torch's extra one at the end is none of the paper's
        reference.encoder.norm = reference.decoder.norm = None
    scattered(reference)
    embed, target_embed = front_end(), front_end()
    model = EncoderDecoder(
        embed=embed,
        target_embed=target_embed,
        encoder="transformer",
        decoder="transformer",
        positions="none",
        max_length=None,
        norm=norm,
        activation=activation,
        **SIZES,
    ).double()
    weights = encoder_decoder_weights(reference.state_dict(), norm)
    missing = model.load_state_dict(weights, strict=False)
    assert missing == (["embed.weight", "target_embed.weight"], [])

    source, target, lengths = tokens_of(4, 9), tokens_of(4, 7, seed=1), torch.tensor([9, 5, 1, 8])
    given = [part(tokens) * DIM**0.5 for part, tokens in ((embed, source), (target_embed, target))]
    padding = torch.arange(9) >= lengths.unsqueeze(1)
    later = torch.ones(7, 7, dtype=torch.bool).triu(1)
    expected = reference(
        *given, tgt_mask=later, src_key_padding_mask=padding, memory_key_padding_mask=padding, tgt_is_causal=True
    )
    state = model.eval().begin(source, lengths)
    assert_near(model(target, state)[0], expected)
    steps = []
    for token in target.split(1, 1):
        hidden, state = model(token, state)
        steps.append(hidden)
    assert_near(torch.cat(steps, 1), expected)
