"""Export of a run as a folder for Hugging Face transformers, if a published family computes the same function."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqtrain.data.tokenizers.encoding import ENDS, Tokenizer
from seqtrain.data.tokenizers.foreign import ForeignTokenizer
from seqtrain.errors import UserError
from seqtrain.files.folders import appearing
from seqtrain.hub.convert import FAMILIES
from seqtrain.hub.family import NAMES
from seqtrain.hub.folder import CONFIG, TOKENIZER, WEIGHTS
from seqtrain.hub.marian import config_of, unfit, written_head
from seqtrain.hub.names import Rule, expanded, with_vocabulary, write
from seqtrain.models.base import name_of
from seqtrain.runs.export import save_weights
from seqtrain.runs.summary import Summary

Card = Callable[[list[str]], str]
"""Returns the README.md of a folder, given lines about its files."""

TOKENS = {
    **{"gpt": ("<|endoftext|>", "<|separator|>", "<|mask|>"), "bert": ("[CLS]", "[SEP]", "[MASK]")},
    "encoder_decoder": ("<pad>", "</s>"),
}
WORDS = {
    "type": "Sequence",
    "decoders": [
        {"type": "WordPiece", "prefix": "\n", "cleanup": False},  # a space before each word except the first
        {"type": "Replace", "pattern": {"Regex": ENDS}, "content": "\n"},
        {"type": "Fuse"},
        {"type": "Replace", "pattern": {"String": "\n "}, "content": "\n"},
    ],
}
"""Decoder of words, equal to ours. No word contains a line end, so none begins with the prefix."""
CLASSES = {
    **{"gpt2": ("GPT2LMHeadModel", "GPT2Model"), "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXModel")},
    **{"llama": ("LlamaForCausalLM", "LlamaModel"), "qwen3": ("Qwen3ForCausalLM", "Qwen3Model")},
    **{"bert": ("BertForMaskedLM", "BertModel"), "marian": ("MarianMTModel", "MarianModel")},
}
"""Classes of transformers, with the head of our task and without it."""
TAGGERS = {
    **{
        "gpt2": ("GPT2ForTokenClassification", "classifier"),
        "gpt_neox": ("GPTNeoXForTokenClassification", "classifier"),
    },
    **{"llama": ("LlamaForTokenClassification", "score"), "qwen3": ("Qwen3ForTokenClassification", "score")},
    "bert": ("BertForTokenClassification", "classifier"),
}
"""Classes of transformers with a label for each token, and the name of their head."""
CLASSIFIER = "classifier.safetensors"
POOLED = {
    "cls": "the first position",
    "last": "the last position",
    "mean": "the mean of all positions",
    "max": "the maximum of all positions, for each channel",
}


def save(model: Any, task: Any, tokenizer: Tokenizer, options: dict[str, Any], card: Card, target: Path) -> str:
    """Write a new folder for transformers; return a line that describes its content.

    Args:
        model: Trained model.
        task: Its task. The head of next_token, masked_lm and tag is a part of the model; that of sentiment is written
            to a separate file; any other is left out.
        tokenizer: Its tokenizer.
        options: Options of the model, as in the config of the run.
        card: Returns README.md, given lines about the content of the folder.
        target: Folder to create.

    Raises:
        UserError: No published family computes the same function, or the folder cannot be written.
    """
    if target.exists() or target.is_symlink():
        raise UserError(f"--output {target} exists already; name a new folder")
    kind, config = _config(model, task, options)
    rows = tokenizer.vocab_size + 2 if kind == "marian" else len(model.embed.weight)  # a Marian has no mask
    config |= _ids(kind, tokenizer, rows)
    has_head = _has_head(task, options)
    config["architectures"] = [CLASSES[kind][0 if has_head else 1]]
    labels = list(getattr(task, "labels", ()))
    limits = ["Texts longer than `max_position_embeddings` were not tried."]
    if labels:
        config |= {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    is_tagger, is_beside = task.name() == "tag", task.name() == "sentiment"
    if is_tagger and task.chain is not None:
        raise _unfit("task.crf=true: transformers has no class with scores of neighbouring labels")
    if is_tagger:
        config["architectures"] = [TAGGERS[kind][0]]
    if is_beside:
        limits.append(f"{_beside(kind, task)}.")
    if config["architectures"] == ["BertModel"]:
        limits.append("Use `last_hidden_state`: the model has no pooler, so `pooler_output` comes from random weights.")
    pool = getattr(task, "text_pool", None)
    if pool is not None:
        limits.append(f"The model was trained for the text vectors that `seqtrain embed --pool {pool}` returns.")
    family = FAMILIES[kind]
    order = tokenizer.theirs.tolist() if isinstance(tokenizer, ForeignTokenizer) else list(range(rows))
    rules = with_vocabulary(expanded(family.rules(config), options["num_layers"]), order)
    weights = write(rules, _whole(dict(model.state_dict()), rules, kind))
    if options.get("share_layers"):  # transformers stores separate weights for each layer
        weights = {name: value.clone() for name, value in weights.items()}
    if "table" in dict(model.named_children()):  # leave out positions beyond the attention window
        name = next(f"{rule.theirs[0]}.weight" for rule in rules if rule.ours == "table")
        weights[name] = weights[name][: config.get("n_positions", len(weights[name]))]
    if has_head or is_tagger:
        weights = {f"{family.prefix}{name}": value for name, value in weights.items()}
    if has_head:
        weights |= _filler(task, family.filler, order, rows)
    if kind == "marian":
        embedding = model.target_embed.weight.detach()
        weights |= written_head(task, embedding, weights["model.shared.weight"], order, config["eos_token_id"])
        config["tie_word_embeddings"] = "lm_head.weight" not in weights
    if is_tagger:
        weights |= {f"{TAGGERS[kind][1]}.{name}": value for name, value in task.head.state_dict().items()}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with appearing(target) as folder:
            save_weights(folder / WEIGHTS, weights)
            if is_beside:
                save_weights(folder / CLASSIFIER, dict(task.head.state_dict()))
            save_json(folder / CONFIG, config)
            for name, content in tokenizer_files(kind, tokenizer, rows).items():
                save_json(folder / name, content)
            if kind != "bert":
                names = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
                ids = {name: config[name] for name in names if name in config}
                if kind == "marian":  # tokens that our model never generates
                    ids["bad_words_ids"] = [[index] for index in order[task.end :] if index != ids["eos_token_id"]]
                save_json(folder / "generation_config.json", ids)
            (folder / "README.md").write_text(card(limits), "utf-8")
    except OSError as error:
        raise UserError(f"--output {target}: {error.strerror}; make room, or name another folder") from None
    head = "" if has_head or is_tagger else f"; the head of task={task.name()} is left out"
    if is_beside:
        head = f"; {_beside(kind, task)}"
    return f"{config['architectures'][0]} for transformers{head}"


def _config(model: Any, task: Any, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the family and its config.json, without the vocabulary; raise UserError if no family fits."""
    name = name_of(model)
    if options.get("embed_dim") is not None:
        raise _unfit(f"model.embed_dim={options['embed_dim']}: published families have embeddings as wide as the model")
    if hasattr(model.embed, "blank"):  # a front end of values
        raise _unfit("the run reads values, but the published families read tokens")
    if name not in TOKENS:
        raise _unfit(f"model={name} belongs to no published family")
    if name == "encoder_decoder":
        if reason := unfit(task, options):
            raise _unfit(reason)
        return "marian", config_of(model, options)
    block: Any = model.blocks[0]
    attention, inner = block.attention, block.feed_forward.out.in_features
    plain_block = not (block.norm1.rms or block.feed_forward.gated or attention.query_norm is not None)
    usual_heads = (
        attention.num_kv_heads == attention.num_heads and attention.head_width * attention.num_heads == model.dim
    )
    activation = NAMES[options.get("activation", "gelu")]
    sizes = {
        "hidden_size": model.dim,
        "num_hidden_layers": len(model.blocks),
        "num_attention_heads": attention.num_heads,
        "intermediate_size": inner,
        "hidden_act": activation,
    }
    eps = block.norm1.eps
    if name == "bert":
        if (
            options["positions"] != "learned"
            or block.norm1.pre
            or not plain_block
            or not usual_heads
            or not options["bias"]
        ):
            raise _unfit("a BERT of transformers has positions=learned norm=post bias=true and plain blocks")
        more = {"max_position_embeddings": model.max_length, "type_vocab_size": model.segments.num_embeddings}
        return "bert", {"model_type": "bert", **sizes, **more, "layer_norm_eps": eps, "pad_token_id": 0}
    if not block.norm1.pre:
        raise _unfit("decoders of transformers have norm=pre")
    length = min(model.attention_window + 1, model.max_length or model.attention_window + 1)
    if options["positions"] == "learned" and plain_block and usual_heads:
        names = {"n_embd": model.dim, "n_layer": len(model.blocks), "n_head": attention.num_heads, "n_inner": inner}
        more = {"n_positions": length, "activation_function": activation, "layer_norm_epsilon": eps}
        return "gpt2", {"model_type": "gpt2", **names, **more, "tie_word_embeddings": True}
    if options["positions"] != "rotary":
        raise _unfit(f"no decoder of transformers has positions={options['positions']} with these blocks")
    rotary = {"rope_type": "default", "rope_theta": model.rotary_base}
    sizes |= {"max_position_embeddings": length, "rope_parameters": rotary, "tie_word_embeddings": True}
    if plain_block and usual_heads:
        rotary["partial_rotary_factor"] = 1.0
        more = {"use_parallel_residual": False, "rotary_pct": 1.0, "attention_bias": True, "layer_norm_eps": eps}
        return "gpt_neox", {"model_type": "gpt_neox", **sizes, **more}
    kind = "llama" if attention.query_norm is None else "qwen3"
    if not (block.norm1.rms and block.feed_forward.gated) or (options["bias"] and kind == "qwen3"):
        raise _unfit("a llama or qwen3 has norm_kind=rms and feed_forward=gated, and a qwen3 no bias")
    more = {"num_key_value_heads": attention.num_kv_heads, "head_dim": attention.head_width, "rms_norm_eps": eps}
    bias = {"attention_bias": options["bias"], "mlp_bias": options["bias"]}
    return kind, {"model_type": kind, **sizes, **more, **bias}


def _unfit(reason: str) -> UserError:
    return UserError(f"--format hub: {reason}; --format seqtrain writes any run")


def _has_head(task: Any, options: dict[str, Any]) -> bool:
    """Return True if the task's head is written; raise UserError if no family has such a head."""
    if task.name() == "translation":
        return True
    if task.name() == "next_token":
        if task.head is not None or task.direction != "forward":
            raise _unfit("a language model needs task.tied=true and task.direction=forward")
        return True
    if task.name() != "masked_lm" or task.transform is None or task.head is not None:
        return False
    return task.transform[2].eps == options.get("norm_eps", 1e-5) and options["activation"] == "gelu"


def _beside(kind: str, task: Any) -> str:
    """Return the line about a head on pooled states, which differs from the classification heads of transformers."""
    reason = "a dense layer and a tanh before it" if kind == "bert" else "no bias"
    return (
        f"{CLASSIFIER} has `weight` and `bias` of the head, which scores {POOLED[task.pool]}; the classification head "
        f"of transformers has {reason}"
    )


def _whole(ours: dict[str, Tensor], rules: list[Rule], kind: str) -> dict[str, Tensor]:
    """Return the weights, with zeros for each bias that the family has and our model lacks."""
    if kind in ("llama", "qwen3"):
        return ours
    for rule in rules[1:]:
        weight = ours.get(f"{rule.ours}.weight")
        if weight is not None and rule.ours not in ("table", "segments", "target_embed"):
            ours.setdefault(f"{rule.ours}.bias", weight.new_zeros(len(weight)))
    return ours


def _filler(task: Any, names: tuple[str, str, str] | None, order: list[int], rows: int) -> dict[str, Tensor]:
    """Return the weights of the masked-LM head under the names of the folder; none for a decoder."""
    if names is None:
        return {}
    dense, norm, bias = names
    scores = task.bias.new_zeros(rows)
    scores[torch.tensor(order[: len(task.bias)])] = task.bias.detach()
    found = write([Rule("0", (dense,)), Rule("2", (norm,))], task.transform.state_dict())
    return {**found, bias: scores, "cls.predictions.decoder.bias": scores.clone()}


def _ids(kind: str, tokenizer: Tokenizer, rows: int) -> dict[str, Any]:
    """Return the vocabulary size and, for a decoder, the ids that begin and end a text."""
    start = in_file(tokenizer, tokenizer.start)
    if kind == "marian":
        end = in_file(tokenizer, tokenizer.separator)
        ids = {"pad_token_id": start, "decoder_start_token_id": start, "eos_token_id": end}
        return {"vocab_size": rows, "decoder_vocab_size": rows, **ids}
    return {"vocab_size": rows} | ({} if kind == "bert" else {"bos_token_id": start, "eos_token_id": start})


def in_file(tokenizer: Tokenizer, token: int) -> int:
    """Return the id of one of our tokens in the tokenizer's file."""
    return int(tokenizer.theirs[token]) if isinstance(tokenizer, ForeignTokenizer) else token


def tokenizer_files(kind: str, tokenizer: Tokenizer, rows: int) -> dict[str, Any]:
    """Return tokenizer.json and tokenizer_config.json, with named tokens for our special ids.

    Args:
        kind: A family, or the name of our model. Decides the names of the special tokens.
        tokenizer: Tokenizer of the run.
        rows: Rows of the model's embedding.
    """
    model = FAMILIES[kind].model if kind in FAMILIES else kind
    names = TOKENS.get(model, TOKENS["gpt"])[: rows - tokenizer.vocab_size]
    if isinstance(tokenizer, ForeignTokenizer):
        file = dict(tokenizer.file)
        tokens = {**file["model"]["vocab"], **{token["content"]: token["id"] for token in file["added_tokens"]}}
        by_id = {index: token for token, index in tokens.items()}
        names = tuple(by_id[index] for index in tokenizer.content["specials"])
        ids = list(tokenizer.content["specials"])
    else:
        ids = list(range(tokenizer.vocab_size, rows))
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        added = [{"id": index, "content": name, **flags} for index, name in zip(ids, names, strict=True)]
        file = {**tokenizer.content, "added_tokens": [*(tokenizer.content.get("added_tokens") or ()), *added]}
        if tokenizer.kind == "word":
            file["decoder"] = WORDS
    about: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if kind == "bert":
        about |= dict(zip(("cls_token", "sep_token", "mask_token"), names, strict=True))
        pieces = [{"SpecialToken": {"id": names[0], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        pieces.append({"SpecialToken": {"id": names[1], "type_id": 0}})
        pair = [*pieces, {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": names[1], "type_id": 1}}]
        specials = {
            name: {"id": name, "ids": [index], "tokens": [name]} for name, index in zip(names[:2], ids[:2], strict=True)
        }
        processor = {"type": "TemplateProcessing", "single": pieces, "pair": pair, "special_tokens": specials}
        file["post_processor"] = processor
    elif kind == "marian":
        about |= {"pad_token": names[0], "eos_token": names[1]}
        texts = [{"Sequence": {"id": side, "type_id": 0}} for side in "AB"]
        end = {"SpecialToken": {"id": names[1], "type_id": 0}}
        special = {names[1]: {"id": names[1], "ids": [ids[1]], "tokens": [names[1]]}}
        pair = {"single": [texts[0], end], "pair": [*texts, end]}
        file["post_processor"] = {"type": "TemplateProcessing", **pair, "special_tokens": special}
    else:
        about |= {"bos_token": names[0], "eos_token": names[0]}
    return {TOKENIZER: file, "tokenizer_config.json": about}


def save_json(path: Path, content: Any) -> None:
    """Write an indented JSON file."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


def card_of(summary: Summary, words: str, library: str, more: Sequence[str]) -> str:
    """Return the README.md of a folder: metrics of the run and its baselines, and how the model was trained.

    Args:
        summary: Summary of the run.
        words: Title, which describes the content of the folder.
        library: The library that reads the folder.
        more: Lines about its files or limits.
    """
    rows = []
    for split, metrics in (summary.best or summary.metrics).items():
        if isinstance(metrics, dict):
            rows += [f"| {split} | {name} | {value:.5g} |" for name, value in metrics.items()]
    for split, baselines in summary.baselines.items():
        for baseline, metrics in baselines.items():
            rows += [
                f"| {split} | {name} of the baseline {baseline} | {value:.5g} |" for name, value in metrics.items()
            ]
    inputs = "Series" if "series" in summary.hashes else "Texts"
    lineage = f"It began with the weights of the hash {', then '.join(summary.lineage or [])}."
    return "\n".join(
        [
            *("---", f"library_name: {library}", "---", "", f"# {words}", ""),
            *("| split | figure | value |", "|---|---|---|", *rows, ""),
            f"Trained for {summary.steps} steps by seqtrain: `{' '.join(summary.command)}`",
            "",
            lineage if summary.lineage else "Its first weights were drawn at random.",
            "",
            *more,
            "",
            f"{inputs} unlike those of its training were not tried.",
            "",
        ]
    )
