"""Time of the recurrences inside mixers, forward and backward, beside nn.LSTM: python -m benchmarks.mixers.

Width 256, 4 heads of 64, float32, one thread; without the maps around them, but slstm, whose steps cannot be taken out,
with its own. Each round measures all, one after another; a row gives the least of the rounds in milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.layers.scan import scan
from seqtrain.models.mixers.chunks import decayed_sum, gated_delta_rule
from seqtrain.models.mixers.mamba3 import turned
from seqtrain.models.mixers.mlstm import read_gated
from seqtrain.models.mixers.slstm import SLSTM

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
    angles = drawn(batch, HEADS, length, WIDTH // 4)
    lstm, x = nn.LSTM(HEADS * WIDTH, HEADS * WIDTH, batch_first=True), drawn(batch, length, HEADS * WIDTH)
    slstm = SLSTM(dim=HEADS * WIDTH, num_heads=HEADS, conv=0)
    keep, add = torch.rand(x.shape).requires_grad_(), drawn(*x.shape)

    def mamba3() -> Tensor:
        now = turned(key, angles), value
        late_key, late_value = (F.pad(each, (0, 0, 1, -1)) for each in now)  # the token before is written again
        return decayed_sum(turned(query, angles), [now, (late_key, late_value)], slow, memory)[0]

    return {
        "nn.LSTM": lambda: lstm(x)[0],
        "mamba2": lambda: decayed_sum(query, [(key, value)], slow, memory)[0],
        "mlstm": lambda: read_gated(query, key, value, log_input, log_forget, state)[0],
        "gated_delta": lambda: gated_delta_rule(query, direction, value, beta, slow, memory)[0],
        "mamba3": mamba3,
        "scan of min_gru": lambda: scan(keep, add, torch.zeros(batch, HEADS * WIDTH)),
        "slstm": lambda: slstm(x, slstm.initial(batch))[0],
        "attention": lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True),
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
