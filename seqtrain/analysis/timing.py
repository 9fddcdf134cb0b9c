"""Times of a model by kind of work: each torch function that it calls is timed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from seqtrain.analysis.formula import ATTENTION, CONVOLUTION, LINEAR, RECURRENCE, attention_width
from seqtrain.models.base import SequenceModel, read_blank
from seqtrain.models.layers.recorder import recording

FUNCTIONS = {
    "linear": LINEAR,
    "conv2d": CONVOLUTION,  # of `layers.convolution`
    "rnn_tanh": RECURRENCE,
    "rnn_relu": RECURRENCE,
    "gru": RECURRENCE,
    "lstm": RECURRENCE,
    "rnn_tanh_cell": RECURRENCE,
    "gru_cell": RECURRENCE,
    "lstm_cell": RECURRENCE,
    "scaled_dot_product_attention": ATTENTION,
}
"""torch's functions by the kind of work they do; all others are `the rest`."""

REST = "the rest"
ALONE = "attention alone"
TRAINING = "forward and backward"
PEAK_SIZE = 768  # of the square matrices whose product is taken for the machine's peak
PEAK_UNITS, PEAK_LENGTH = 128, 256  # of the LSTM that is tried beside it
PEAK_TRIES = 8  # in a row, each of a few milliseconds: one of them finds the machine free

Cell = TypeVar("Cell")


class Clock(TorchFunctionMode):
    """Sum of the seconds of each kind of work while open. For the CPU only, where a call returns when it is done."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Methods of tensors come here, too, and most of what is called is no work of ours.
        kind = FUNCTIONS.get(getattr(func, "__name__", ""))
        if kind is None:
            return func(*args, **(kwargs or {}))
        start = time.perf_counter()
        out = func(*args, **(kwargs or {}))
        self.seconds[kind] = self.seconds.get(kind, 0.0) + time.perf_counter() - start
        return out


def read(model: SequenceModel, batch: int, length: int) -> torch.Tensor:
    """Return the hidden states of `read_blank`."""
    return read_blank(model, batch, length)[0]


def heads_of(model: SequenceModel) -> tuple[int, int]:
    """Return the number of heads of the first attention that the model calls, 0 if it calls none, and their width."""
    with torch.no_grad(), recording() as maps:
        read(model, 1, 2)
    count = maps[0].weights.shape[1] if maps else 0
    return count, attention_width(model) // max(count, 1)


def seconds_by_kind(model: SequenceModel, batch: int, length: int, heads: tuple[int, int]) -> dict[str, float]:
    """Return the seconds of one forward pass by kind of work.

    TRAINING is the time of a forward and a backward pass. ALONE, if there are heads, is the time of one layer's
    products of attention by themselves, of every query with every key.

    Args:
        model: The model.
        batch: Number of sequences.
        length: T, tokens of each sequence.
        heads: Number of heads of its attention, 0 if it has none, and their width.
    """
    with torch.no_grad(), Clock() as clock:
        start = time.perf_counter()
        read(model, batch, length)
        whole = time.perf_counter() - start
    # Time outside the timed functions: activations, norms, masks, Python itself.
    seconds = dict(clock.seconds)
    seconds[REST] = whole - sum(seconds.values())
    num_heads, head_width = heads
    if num_heads:
        # A causal model skips most keys that no query sees, but by whole blocks: it is timed without that, too.
        query = torch.ones(batch, num_heads, length, head_width)
        seconds[ALONE] = _seconds(lambda: functional.scaled_dot_product_attention(query, query, query))
    start = time.perf_counter()
    read(model, batch, length).sum().backward()
    seconds[TRAINING] = time.perf_counter() - start
    # Otherwise the next backward pass would add to the gradients, and take longer than the first.
    model.zero_grad(set_to_none=True)
    return seconds


def matrix_flops_per_second() -> float:
    """Return the highest rate of float32 matrix products that was seen on this machine, in operations per second.

    It is the better of two: a product of large matrices, and the products inside a torch LSTM, which call another
    library. On some processors that library is much faster.
    """
    left, right = torch.ones(PEAK_SIZE, PEAK_SIZE), torch.ones(PEAK_SIZE, PEAK_SIZE)
    fused = nn.LSTM(PEAK_UNITS, PEAK_UNITS, batch_first=True)
    inputs = torch.ones(4, PEAK_LENGTH, PEAK_UNITS)
    plain_operations = 2 * PEAK_SIZE**3
    fused_operations = 2 * 8 * PEAK_UNITS**2 * inputs.shape[0] * PEAK_LENGTH
    best = 0.0
    with torch.no_grad():
        for _ in range(PEAK_TRIES):
            best = max(best, plain_operations / _seconds(lambda: left @ right))
            best = max(best, fused_operations / _seconds(lambda: fused(inputs)))
    return best


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(
    cells: Sequence[Cell], measure: Callable[[Cell], dict[str, float]], *, repeats: int, seed: int = 0
) -> list[dict[str, float]]:
    """Return the smallest time in seconds of each cell by kind. All cells are measured in random order, repeatedly.

    A machine that slows down for a while thus slows all cells. The smallest time is used because other load only
    adds to a time. The first round includes one-time work and does not count.

    Args:
        cells: What to measure.
        measure: Returns the seconds of a cell, by kind.
        repeats: Rounds that count.
        seed: Seed of the order.
    """
    order = list(range(len(cells)))
    draw = random.Random(seed)
    least: list[dict[str, float]] = [{} for _ in cells]
    for repeat in range(repeats + 1):
        draw.shuffle(order)
        for index in order:
            seconds = measure(cells[index])
            # Kernels are chosen and memory is taken in the first round.
            if repeat == 0:
                continue
            for kind, value in seconds.items():
                least[index][kind] = min(value, least[index].get(kind, value))
    return least
