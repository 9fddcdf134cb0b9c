"""Marian (Junczys-Dowmunt et al. 2018) as our `encoder_decoder` of two Transformers with post-norm, and back.

Marian's sinusoids are all sines followed by all cosines, ours alternate. So the channels of everything that reads or
writes the residual stream are permuted. Marian's head scores with the embedding, in which start (padding) and end are
two rows. They are one row of ours, so here the head has separate weights, with `final_logits_bias`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqtrain.hub.family import NAMES, Config, Family, Unfit, activation, number, require
from seqtrain.hub.names import How, Rule, columns, in_order, stacked, then

POSITIONS = 1024  # size of the table in transformers; our model has no limit
BIAS = "final_logits_bias"
SIDES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")  # copies of `shared.weight`
_CROSS = "encoder_attn"


def _options(config: Config) -> dict[str, Any]:
    require(
        {"scale_embedding": False, **config},  # the default in transformers
        **{"scale_embedding": True, "share_encoder_decoder_embeddings": True, "normalize_before": False},
        **{"add_final_layer_norm": False, "normalize_embedding": False, "static_position_embeddings": True},
    )
    options = {}
    for ours, theirs in (("num_layers", "layers"), ("num_heads", "attention_heads"), ("dim_feedforward", "ffn_dim")):
        options[ours] = number(config, f"encoder_{theirs}")
        if config.get(f"decoder_{theirs}") != options[ours]:
            raise Unfit(f"different encoder_{theirs} and decoder_{theirs}: seqtrain supports only equal ones")
    dim = number(config, "d_model")
    if dim % 2:
        raise Unfit(f"d_model={dim}: seqtrain supports only an even width")
    return {
        **options,
        "dim": dim,
        "activation": activation(config, "activation_function"),
        "dropout": float(config.get("dropout", 0.1)),
        **{"encoder": "transformer", "decoder": "transformer", "positions": "sinusoidal", "norm": "post"},
    }


def channels(dim: int) -> How:
    """Return the rearrangement of the columns of a map that reads the residual stream."""
    return columns(_order(dim))


def _order(dim: int) -> list[int]:
    """Return Marian's channel for each of ours: a sine, then the cosine of the same angle."""
    return torch.arange(dim).view(2, -1).T.flatten().tolist()


def _rules(config: Config) -> list[Rule]:
    dim = config["d_model"]
    reads, writes = channels(dim), in_order(_order(dim))
    rules = [Rule("embed", ("shared",), reads), Rule("target_embed", ("shared",), reads)]
    for side, norms in (("encoder", ("self_attn", "final")), ("decoder", ("self_attn", _CROSS, "final"))):
        ours, theirs = f"{side}.blocks.{{}}", f"{side}.layers.{{}}"
        query, key, value = (f"{theirs}.self_attn.{part}_proj" for part in "qkv")
        rules += [
            Rule(f"{ours}.attention.query_key_value", (query, key, value), then(stacked(dim, dim, dim), reads)),
            Rule(f"{ours}.attention.out", (f"{theirs}.self_attn.out_proj",), writes),
            Rule(f"{ours}.feed_forward.wide", (f"{theirs}.fc1",), reads),
            Rule(f"{ours}.feed_forward.out", (f"{theirs}.fc2",), writes),
        ]
        for index, norm in enumerate(norms, 1):
            rules.append(Rule(f"{ours}.norm{index}", (f"{theirs}.{norm}_layer_norm",), writes))
    query, key, value = (f"decoder.layers.{{}}.{_CROSS}.{part}_proj" for part in "qkv")
    return [
        *rules,
        Rule("decoder.blocks.{}.cross.query", (query,), reads),
        Rule("decoder.blocks.{}.cross.key_value", (key, value), then(stacked(dim, dim), reads)),
        Rule("decoder.blocks.{}.cross.out", (f"decoder.layers.{{}}.{_CROSS}.out_proj",), writes),
    ]


MARIAN = Family(
    *("encoder_decoder", "model.", _options, _rules),
    head="lm_head",
    ignored=("embed_positions.weight", *SIDES, BIAS),
)


def head_of(config: Config, theirs: dict[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """Return weight and bias of our head.

    Args:
        config: config.json.
        theirs: Weights of the folder.
        rows: Ids of the scored tokens, the end last.

    Raises:
        KeyError: The name of a missing weight.
        ValueError: Encoder and decoder have different embeddings.
    """
    for side in SIDES:
        if not torch.equal(theirs.get(side, theirs["shared.weight"]), theirs["shared.weight"]):
            raise ValueError(f"{side} differs from shared.weight: seqtrain supports only a shared embedding")
    name = "shared.weight" if config.get("tie_word_embeddings", True) else "lm_head.weight"
    bias = theirs.get(BIAS, theirs[name].new_zeros(1, len(theirs[name])))
    return {"head.weight": channels(config["d_model"]).ours([theirs[name][rows]]), "head.bias": bias[0, rows]}


def unfit(task: Any, options: dict[str, Any]) -> str | None:
    """Return why no Marian computes the same function as a run's encoder_decoder, or None."""
    if task.name() != "translation" or not task.shared_vocab:
        return "an encoder_decoder needs task=translation and task.shared_vocab=true"
    wanted = {"encoder": "transformer", "decoder": "transformer", "positions": "sinusoidal", "norm": "post"}
    wanted |= {"norm_kind": "layer", "norm_eps": 1e-5, "feed_forward": "plain", "qk_norm": False}
    for name, value in wanted.items():
        if options.get(name, value) != value:
            return f"model.{name}={options[name]}: a Marian of transformers has {value}"
    if options.get("num_kv_heads") not in (None, options["num_heads"]):
        return f"model.num_kv_heads={options['num_kv_heads']}: a Marian of transformers has as many as num_heads"
    if options.get("head_dim") not in (None, options["dim"] // options["num_heads"]):
        return f"model.head_dim={options['head_dim']}: a Marian of transformers has dim / num_heads"
    return None


def config_of(model: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return config.json of an encoder_decoder, without its vocabulary."""
    block = model.encoder.blocks[0]
    sizes = {"layers": options["num_layers"], "attention_heads": block.attention.num_heads}
    sizes["ffn_dim"] = block.feed_forward.out.in_features
    return {
        **{"model_type": "marian", "is_encoder_decoder": True, "d_model": model.dim},
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()},
        **{"activation_function": NAMES[options["activation"]], "dropout": options["dropout"]},
        **{"scale_embedding": True, "share_encoder_decoder_embeddings": True, "max_position_embeddings": POSITIONS},
        **{"bos_token_id": None, "forced_eos_token_id": None},
    }


def written_head(task: Any, embedding: Tensor, shared: Tensor, order: list[int], end: int) -> dict[str, Tensor]:
    """Return the weights of the head under the names of the folder; only the bias if the head is the embedding.

    Args:
        task: The translation task.
        embedding: Our embedding of the target's tokens, which a tied head scores with.
        shared: The embedding in the folder's order.
        order: The folder's row for each of our tokens.
        end: The folder's row for the end token.
    """
    size = task.end + 1
    scores = embedding[:size] if task.head is None else task.head.weight.detach()
    rows = torch.tensor([*order[: task.end], end])
    weight = shared.clone()  # rows that our head does not score keep the embedding
    weight[rows] = channels(shared.shape[1]).theirs(scores)[0]
    bias = shared.new_zeros(1, len(shared))
    if task.head is not None:
        bias[0, rows] = task.head.bias.detach()
    if torch.equal(weight, shared):
        return {BIAS: bias}
    # With a separate head, transformers ties no weights, so each side needs its copy.
    sides = {f"model.{side}": shared.clone() for side in SIDES}
    return {BIAS: bias, "lm_head.weight": weight, **sides}
