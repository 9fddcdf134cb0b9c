"""Folders of the Hugging Face hub with small random models, each family with its own defaults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}
ENCODER = {**SIZES, "vocab_size": 60, "max_position_embeddings": 32}
# Rows of the embedding beyond the tokens, as Qwen has them.
DECODER = {**SIZES, "vocab_size": 260, "max_position_embeddings": 32, "bos_token_id": 256, "eos_token_id": 256}
GROUPED = {**DECODER, "num_key_value_heads": 2}
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "BertForMaskedLM", ENCODER),
    "roberta": ("RobertaConfig", "RobertaModel", {**ENCODER, "max_position_embeddings": 34, "type_vocab_size": 1}),
    "distilbert": (
        "DistilBertConfig",
        "DistilBertModel",
        {"vocab_size": 60, "dim": 16, "n_layers": 3, "n_heads": 4, "hidden_dim": 40, "max_position_embeddings": 32},
    ),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {"n_embd": 16, "n_layer": 3, "n_head": 4, "n_positions": 32, "vocab_size": 257}
        | {"bos_token_id": 256, "eos_token_id": 256},
    ),
    "gpt_neox": (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {**DECODER, "use_parallel_residual": False, "rotary_pct": 1.0},
    ),
    "llama": ("LlamaConfig", "LlamaForCausalLM", GROUPED),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {**GROUPED, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**GROUPED, "head_dim": 8}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**GROUPED, "sliding_window": 5}),
    "marian": (
        "MarianConfig",
        "MarianMTModel",
        {"d_model": 16, "encoder_layers": 3, "decoder_layers": 3, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40}
        | {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 64}
        # As in every published one; MarianConfig itself says False.
        | {"scale_embedding": True, "vocab_size": 258, "decoder_vocab_size": 258}
        | {"pad_token_id": 257, "decoder_start_token_id": 257, "eos_token_id": 0, "forced_eos_token_id": None},
    ),
}
"""Class of the configuration, class of the model, and what of the configuration is not its default."""
ENCODERS = ("bert", "roberta", "distilbert")


def reference(family: str) -> Any:
    """The model of `transformers`, every weight far from its first value: norms and biases take part too."""
    import transformers

    config, model, options = FAMILIES[family]
    torch.manual_seed(0)
    made = getattr(transformers, model)(getattr(transformers, config)(**options))
    for name, weight in made.named_parameters():
        if "embed_positions" in name:  # sinusoids, which no folder holds
            continue
        nn.init.normal_(weight, mean=float(weight.dim() == 1 and name.endswith("weight")), std=0.3)
    return made.eval()


def save(family: str, folder: Path, made: Any = None, **saving: Any) -> Path:
    """Write a folder of the hub: config.json, safetensors, tokenizer.json and the names of its special tokens."""
    (made or reference(family)).save_pretrained(folder, **saving)
    write_tokenizer(family, folder)
    return folder


def write_tokenizer(family: str, folder: Path) -> None:
    """Write a tokenizer of words or, for a decoder, of bytes; truncation and padding as MiniLM's file has them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    names: dict[str, str] = {}
    if family in ENCODERS:
        specials = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]
        words = [
            *specials,
            *["the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "far", "good", "bad", "film", "##s", "##ly"],
        ]
        words += [f"word{index}" for index in range(60 - len(words))]
        made = Tokenizer(models.WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
        made.decoder = decoders.WordPiece()  # type: ignore[assignment]
        made.enable_truncation(4)
        made.enable_padding(length=4)
        names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    elif family == "marian":
        symbols = ["</s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "<pad>"]
        made = Tokenizer(models.BPE({symbol: index for index, symbol in enumerate(symbols)}, []))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
        made.decoder = decoders.ByteLevel()  # type: ignore[assignment]
        made.add_special_tokens(["</s>", "<pad>"])
    else:
        vocab = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
        made = Tokenizer(models.BPE({**vocab, "<|endoftext|>": 256}, []))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
        made.decoder = decoders.ByteLevel()  # type: ignore[assignment]
        made.add_special_tokens(["<|endoftext|>"])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
