"""A peer: OpenNMT-py's Trainer with its Transformer."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.peers import turns

OPTIONS = (
    "--encoder_type transformer --decoder_type transformer --position_encoding --add_qkvbias --add_ffnbias "
    "--share_vocab --share_embeddings --share_decoder_embeddings --dropout 0 --attention_dropout 0 "
    "--label_smoothing 0.1 --normalization tokens --param_init_glorot --max_grad_norm 1"
)


def options(sizes: dict[str, int]) -> Any:
    """OpenNMT-py's options, as its command line would give them."""
    parser = importlib.import_module("onmt.utils.parse").ArgumentParser()
    importlib.import_module("onmt.opts").train_opts(parser)
    words = ["--data", "{}", "--src_vocab", "none", *OPTIONS.split()]
    words += ["--layers", sizes["num_layers"], "--hidden_size", sizes["dim"], "--word_vec_size", sizes["dim"]]
    words += ["--transformer_ff", 4 * sizes["dim"], "--heads", sizes["num_heads"]]
    chosen = parser.parse_args([str(word) for word in words])
    parser.update_model_opts(chosen)
    chosen.data = {}
    return chosen


def batches(work: turns.Work) -> Iterator[tuple[dict[str, torch.Tensor], int]]:
    """Batches under OpenNMT-py's names, each with the number of its bucket."""
    for batch in work:
        yield {"src": batch["source"][..., None], "srclen": batch["lengths"], "tgt": batch["target"][..., None]}, 0


def train(work: turns.Work) -> None:
    """Trains on all batches; one step each."""
    builder = importlib.import_module("onmt.model_builder")
    tokenizers = importlib.import_module("pyonmttok")
    chosen = options(work.sizes)
    words = [f"w{number}" for number in range(work.sizes["vocab_size"] - len(turns.SPECIALS))]
    vocab = tokenizers.build_vocab_from_tokens(words, special_tokens=list(turns.SPECIALS))
    vocabs = {"src": vocab, "tgt": vocab, "data_task": "seq2seq"}
    model = builder.build_model(chosen, chosen, vocabs, None, -1)
    if work.bf16:
        # Around each pass, not around all: the casts of weights are kept until the outermost region ends.
        for part in (model, model.generator):
            part.forward = torch.autocast("cpu", torch.bfloat16)(part.forward)
    # Its own choice of optimizers has AdamW without the fused step, which is slower.
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    optimizer = importlib.import_module("onmt.utils.optimizers").Optimizer(adamw, 1e-3, max_grad_norm=1.0)
    trainer = importlib.import_module("onmt.trainer").build_trainer(chosen, -1, model, vocabs, optimizer)
    work.ready(model, version=importlib.metadata.version("OpenNMT-py"))
    trainer.train(batches(work), 0)


if __name__ == "__main__":
    train(turns.from_command_line())
