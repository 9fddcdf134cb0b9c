"""BERT (Devlin et al. 2019), RoBERTa (Liu et al. 2019) and DistilBERT (Sanh et al. 2019) as our `bert`."""

from __future__ import annotations

from typing import Any

from seqtrain.hub.family import Config, Family, activation, number, require
from seqtrain.hub.names import Rule, stacked, without_first


def _options(config: Config) -> dict[str, Any]:
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


def _rules(config: Config) -> list[Rule]:
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
BERT = Family("bert", "bert.", _options, _rules, filler=_PREDICTIONS)

PADDING = 2  # unused first positions: RoBERTa counts positions from the id of its padding token plus 1


def _roberta_options(config: Config) -> dict[str, Any]:
    require(config, pad_token_id=PADDING - 1)
    return {**_options(config), "max_length": number(config, "max_position_embeddings") - PADDING}


def _roberta_rules(config: Config) -> list[Rule]:
    rules = _rules(config)
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
