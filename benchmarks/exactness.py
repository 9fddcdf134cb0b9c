"""State carried from chunk to chunk against the whole, ours and others': the first table of docs/families.md.

    python -m benchmarks.exactness

Each model reads 48 tokens whole, and as 17 and 31 with the cache or state that it returns itself. Weights are random,
numbers float64 wherever a library allows it. A line gives the largest difference of the outputs, beside the largest
output.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from seqtrain.config import check
from seqtrain.training.model_and_task import make_model  # pyright: ignore[reportAttributeAccessIssue]
from seqtrain.training.shipped import shipped

VOCABULARY, LENGTH, CUT = 64, 48, 17
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
MAMBA2 = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_chunk_size": 16}
LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
TRANSFORMERS: dict[str, dict[str, Any]] = {
    "Mamba": {"state_size": 8},
    "FalconMamba": {"state_size": 8},
    "Mamba2": {"num_heads": 4, "head_dim": 16, "state_size": 16, "n_groups": 1, "chunk_size": 16},
    "Bamba": {**HEADS, **MAMBA2, "attn_layer_indices": [1]},
    "FalconH1": {**HEADS, "mamba_d_ssm": 64, **MAMBA2},
    "RecurrentGemma": {**HEADS, "num_key_value_heads": 1, "lru_width": 32, "attention_window_size": 64},
    "Qwen3Next": {**HEADS, **LINEAR, "layer_types": ["linear_attention", "full_attention"], "num_experts": 0},
    "GPT2": {"n_head": 4},
    "Llama": {**HEADS},
}
"""Classes `XConfig` and `XForCausalLM` or `XLMHeadModel` of transformers, with options that make them small."""


def of_transformers(name: str, options: dict[str, Any]) -> tuple[float, float]:
    """Return the difference and the largest output of one of transformers' models."""
    library = importlib.import_module("transformers")
    torch.manual_seed(0)
    config = getattr(library, f"{name}Config")(**SMALL, **options)
    kind = getattr(library, f"{name}ForCausalLM", None) or getattr(library, f"{name}LMHeadModel")
    model = enlarged(kind(config))
    tokens = torch.randint(1, VOCABULARY, (2, LENGTH))
    with torch.no_grad():
        whole = model(tokens, use_cache=True).logits
        first = model(tokens[:, :CUT], use_cache=True)
        field = "cache_params" if getattr(first, "cache_params", None) is not None else "past_key_values"
        cache = getattr(first, field, None)
        if cache is None:
            raise ValueError("returns no cache")
        positions = torch.arange(CUT, LENGTH).expand(2, -1)
        more = {"position_ids": positions} if field == "past_key_values" else {}
        second = model(tokens[:, CUT:], use_cache=True, **{field: cache}, **more)
    return difference(torch.cat([first.logits, second.logits], 1), whole)


def ours(words: list[str]) -> tuple[float, float]:
    """Return the same of a model of seqtrain."""
    torch.manual_seed(0)
    config: Any = check.compose(["task=next_token", "model.dim=32", *words]).config
    model = enlarged(make_model(config, VOCABULARY))
    tokens = torch.randint(0, VOCABULARY, (2, LENGTH))
    with torch.no_grad():
        whole, _ = model(tokens, model.initial(2))
        first, state = model(tokens[:, :CUT], model.initial(2))
        second, _ = model(tokens[:, CUT:], state)
    return difference(torch.cat([first, second], 1), whole)


def enlarged(model: nn.Module) -> Any:
    """Draw all matrices anew, as large as those of a trained model, so that a wrong state shows."""
    torch.manual_seed(1)
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.3)
    return model.double().eval()


def of_mingru_pytorch(name: str) -> tuple[float, float]:
    """Return the same of a layer of minGRU-pytorch."""
    layer = enlarged(getattr(importlib.import_module(f"minGRU_pytorch.{name}"), name)(32))
    x = torch.randn(2, LENGTH, 32, dtype=torch.float64)
    with torch.no_grad():
        first, hidden = layer(x[:, :CUT], return_next_prev_hidden=True)
        second = layer(x[:, CUT:], hidden)
        return difference(torch.cat([first, second], 1), layer(x))


def difference(parts: Tensor, whole: Tensor) -> tuple[float, float]:
    return float((parts - whole).abs().max()), float(whole.abs().max())


def rows() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| | model | largest difference | largest output |"
    yield "|---|---|---|---|"
    for mixer in shipped("mixer"):
        off, largest = ours(["model=stack", f"model.mixers=[{mixer}]"])
        yield f"| seqtrain | `model=stack model.mixers=[{mixer}]` | {off:.0e} | {largest:.1f} |"
    for name in ("lstm", "gru", "rnn", "min_gru", "gpt"):
        off, largest = ours([f"model={name}"])
        yield f"| seqtrain | `model={name}` | {off:.0e} | {largest:.1f} |"
    version = importlib.import_module("transformers").__version__
    for name, options in TRANSFORMERS.items():
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                off, largest = of_transformers(name, options)
            yield f"| transformers {version} | {name} | {off:.0e} | {largest:.1f} |"
        except Exception as error:  # what others raise is part of the table
            yield f"| transformers {version} | {name} | {type(error).__name__}: {str(error).splitlines()[0][:80]} | |"
    with contextlib.suppress(ImportError):  # pip install --no-deps minGRU-pytorch
        for name in ("minGRU", "minLSTM"):
            off, largest = of_mingru_pytorch(name)
            yield f"| minGRU-pytorch | {name} | {off:.0e} | {largest:.1f} |"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    for line in rows():
        print(line, flush=True)
    sys.exit(0)
