"""A peer: LitGPT's GPT in the usual loop, as it is or (`litgpt_compiled`) behind torch.compile."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from typing import Any

import torch

from benchmarks.peers import turns
from benchmarks.peers.bare_gpt import fit


def train(work: turns.Work, *, compiled: bool) -> None:
    """Trains on all batches; one step each."""
    litgpt: Any = importlib.import_module("litgpt.model")
    sizes = work.sizes
    shape = litgpt.Config(
        block_size=sizes["length"],
        padded_vocab_size=sizes["vocab_size"],
        vocab_size=sizes["vocab_size"],
        n_layer=sizes["num_layers"],
        n_head=sizes["num_heads"],
        n_embd=sizes["dim"],
        rotary_percentage=1.0,
        parallel_residual=False,
        bias=False,
        norm_class_name="LayerNorm",
        mlp_class_name="GptNeoxMLP",
        intermediate_size=4 * sizes["dim"],
    )
    model = litgpt.GPT(shape)
    model.lm_head.weight = model.transformer.wte.weight
    torch.nn.init.normal_(model.lm_head.weight, std=0.02)
    if compiled:
        model.compile()
    fit(model, work)


if __name__ == "__main__":
    compiled = sys.argv[-1] == "compiled"
    if compiled:
        sys.argv.pop()
    train(turns.from_command_line(), compiled=compiled)
