"""Families of published models: the mapping of config.json and weights to our options and weights.

Encoders become our `bert`: BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019) and DistilBERT (Sanh et al. 2019).
Decoders become our `gpt`: GPT-2 (Radford et al. 2019), GPT-NeoX (Black et al. 2022) and Llama (Touvron et al. 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqtrain.errors import UserError
from seqtrain.hub.names import TRANSPOSED, Rule, by_heads, stacked, without_first

Config = Mapping[str, Any]

ACTIVATIONS = {
    **{"gelu": "gelu", "relu": "relu", "silu": "silu", "swish": "silu"},
    **{"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"},
}
NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
"""Names of our activations in config.json."""


class Unfit(Exception):
    """A model of a known family has an option that our model lacks; the message says which."""


@dataclass(frozen=True)
class Family:
    """A `model_type` of config.json.

    Args:
        model: Our model.
        prefix: Prefix of the names of weights, unless the folder contains the bare model.
        options: Returns the options of our model.
        rules: Returns the rules for the weights; the first one is for the token embedding.
        head: Name of the map that scores all tokens, if the family has one.
        filler: Names of the dense map, the norm and the bias of an encoder's masked-LM head, if the folder has them.
        ignored: Suffixes of names that are not weights of the model, such as masks.
    """

    model: str
    prefix: str
    options: Callable[[Config], dict[str, Any]]
    rules: Callable[[Config], list[Rule]]
    head: str | None = None
    filler: tuple[str, str, str] | None = None
    ignored: Sequence[str] = ()


def require(config: Config, **expected: Any) -> None:
    """Raise Unfit if an entry is given with another value than expected."""
    for name, value in expected.items():
        if name in config and config[name] != value:
            raise Unfit(f"{name}={config[name]}: seqtrain supports only {value}")


def activation(config: Config, name: str) -> str:
    """Return our name of an activation; raise Unfit if it is not supported."""
    given = config.get(name)
    if given not in ACTIVATIONS:
        raise Unfit(f"{name}={given}: expected one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[given]


def number(config: Config, name: str, kind: type = int) -> Any:
    """Return a number above 0 from config.json; raise UserError if the entry is not one."""
    value: Any = config.get(name)
    if not isinstance(value, (int, kind)) or isinstance(value, bool) or value <= 0:
        raise UserError(f"{name}={value!r}: expected a number above 0")
    return value


def _bert_options(config: Config) -> dict[str, Any]:
    require(config, position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    return {
        "dim": number(config, "hidden_size"),
        "num_layers": number(config, "num_hidden_layers"),
        "num_heads": number(config, "num_attention_heads"),
        "dim_feedforward": number(config, "intermediate_size"),
        "max_length": number(config, "max_position_embeddings"),
        "num_segments": number(config, "type_vocab_size"),
        "activation": activation(config, "hidden_act"),
        "norm_eps": float(number(config, "layer_norm_eps", float)),
        "dropout": float(config.get("hidden_dropout_prob", 0.1)),
        **{"positions": "learned", "norm": "post", "bias": True},
    }


def _bert_rules(config: Config) -> list[Rule]:
    dim = config["hidden_size"]
    attention = tuple(f"encoder.layer.{{}}.attention.self.{part}" for part in ("query", "key", "value"))
    return [
        Rule("embed", ("embeddings.word_embeddings",)),
        Rule("table", ("embeddings.position_embeddings",)),
        Rule("segments", ("embeddings.token_type_embeddings",)),
        Rule("first_norm", ("embeddings.LayerNorm",)),
        Rule("blocks.{}.attention.query_key_value", attention, stacked(dim, dim, dim)),
        Rule("blocks.{}.attention.out", ("encoder.layer.{}.attention.output.dense",)),
        Rule("blocks.{}.norm1", ("encoder.layer.{}.attention.output.LayerNorm",)),
        Rule("blocks.{}.feed_forward.wide", ("encoder.layer.{}.intermediate.dense",)),
        Rule("blocks.{}.feed_forward.out", ("encoder.layer.{}.output.dense",)),
        Rule("blocks.{}.norm2", ("encoder.layer.{}.output.LayerNorm",)),
    ]


_PREDICTIONS = ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias")
BERT = Family("bert", "bert.", _bert_options, _bert_rules, filler=_PREDICTIONS)

PADDING = 2  # unused first positions: RoBERTa counts positions from the id of its padding token plus 1


def _roberta_options(config: Config) -> dict[str, Any]:
    require(config, pad_token_id=PADDING - 1)
    return {**_bert_options(config), "max_length": number(config, "max_position_embeddings") - PADDING}


def _roberta_rules(config: Config) -> list[Rule]:
    rules = _bert_rules(config)
    rules[1] = Rule("table", ("embeddings.position_embeddings",), without_first(PADDING))
    return rules


_LM_HEAD = ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")
ROBERTA = Family("bert", "roberta.", _roberta_options, _roberta_rules, filler=_LM_HEAD)


def _distilbert_options(config: Config) -> dict[str, Any]:
    require(config, sinusoidal_pos_embds=False)
    return {
        "dim": number(config, "dim"),
        "num_layers": number(config, "n_layers"),
        "num_heads": number(config, "n_heads"),
        "dim_feedforward": number(config, "hidden_dim"),
        "max_length": number(config, "max_position_embeddings"),
        "activation": activation(config, "activation"),
        "dropout": float(config.get("dropout", 0.1)),
        **{"num_segments": 1, "norm_eps": 1e-12, "positions": "learned", "norm": "post", "bias": True},
    }


def _distilbert_rules(config: Config) -> list[Rule]:
    dim, block = config["dim"], "transformer.layer.{}"
    attention = tuple(f"{block}.attention.{part}_lin" for part in "qkv")
    return [
        Rule("embed", ("embeddings.word_embeddings",)),
        Rule("table", ("embeddings.position_embeddings",)),
        Rule("segments", ()),  # DistilBERT has none: a row of zeros
        Rule("first_norm", ("embeddings.LayerNorm",)),
        Rule("blocks.{}.attention.query_key_value", attention, stacked(dim, dim, dim)),
        Rule("blocks.{}.attention.out", (f"{block}.attention.out_lin",)),
        Rule("blocks.{}.norm1", (f"{block}.sa_layer_norm",)),
        Rule("blocks.{}.feed_forward.wide", (f"{block}.ffn.lin1",)),
        Rule("blocks.{}.feed_forward.out", (f"{block}.ffn.lin2",)),
        Rule("blocks.{}.norm2", (f"{block}.output_layer_norm",)),
    ]


_VOCABULARY = ("vocab_transform", "vocab_layer_norm", "vocab_projector.bias")
DISTILBERT = Family("bert", "distilbert.", _distilbert_options, _distilbert_rules, filler=_VOCABULARY)


def _gpt2_options(config: Config) -> dict[str, Any]:
    require(config, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    positions = number(config, "n_positions")
    return {
        "dim": number(config, "n_embd"),
        "num_layers": number(config, "n_layer"),
        "num_heads": number(config, "n_head"),
        "dim_feedforward": config.get("n_inner"),
        "activation": activation(config, "activation_function"),
        "norm_eps": float(number(config, "layer_norm_epsilon", float)),
        "dropout": float(config.get("resid_pdrop", 0.1)),
        "max_length": positions,
        "attention_window": positions - 1,
        **{"positions": "learned", "norm": "pre", "bias": True},
    }


def _gpt2_rules(config: Config) -> list[Rule]:
    # GPT-2 stores its linear maps transposed.
    return [
        Rule("embed", ("wte",)),
        Rule("table", ("wpe",)),
        Rule("blocks.{}.norm1", ("h.{}.ln_1",)),
        Rule("blocks.{}.attention.query_key_value", ("h.{}.attn.c_attn",), TRANSPOSED),
        Rule("blocks.{}.attention.out", ("h.{}.attn.c_proj",), TRANSPOSED),
        Rule("blocks.{}.norm2", ("h.{}.ln_2",)),
        Rule("blocks.{}.feed_forward.wide", ("h.{}.mlp.c_fc",), TRANSPOSED),
        Rule("blocks.{}.feed_forward.out", ("h.{}.mlp.c_proj",), TRANSPOSED),
        Rule("norm", ("ln_f",)),
    ]


GPT2 = Family(
    "gpt", "transformer.", _gpt2_options, _gpt2_rules, head="lm_head", ignored=("attn.bias", "attn.masked_bias")
)


def _rotary(config: Config) -> dict[str, Any]:
    """Return the options of rotary positions. Newer versions of config.json keep them in one mapping."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = given.get("rope_type", given.get("type", "default"))
    if kind != "default":
        raise Unfit(f"rope_type={kind}: seqtrain does not scale rotary positions")
    if given.get("partial_rotary_factor", config.get("rotary_pct", 1)) != 1:
        raise Unfit("rotary positions on a part of each head: seqtrain supports only whole heads")
    base = given.get("rope_theta", config.get("rope_theta", config.get("rotary_emb_base", 10_000)))
    return {"positions": "rotary", "rotary_base": float(base)}


def _neox_options(config: Config) -> dict[str, Any]:
    require(config, use_parallel_residual=False)
    return {
        "dim": number(config, "hidden_size"),
        "num_layers": number(config, "num_hidden_layers"),
        "num_heads": number(config, "num_attention_heads"),
        "dim_feedforward": number(config, "intermediate_size"),
        "activation": activation(config, "hidden_act"),
        "norm_eps": float(number(config, "layer_norm_eps", float)),
        "dropout": float(config.get("hidden_dropout", 0.0)),
        "attention_window": number(config, "max_position_embeddings") - 1,
        **{"norm": "pre", "bias": True},
        **_rotary(config),
    }


def _neox_rules(config: Config) -> list[Rule]:
    block = "layers.{}"
    heads = by_heads(config["num_attention_heads"])
    return [
        Rule("embed", ("embed_in",)),
        Rule("blocks.{}.norm1", (f"{block}.input_layernorm",)),
        Rule("blocks.{}.attention.query_key_value", (f"{block}.attention.query_key_value",), heads),
        Rule("blocks.{}.attention.out", (f"{block}.attention.dense",)),
        Rule("blocks.{}.norm2", (f"{block}.post_attention_layernorm",)),
        Rule("blocks.{}.feed_forward.wide", (f"{block}.mlp.dense_h_to_4h",)),
        Rule("blocks.{}.feed_forward.out", (f"{block}.mlp.dense_4h_to_h",)),
        Rule("norm", ("final_layer_norm",)),
    ]


NEOX_IGNORED = ("rotary_emb.inv_freq", "attention.bias", "attention.masked_bias")
GPT_NEOX = Family("gpt", "gpt_neox.", _neox_options, _neox_rules, head="embed_out", ignored=NEOX_IGNORED)


def _sizes(config: Config) -> tuple[int, int, int]:
    """Return the number of heads, the number of key-value heads, and the width of a head."""
    num_heads = number(config, "num_attention_heads")
    num_kv_heads = config.get("num_key_value_heads") or num_heads
    return num_heads, num_kv_heads, config.get("head_dim") or number(config, "hidden_size") // num_heads


def _llama_options(config: Config) -> dict[str, Any]:
    num_heads, num_kv_heads, head_dim = _sizes(config)
    if config.get("no_rope_layers") and not all(config["no_rope_layers"]):
        raise Unfit("no_rope_layers: seqtrain supports only rotary positions in all layers")
    if len(set(config.get("layer_types") or ())) > 1:
        raise Unfit("layer_types: seqtrain supports only one attention window for all layers")
    window = number(config, "max_position_embeddings")
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        window = min(window, number(config, "sliding_window"))
    # Qwen 2 has a bias only in queries, keys and values. Our model has one in every map; missing ones are zero.
    has_bias = config["model_type"] == "qwen2" or config.get("attention_bias", False) or config.get("mlp_bias", False)
    return {
        "dim": number(config, "hidden_size"),
        "num_layers": number(config, "num_hidden_layers"),
        **{"num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim},
        "dim_feedforward": number(config, "intermediate_size"),
        "activation": activation(config, "hidden_act"),
        "norm_eps": float(number(config, "rms_norm_eps", float)),
        "attention_window": window - 1,
        "qk_norm": config["model_type"] == "qwen3",
        "bias": has_bias,
        **{"norm": "pre", "norm_kind": "rms", "feed_forward": "gated", "dropout": 0.0},
        **_rotary(config),
    }


def _llama_rules(config: Config) -> list[Rule]:
    num_heads, num_kv_heads, head_dim = _sizes(config)
    block, inner = "layers.{}", config["intermediate_size"]
    attention = tuple(f"{block}.self_attn.{part}_proj" for part in "qkv")
    rows = (num_heads * head_dim, num_kv_heads * head_dim, num_kv_heads * head_dim)
    return [
        Rule("embed", ("embed_tokens",)),
        Rule("blocks.{}.norm1", (f"{block}.input_layernorm",)),
        Rule("blocks.{}.attention.query_key_value", attention, stacked(*rows)),
        Rule("blocks.{}.attention.query_norm", (f"{block}.self_attn.q_norm",)),
        Rule("blocks.{}.attention.key_norm", (f"{block}.self_attn.k_norm",)),
        Rule("blocks.{}.attention.out", (f"{block}.self_attn.o_proj",)),
        Rule("blocks.{}.norm2", (f"{block}.post_attention_layernorm",)),
        Rule("blocks.{}.feed_forward.wide", (f"{block}.mlp.gate_proj", f"{block}.mlp.up_proj"), stacked(inner, inner)),
        Rule("blocks.{}.feed_forward.out", (f"{block}.mlp.down_proj",)),
        Rule("norm", ("norm",)),
    ]


LLAMA = Family("gpt", "model.", _llama_options, _llama_rules, head="lm_head", ignored=("rotary_emb.inv_freq",))
