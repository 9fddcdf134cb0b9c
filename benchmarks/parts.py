"""Time of two parts of a step, forward and backward, each beside another way: python -m benchmarks.parts.

Attention within a window beside full attention: in blocks, or in two joined parts if the window is as long as the
chunk, and by a mask over all keys. DLinear beside the model of LTSF-Linear. Float32, one thread. Each round measures
all, one after another; a row gives least and median of the rounds in milliseconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.dlinear import DLinear
from seqtrain.models.layers.attention import CausalSelfAttention, window_mask, window_of
from seqtrain.models.layers.block_options import BlockOptions
from seqtrain.models.layers.front_ends import ValueProjection

BATCH, DIM, HEADS, ROUNDS = 2, 256, 8, 5
STEPS, HORIZON = 336, 96


def of_attention(length: int, window: int) -> dict[str, Callable[[], Tensor]]:
    """Return a layer that reads a chunk after a window of keys, by the way in which it reads."""
    layer = CausalSelfAttention(BlockOptions(dim=DIM, num_heads=HEADS, dropout=0.0, norm="pre", bias=False), "self")
    x = torch.randn(BATCH, length, DIM, requires_grad=True)
    cache = (torch.randn(BATCH, HEADS, window, DIM // HEADS), torch.randn(BATCH, HEADS, window, DIM // HEADS))
    read = torch.full((BATCH,), window)
    name, way = f"T {length}, window {window}", "joined" if length == window else "in blocks"
    return {
        f"{name}, {way}": lambda: layer(x, cache, window_of(read, length, window, window), None)[0],
        f"{name}, by a mask": lambda: layer(x, cache, window_mask(read, length, window, window), None)[0],
        f"T {length}, full": lambda: layer.alone(x, None),
    }


def of_dlinear(channels: int, kernel_size: int = 25) -> dict[str, Callable[[], Tensor]]:
    """Return two forecasts of 32 windows, with loss: ours with a front end of 128 units, and LTSF's of two maps."""
    front = ValueProjection(num_features=channels, dim=128)
    ours, head = DLinear(embed=front, dim=128, window=STEPS, kernel_size=kernel_size, dropout=0.0), nn.Linear(128, 96)
    trend, rest = nn.Linear(STEPS, HORIZON), nn.Linear(STEPS, HORIZON)
    x = torch.randn(32, STEPS, channels)

    def ltsf() -> Tensor:
        series = x.transpose(1, 2)
        ends = F.pad(series, (kernel_size // 2, kernel_size // 2), mode="replicate")
        mean = F.avg_pool1d(ends, kernel_size, stride=1)
        return trend(mean) + rest(series - mean)

    return {f"dlinear, {channels} channels": lambda: head(ours.last(x)), f"LTSF's, {channels} channels": ltsf}


def main() -> None:
    torch.set_num_threads(1)
    readers: dict[str, Callable[[], Tensor]] = {}
    for length in (512, 1024, 2048, 4096):
        readers |= of_attention(length, 256)
    for length in (1024, 2048):
        readers |= of_attention(length, length)
    for channels in (1, 7):
        readers |= of_dlinear(channels)
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, read in readers.items():
            begin = time.perf_counter()
            read().sum().backward()
            found.setdefault(name, []).append(1e3 * (time.perf_counter() - begin))
    for name, times in found.items():
        print(f"{name:34}{min(times):10.1f}{statistics.median(times):10.1f}")


if __name__ == "__main__":
    main()
