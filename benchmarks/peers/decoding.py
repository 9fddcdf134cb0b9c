"""`make bench-peers BENCH='--peer generate'`: how fast text is written, beside Hugging Face's `generate`.

Both write in turn, in one process.

Both sides have models of the same shape with drawn weights, the same prompts, and write the same number of tokens, so
what differs is how they go from token to token. Weights are not the same ones, and so neither is the text. Ratios are
of tokens a second, taken pair by pair.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seqtrain.config import check
from seqtrain.models.base import SequenceModel
from seqtrain.models.decoding import continue_tokens, decode
from seqtrain.training.model_and_task import make_model

PROMPT = 16  # tokens
SOURCE, TARGET = 20, 30
Way = Callable[[], int]
"""Writes once; gives the tokens that it wrote."""


def peer() -> Any:
    """The package of others, which only this program's environment has."""
    return importlib.import_module("transformers")


def models(name: str, *overrides: str, vocab_size: int, target_vocab_size: int | None = None) -> SequenceModel:
    """A model of drawn weights, in evaluation mode."""
    config = check.compose([f"model={name}", "model.dropout=0", *overrides]).config
    return make_model(config, vocab_size, target_vocab_size=target_vocab_size).eval()


def generation(lanes: int, window: int) -> tuple[Way, Way]:
    """A GPT of 4 layers of 128 that fills its window greedily, and GPT-2 of that shape."""
    vocab_size, count = 256, window - PROMPT
    sizes = ("model.dim=128", "model.num_layers=4", "model.num_heads=4")
    ours = models("gpt", *sizes, f"model.attention_window={window}", vocab_size=vocab_size)
    head = nn.Linear(128, vocab_size, bias=False)
    shape = peer().GPT2Config(
        vocab_size=vocab_size, n_positions=window, n_embd=128, n_layer=4, n_head=4, eos_token_id=None
    )
    theirs = peer().GPT2LMHeadModel(shape).eval()
    prompts = torch.randint(1, vocab_size, (lanes, PROMPT))

    def write() -> int:
        steps = continue_tokens(ours, head, prompts.tolist(), num_tokens=count, temperature=0)
        return sum(len(tokens) for tokens in steps)

    def write_theirs() -> int:
        given = torch.ones_like(prompts)
        options = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "pad_token_id": 0}
        return (theirs.generate(prompts, attention_mask=given, **options).shape[1] - PROMPT) * lanes

    return write, write_theirs


def translation(name: str, lanes: int, beam: int, vocab_size: int, num_layers: int = 3) -> tuple[Way, Way]:
    """Targets of TARGET tokens each: no hypothesis ends before, on either side."""
    dim, end = 256, vocab_size
    target = None if name == "gpt" else vocab_size
    sizes = (f"model.dim={dim}", f"model.num_layers={num_layers}", "model.num_heads=4", "task=translation")
    ours = models(name, *sizes, vocab_size=vocab_size, target_vocab_size=target)
    head = nn.Linear(dim, vocab_size + 1)
    feed_forward = {"encoder_ffn_dim": 4 * dim, "decoder_ffn_dim": 4 * dim}
    depth = {"encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    special = {"pad_token_id": end + 1, "eos_token_id": end, "decoder_start_token_id": end + 1}
    shape = peer().MarianConfig(
        vocab_size=vocab_size + 2, d_model=dim, forced_eos_token_id=None, **feed_forward, **depth, **special
    )
    theirs = peer().MarianMTModel(shape).eval()
    sources = torch.randint(1, vocab_size, (lanes, SOURCE))

    def logits(hidden: Tensor) -> Tensor:
        scores = head(hidden)
        scores[:, -1] = torch.finfo(scores.dtype).min  # nobody ends
        return scores

    def write() -> int:
        limits = torch.full((lanes,), TARGET)
        state = ours.begin(sources)
        return sum(map(len, decode(ours, logits, state, start=end - 1, end=end, max_tokens=limits, beam=beam)))

    def write_theirs() -> int:
        options = {"max_new_tokens": TARGET, "min_new_tokens": TARGET, "num_beams": beam, "do_sample": False}
        given = torch.ones_like(sources)
        return (theirs.generate(sources, attention_mask=given, **options).shape[1] - 1) * lanes

    return write, write_theirs


CASES: dict[str, Callable[[], tuple[Way, Way]]] = {
    "GPT 4x128, 32 lanes, 256 tokens": partial(generation, 32, 256),
    "GPT 4x128, 32 lanes, 64 tokens": partial(generation, 32, 64),
    "GPT 4x128, 1 lane, 256 tokens": partial(generation, 1, 256),
    "GPT 4x128, 1 lane, 64 tokens": partial(generation, 1, 64),
    "encoder_decoder 3+3x256 beside Marian 3+3, V 8,000, beam 5": partial(translation, "encoder_decoder", 32, 5, 8000),
    "encoder_decoder 3+3x256 beside Marian 3+3, V 8,000, greedy": partial(translation, "encoder_decoder", 32, 1, 8000),
    "gpt 3x256 beside Marian 3+3, V 8,000, beam 5": partial(translation, "gpt", 32, 5, 8000),
    "gpt 3x256 beside Marian 3+3, V 8,000, greedy": partial(translation, "gpt", 32, 1, 8000),
    "gpt 6x256 beside Marian 3+3, V 8,000, beam 5": partial(translation, "gpt", 32, 5, 8000, 6),
    "gpt 6x256 beside Marian 3+3, V 8,000, greedy": partial(translation, "gpt", 32, 1, 8000, 6),
}


def speed(way: Way) -> float:
    """Tokens a second of writing once."""
    began = time.perf_counter()
    with torch.no_grad():
        count = way()
    return count / (time.perf_counter() - began)


def row(name: str, pair: tuple[Way, Way], repeats: int) -> str:
    """A line of the table: medians of both, and of their ratios, with the range."""
    for way in pair:
        speed(way)  # the first call makes buffers and picks kernels
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(speed(pair[0]))
        theirs.append(speed(pair[1]))
    ratios = [left / right for left, right in zip(ours, theirs, strict=True)]
    middle = [statistics.median(values) for values in (ours, theirs, ratios)]
    return (
        f"| {name} | {middle[0]:,.0f} | {middle[1]:,.0f} | {middle[2]:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
    )


def table(repeats: int, only: str) -> None:
    """Prints the table of all cases whose name has `only` in it."""
    torch.manual_seed(0)
    print(f"transformers {peer().__version__}\n")
    print("| case | seqtrain, tokens/s | Hugging Face | ratio, median (range) |\n|---|---|---|---|")
    for name, make in CASES.items():
        if only in name:
            print(row(name, make(), repeats), flush=True)
