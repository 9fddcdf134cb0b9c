"""The cost of a model: by formula, counted by torch, and measured over a grid of lengths and widths."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from seqtrain.analysis.formula import (
    ATTENTION,
    CONVOLUTION,
    EXPONENTS,
    LINEAR,
    RECURRENCE,
    PowerLaw,
    attention_width,
    fit_power_law,
    formula_of,
    longest_path,
    source_path,
)
from seqtrain.models.base import SequenceModel, can_encode, read_blank
from seqtrain.models.layers.recorder import recording
from seqtrain.training.cost import num_sequential_steps

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
"""Kind of work of each torch function; all others count as `the rest`."""

REST = "the rest"
ALONE = "attention alone"
TRAINING = "forward and backward"
PEAK_SIZE = 768  # size of the square matrices whose product measures the machine's peak rate
PEAK_UNITS, PEAK_LENGTH = 128, 256  # sizes of the LSTM that measures it too
PEAK_TRIES = 8  # short measurements in a row, so that at least one finds the machine idle

Cell = TypeVar("Cell")

DOMINANT = 0.05  # smallest share of the forward pass at which a kind of work is fitted
RULING = 0.85  # smallest share at which the whole pass has the theoretical exponent of one kind of work
PEAK = "matrix peak"
SELF, CROSS = {"attention"}, {"cross", "query", "key", "score"}  # the latter three of a recurrent decoder
WHOLE = (TRAINING, ALONE)  # timed separately, not as parts of the forward pass

Make = Callable[[int, int], SequenceModel]
"""Makes a model of a width that can read a number of tokens at once."""


class Size(NamedTuple):
    """The length of the input in tokens, and the width of the model."""

    length: int
    dim: int


@dataclass(frozen=True)
class Grid:
    """The measured sizes: all lengths with one width, and all widths with one length."""

    lengths: tuple[int, ...]
    dims: tuple[int, ...]
    at_dim: int  # width for all lengths: small, so that growth with T^2 is visible
    at_length: int  # length for all widths
    batch: int  # sequences per batch for all lengths
    dims_batch: int  # the same for all widths: larger, because few rows do not saturate wide matrix products

    def along(self, axis: str) -> list[Size]:
        """Return the sizes along T or along d."""
        if axis == "T":
            return [Size(length, self.at_dim) for length in self.lengths]
        return [Size(self.at_length, dim) for dim in self.dims]

    def across(self, axis: str) -> tuple[int, ...]:
        """Return the values of T or of d along this axis."""
        return self.lengths if axis == "T" else self.dims

    def batch_of(self, size: Size) -> int:
        """Return the number of sequences in a batch at this size."""
        return self.batch if size in self.along("T") else self.dims_batch

    def sizes(self) -> list[Size]:
        """Return each size once."""
        return list(dict.fromkeys([*self.along("T"), *self.along("d")]))


@dataclass(frozen=True)
class Fitted:
    """The growth of the time, or of the bytes, of one kind, with its theoretical exponent."""

    kind: str
    axis: str  # "T" or "d"
    law: PowerLaw | None  # None: its share of the pass is too small at too many sizes
    theory: float | None  # None: unknown, or a sum of two terms of which neither dominates
    share: float = 1.0  # of the forward pass, at the largest size; 1 for bytes

    def words(self) -> str:
        """Return the fitted exponent for a table."""
        return "not fitted" if self.law is None else self.law.words(self.axis)

    def theory_words(self) -> str:
        """Return the theoretical exponent for a table."""
        return "-" if self.theory is None else f"{self.axis}^{self.theory:g}"

    def numbers(self, prefix: str) -> dict[str, float]:
        """Return the exponent and its error for a page, named by a prefix, the kind and the axis."""
        if self.law is None:
            return {}
        key = f"{prefix}_{self.kind.replace(' ', '_')}_{self.axis}"
        return {key: self.law.exponent, f"{key}_error": self.law.error}

    def record(self) -> dict[str, Any]:
        """Return the fit as JSON values."""
        law = None if self.law is None else self.law.record()
        return {"kind": self.kind, "axis": self.axis, "law": law, "theory": self.theory, "share": self.share}


@dataclass
class Profile:
    """All results for one model."""

    name: str
    counted: list[dict[str, Any]] = field(default_factory=list)  # one row per length
    seconds: dict[Size, dict[str, float]] = field(default_factory=dict)  # smallest time of each kind of work
    fits: list[Fitted] = field(default_factory=list)
    peak_share: float = 0.0  # highest training rate in operations per second, divided by the machine's peak
    tokens_per_second: float = 0.0  # of training, at the shortest length

    def numbers(self) -> dict[str, float]:
        """Return the numbers that a page may quote: exponents by kind and axis."""
        found = {f"{self.name}_peak_share": self.peak_share, f"{self.name}_tokens_per_second": self.tokens_per_second}
        for fitted in self.fits:
            found |= fitted.numbers(self.name)
        return found

    def record(self) -> dict[str, Any]:
        """Return the record for `--json` and the file beside the pictures."""
        cells = []
        for size, seconds in self.seconds.items():
            cells.append({**size._asdict(), "seconds": seconds})
        return {
            "name": self.name,
            "counted": self.counted,
            "cells": cells,
            "fits": [fitted.record() for fitted in self.fits],
            "peak_share": self.peak_share,
            "tokens_per_second": self.tokens_per_second,
        }


def count_by_length(make: Make, lengths: Sequence[int], dim: int) -> list[dict[str, Any]]:
    """Return for each length the cost of a model of this width, by formula and by torch's counter.

    Args:
        make: Makes the model for a width and a length.
        lengths: Numbers of tokens read at once.
        dim: Width of the model.
    """
    rows = []
    for length in lengths:
        model = make(dim, length).eval()
        # Two independent results for one number: a sum over layers, and torch's counter.
        formula = formula_of(model, length)
        counted = model.flops_per_token(length, carried=False)
        rows.append(
            {
                "length": length,
                "parameters": formula.parameters,
                "attention_parameters": _parameters_of(model, SELF | CROSS),
                "cross_attention_parameters": _parameters_of(model, CROSS),
                "flops_by_kind": formula.flops,
                "flops": formula.total,
                "counted_flops": counted,
                "sequential_steps": num_sequential_steps(model, length),
                "longest_path": longest_path(model, length),
                "source_path": source_path(model, length),
            }
        )
    return rows


def _parameters_of(model: SequenceModel, names: Set[str]) -> int:
    """Count the weights in modules of these names: maps to queries, keys, values and back, and score weights."""
    total = 0
    for name, weight in model.named_parameters():
        # By name: attention of a third-party model under another name is not counted.
        if names & set(name.split(".")):
            total += weight.numel()
    return total


def measure(models: dict[str, Make], grid: Grid, *, repeats: int) -> tuple[list[Profile], float]:
    """Measure all models at all sizes, interleaved.

    Args:
        models: Makers of the models, by name.
        grid: The sizes.
        repeats: Measurements of each cell; the smallest time is used.

    Returns:
        A profile of each model, and the highest rate seen, in operations per second. It is the rate of matrix
        products, measured between the cells, or of the cells themselves.
    """
    # Make all models before timing any: making one takes longer than a forward pass.
    made: dict[tuple[str, Size], SequenceModel] = {}
    for name, make in models.items():
        for size in grid.sizes():
            made[name, size] = make(size.dim, size.length).eval()

    # The number of heads does not depend on the size.
    heads = {name: heads_of(made[name, grid.sizes()[0]]) for name in models}

    def one(cell: tuple[str, Size] | None) -> dict[str, float]:
        if cell is None:
            return {PEAK: 1 / matrix_flops_per_second()}
        name, size = cell
        return seconds_by_kind(made[cell], grid.batch_of(size), size.length, heads[name])

    # None stands for the matrix products, which are interleaved with the models.
    cells = [*made, None]
    least = interleaved(cells, one, repeats=repeats)
    peak = 1 / least[-1][PEAK]
    profiles = []
    for name, make in models.items():
        profile = Profile(name, count_by_length(make, grid.lengths, grid.at_dim))
        for cell, seconds in zip(cells, least, strict=True):
            if cell is not None and cell[0] == name:
                profile.seconds[cell[1]] = seconds
        profile.fits = fits_of(profile.seconds, grid, profile.counted[-1]["flops_by_kind"])
        profiles.append(profile)
    rates = {profile.name: _best_rate(profile, made, grid) for profile in profiles}
    # Matrix products alone may miss the machine's peak, because kernels and sizes differ.
    peak = max(peak, *rates.values())
    for profile in profiles:
        first = grid.along("T")[0]
        profile.tokens_per_second = grid.batch * first.length / profile.seconds[first][TRAINING]
        profile.peak_share = rates[profile.name] / peak
    return profiles, peak


def _best_rate(profile: Profile, made: dict[tuple[str, Size], SequenceModel], grid: Grid) -> float:
    """Return the highest rate of a training pass over all sizes, in operations per second."""
    best = 0.0
    for size, seconds in profile.seconds.items():
        model = made[profile.name, size]
        # The backward pass costs twice the forward pass. A model with a source reads twice as many tokens.
        tokens = size.length * (1 if can_encode(model) else 2)
        operations = 3 * formula_of(model, size.length).total * tokens * grid.batch_of(size)
        best = max(best, operations / seconds[TRAINING])
    return best


def fits_of(seconds: dict[Size, dict[str, float]], grid: Grid, flops: dict[str, float]) -> list[Fitted]:
    """Fit the exponent of each kind of work, along the lengths and along the widths.

    Args:
        seconds: Seconds for each size, by kind.
        grid: The sizes.
        flops: Operations by kind. Only these kinds of work have a theoretical exponent.
    """
    found = []
    kinds = [kind for kind in seconds[grid.sizes()[0]] if kind not in (REST, TRAINING)]
    for kind in (*kinds, TRAINING):
        for number, axis in enumerate(("T", "d")):
            sizes = grid.along(axis)
            values = list(zip(grid.across(axis), (seconds[size] for size in sizes), strict=True))
            shares = [_share(each, kind) for _, each in values]
            # Where the share of the pass is very small, the time is mostly call overhead.
            fitted = values
            if kind not in WHOLE:
                fitted = [pair for pair, share in zip(values, shares, strict=True) if share >= DOMINANT]
            law = fit_power_law([size for size, _ in fitted], [each[kind] for _, each in fitted])
            known = ATTENTION if kind == ALONE else kind
            if kind == TRAINING:
                known = _ruling_kind([seconds[size] for size in sizes], kinds)
            theory = EXPONENTS[known][number] if known in flops else None
            found.append(Fitted(kind, axis, law, theory, shares[-1]))
    return found


def _ruling_kind(seconds: Sequence[dict[str, float]], kinds: Sequence[str]) -> str | None:
    """Return the kind of work that takes nearly all of the forward pass at each of these sizes, or None."""
    for kind in kinds:
        if kind not in WHOLE and all(_share(each, kind) >= RULING for each in seconds):
            return kind
    return None


def _share(seconds: dict[str, float], kind: str) -> float:
    """Return a kind's share of the forward pass; 1 for work that is timed separately."""
    if kind in WHOLE:
        return 1.0
    return seconds.get(kind, 0.0) / sum(value for name, value in seconds.items() if name not in WHOLE)


@dataclass(frozen=True)
class Crossover:
    """The length above which the attention products of one layer take longer than a model's recurrence."""

    recurrent: str
    attending: str
    counted: float  # where their operations are equal: d of an RNN of one layer, 4 d of an LSTM
    measured: float  # where their fitted times are equal


def pairs(profiles: Sequence[Profile]) -> list[tuple[Profile, Profile]]:
    """Return each pair of a recurrent model and another model that attends. Only such a pair can have a crossover."""
    found = []
    for recurrent, attending in itertools.permutations(profiles, 2):
        recurs = any(fitted.kind == RECURRENCE for fitted in recurrent.fits)
        if recurs and any(fitted.kind == ALONE for fitted in attending.fits):
            found.append((recurrent, attending))
    return found


def crossovers(profiles: Sequence[Profile], dim: int) -> list[Crossover]:
    """Return the crossover of each recurrent and attending pair, at the width `dim` of all lengths."""
    found = []
    for recurrent, attending in pairs(profiles):
        one, other = _law(recurrent, RECURRENCE), _law(attending, ALONE)
        # Attention must grow faster for the lines to cross.
        if one is None or other is None or other.exponent <= one.exponent:
            continue
        # Attention takes 4 d T operations per token; solve for the T at which both are equal.
        counted = recurrent.counted[0]["flops_by_kind"][RECURRENCE] / (4 * dim)
        measured = (one.factor / other.factor) ** (1 / (other.exponent - one.exponent))
        found.append(Crossover(recurrent.name, attending.name, counted, measured))
    return found


def _law(profile: Profile, kind: str) -> PowerLaw | None:
    """Return the fitted growth of a kind of work with the length, or None if it is not clear."""
    for fitted in profile.fits:
        if fitted.kind == kind and fitted.axis == "T" and fitted.law is not None and fitted.law.is_clear:
            return fitted.law
    return None


# -- one model, timed by kind of work: each torch function that it calls -----------------------------------------------


class Clock(TorchFunctionMode):
    """Sum the seconds of each kind of work. For the CPU only, where a call returns when its work is done."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Tensor methods arrive here too; most calls are of no timed kind.
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

    TRAINING is the time of a forward and a backward pass. ALONE, if there are heads, is the time of the attention
    products of one layer alone, of every query with every key.

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
        # Timed without a causal mask, because causal kernels skip keys only in whole blocks.
        query = torch.ones(batch, num_heads, length, head_width)
        seconds[ALONE] = _seconds(lambda: functional.scaled_dot_product_attention(query, query, query))
    start = time.perf_counter()
    read(model, batch, length).sum().backward()
    seconds[TRAINING] = time.perf_counter() - start
    # Otherwise the next backward pass would accumulate gradients, and take longer than the first.
    model.zero_grad(set_to_none=True)
    return seconds


def matrix_flops_per_second() -> float:
    """Return the highest measured rate of float32 matrix products on this machine, in operations per second.

    It is the maximum of two rates: of a product of large matrices, and of a torch LSTM, whose products call another
    library that is much faster on some processors.
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
    cells: Sequence[Cell], measure: Callable[[Cell], dict[str, float]], *, repeats: int
) -> list[dict[str, float]]:
    """Return the smallest time in seconds of each cell by kind. All cells are measured in random order, repeatedly.

    A temporary slowdown of the machine thus affects all cells. The smallest time is used because other load can only
    increase a time. The first round is discarded because it includes one-time work.

    Args:
        cells: What to measure.
        measure: Returns the seconds of a cell, by kind.
        repeats: Number of rounds, without the first.
    """
    order = list(range(len(cells)))
    draw = random.Random(0)
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
