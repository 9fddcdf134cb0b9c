"""Our Transformers against those of `transformers` and torch.nn, with random weights carried over."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqtrain.models.bert import BERT
from seqtrain.models.encoder_decoder import EncoderDecoder
from seqtrain.models.gpt import GPT
from seqtrain.models.layers.front_ends import TokenEmbedding
from tests.support.model_cases import assert_near

VOCABULARY, DIM, LAYERS, HEADS, TABLE = 11, 16, 3, 4, 32
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


def bert_weights(theirs: Weights) -> Weights:
    ours = {
        "embed.weight": theirs["embeddings.word_embeddings.weight"],
        "table.weight": theirs["embeddings.position_embeddings.weight"],
        "segments.weight": theirs["embeddings.token_type_embeddings.weight"],
        "first_norm.weight": theirs["embeddings.LayerNorm.weight"],
        "first_norm.bias": theirs["embeddings.LayerNorm.bias"],
    }
    names = {
        "attention.output.dense": "attention.out",
        "attention.output.LayerNorm": "norm1",
        "intermediate.dense": "feed_forward.wide",
        "output.dense": "feed_forward.out",
        "output.LayerNorm": "norm2",
    }
    for layer in range(LAYERS):
        prefix, to = f"encoder.layer.{layer}", f"blocks.{layer}"
        ours |= renamed(theirs, names, prefix, to)
        for kind in ("weight", "bias"):
            parts = [theirs[f"{prefix}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            ours[f"{to}.attention.query_key_value.{kind}"] = torch.cat(parts)
    return ours


def test_bert_equals_that_of_transformers_at_every_real_token() -> None:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=VOCABULARY + 3,
        hidden_size=DIM,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * DIM,
        hidden_act="gelu",
        max_position_embeddings=TABLE,
        layer_norm_eps=EPS,
    )
    reference = scattered(BertModel(config, add_pooling_layer=False))
    options = {"positions": "learned", "max_length": TABLE, "num_segments": 2, "norm": "post", "activation": "gelu"}
    model = BERT(embed=front_end(), bias=True, **SIZES, **options).double().eval()  # type: ignore[arg-type]
    model.load_state_dict(bert_weights(reference.state_dict()))

    tokens, lengths = tokens_of(4, 12), torch.tensor([12, 7, 5, 1])
    tokens[0, 4] = tokens[0, 11] = tokens[1, 6] = tokens[2, 0] = model.embed.separator  # type: ignore[assignment]
    segments = torch.tensor([[0] * 5 + [1] * 7, [0] * 7 + [1] * 5, [0] + [1] * 11, [0] * 12])
    real = torch.arange(12) < lengths.unsqueeze(1)
    expected = reference(tokens, attention_mask=real.long(), token_type_ids=segments).last_hidden_state
    assert_near(model(tokens, None, lengths)[0][real], expected[real])


def gpt_weights(theirs: Weights) -> Weights:
    names = {
        "ln_1": "norm1",
        "attn.c_attn": "attention.query_key_value",
        "attn.c_proj": "attention.out",
        "ln_2": "norm2",
        "mlp.c_fc": "feed_forward.wide",
        "mlp.c_proj": "feed_forward.out",
    }
    ours = {"embed.weight": theirs["wte.weight"], "table.weight": theirs["wpe.weight"]}
    ours |= {"norm.weight": theirs["ln_f.weight"], "norm.bias": theirs["ln_f.bias"]}
    for layer in range(LAYERS):
        ours |= renamed(theirs, names, f"h.{layer}", f"blocks.{layer}")
    # Its linear maps are stored the other way round.
    matrices = {name for name in ours if name.startswith("blocks") and ours[name].dim() == 2}
    return {name: weight.T if name in matrices else weight for name, weight in ours.items()}


def test_gpt_equals_gpt2_of_transformers_read_whole_or_step_by_step() -> None:
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(
        vocab_size=VOCABULARY + 1,
        n_positions=TABLE,
        n_embd=DIM,
        n_layer=LAYERS,
        n_head=HEADS,
        activation_function="gelu",
        layer_norm_epsilon=EPS,
    )
    reference = scattered(GPT2Model(config))
    model = GPT(
        embed=front_end(1),
        attention_window=TABLE,
        positions="learned",
        max_length=TABLE,
        norm="pre",
        bias=True,
        **SIZES,
    ).double()
    model.load_state_dict(gpt_weights(reference.state_dict()))

    tokens = tokens_of(3, 12)
    expected = reference(tokens).last_hidden_state
    assert_near(model.eval()(tokens)[0], expected)
    steps, state = [], None
    for token in tokens.split(1, 1):
        hidden, state = model(token, state)
        steps.append(hidden)
    assert_near(torch.cat(steps, 1), expected)


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
