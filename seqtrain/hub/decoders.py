"""GPT-2 (Radford et al. 2019), GPT-NeoX (Black et al. 2022) and the Llama family (Touvron et al. 2023) as our `gpt`."""

from __future__ import annotations

from typing import Any

from seqtrain.hub.family import Config, Family, Unfit, activation, number, require
from seqtrain.hub.names import TRANSPOSED, Rule, by_heads, stacked


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
