"""Time of the recurrences inside mixers, forward and backward, beside nn.LSTM: python -m benchmarks.mixers.

Width 256, 4 heads of 64, float32, one thread; without the maps around them. Each round measures all, one after another;
a row gives the least of the rounds in milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.mixers.chunks import decayed_sum, gated_delta_rule
from seqtrain.models.mixers.mlstm import read_gated

SHAPES = ((16, 64), (8, 256), (2, 1024), (1, 4096))
HEADS, WIDTH, ROUNDS = 4, 64, 8


def drawn(*shape: int) -> Tensor:
    """Return random numbers that take a gradient."""
    return torch.randn(shape, requires_grad=True)


def readers(batch: int, length: int) -> dict[str, Callable[[], Tensor]]:
    """Return what is measured, by name."""
    query, key, value = (drawn(batch, HEADS, length, WIDTH) for _ in range(3))
    direction = F.normalize(torch.randn(batch, HEADS, length, WIDTH), dim=-1).requires_grad_()
    slow = (-0.1 * torch.rand(batch, HEADS, length)).requires_grad_()
    by_channel = (-torch.rand(batch, HEADS, length, WIDTH)).requires_grad_()
    beta = torch.rand(batch, HEADS, length).requires_grad_()
    log_input, log_forget = drawn(batch, HEADS, length), F.logsigmoid(drawn(batch, HEADS, length) + 3)
    log_forget = log_forget.detach().requires_grad_()
    memory = torch.zeros(batch, HEADS, WIDTH, WIDTH)
    state = {"memory": memory, "normaliser": memory[..., 0], "scale": memory[..., 0, 0]}
    lstm, x = nn.LSTM(HEADS * WIDTH, HEADS * WIDTH, batch_first=True), drawn(batch, length, HEADS * WIDTH)
    return {
        "nn.LSTM": lambda: lstm(x)[0],
        "mamba2": lambda: decayed_sum(query, [(key, value)], slow, memory)[0],
        "mlstm": lambda: read_gated(query, key, value, log_input, log_forget, state)[0],
        "gated_delta": lambda: gated_delta_rule(query, direction, value, beta, slow, memory)[0],
        "kda": lambda: gated_delta_rule(query, direction, value, beta, by_channel, memory)[0],
    }


def main() -> None:
    torch.set_num_threads(1)
    rows: dict[str, list[float]] = {}
    for batch, length in SHAPES:
        found: dict[str, list[float]] = {}
        measured = readers(batch, length)
        for _ in range(ROUNDS):
            for name, read in measured.items():
                begin = time.perf_counter()
                read().sum().backward()
                found.setdefault(name, []).append(1e3 * (time.perf_counter() - begin))
        for name, times in found.items():
            rows.setdefault(name, []).append(min(times))
    print("| | " + " | ".join(f"B{batch} T{length}" for batch, length in SHAPES) + " |")
    print("|---" * (len(SHAPES) + 1) + "|")
    for name, times in rows.items():
        print(f"| {name} | " + " | ".join(f"{value:.0f}" for value in times) + " |")


if __name__ == "__main__":
    main()
