"""The cost of a model: counted, by formula, and measured over a grid of lengths and widths."""

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
"""torch's functions by the kind of work they do; all others are `the rest`."""

REST = "the rest"
ALONE = "attention alone"
TRAINING = "forward and backward"
PEAK_SIZE = 768  # of the square matrices whose product is taken for the machine's peak
PEAK_UNITS, PEAK_LENGTH = 128, 256  # of the LSTM that is tried beside it
PEAK_TRIES = 8  # in a row, each of a few milliseconds: one of them finds the machine free

Cell = TypeVar("Cell")

DOMINANT = 0.05  # share of the forward pass from which on a kind of work is fitted
RULING = 0.85  # share from which on the whole pass must grow as one kind of work does
PEAK = "matrix peak"
SELF, CROSS = {"attention"}, {"cross", "query", "key", "score"}  # the latter three of a recurrent decoder
WHOLE = (TRAINING, ALONE)  # timed by themselves, and no part of the forward pass

Make = Callable[[int, int], SequenceModel]
"""Makes the model for a width, to read so many tokens at once."""


class Size(NamedTuple):
    """The length of the input in tokens, and the width of the model."""

    length: int
    dim: int


@dataclass(frozen=True)
class Grid:
    """The measured sizes: all lengths with one width, and all widths with one length."""

    lengths: tuple[int, ...]
    dims: tuple[int, ...]
    at_dim: int  # of all lengths: small, so that what grows with T^2 shows
    at_length: int  # of all widths
    batch: int  # sequences at a time, of all lengths
    dims_batch: int  # and of all widths: more, since few rows do not fill a product of wide matrices

    def along(self, axis: str) -> list[Size]:
        """Return the sizes along T or along d."""
        if axis == "T":
            return [Size(length, self.at_dim) for length in self.lengths]
        return [Size(self.at_length, dim) for dim in self.dims]

    def across(self, axis: str) -> tuple[int, ...]:
        """Return the values of T or of d; the other one stays the same."""
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
    law: PowerLaw | None  # None: it takes too small a share of the pass at too many sizes
    theory: float | None  # None: unknown, or two terms of theory are in it and neither rules
    share: float = 1.0  # of the forward pass, at the largest size; of bytes all

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
    counted: list[dict[str, Any]] = field(default_factory=list)  # a row a length
    seconds: dict[Size, dict[str, float]] = field(default_factory=dict)  # least of each kind of work
    fits: list[Fitted] = field(default_factory=list)
    peak_share: float = 0.0  # operations a second of training, where they are most, over the machine's best
    tokens_per_second: float = 0.0  # of training, in the cell of the shortest length

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
        # Two ways to one number: layers times what each costs, and what torch sees being done.
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
    """Count the weights below modules of these names: maps to queries, keys, values and back, and score weights."""
    total = 0
    for name, weight in model.named_parameters():
        # By name: a model of others may call its attention otherwise, and then has none here.
        if names & set(name.split(".")):
            total += weight.numel()
    return total


def measure(models: dict[str, Make], grid: Grid, *, repeats: int) -> tuple[list[Profile], float]:
    """Measure all models at all sizes, interleaved.

    Args:
        models: Makers of the models, by name.
        grid: The sizes.
        repeats: Measurements of each cell; the smallest time counts.

    Returns:
        A profile of each model, and the highest rate seen, in operations per second. It is the rate of matrix
        products, measured between the cells, or of the cells themselves.
    """
    # All are made before the first is timed: making one takes longer than reading.
    made: dict[tuple[str, Size], SequenceModel] = {}
    for name, make in models.items():
        for size in grid.sizes():
            made[name, size] = make(size.dim, size.length).eval()

    # The same at all sizes, as heads are an option of their own.
    heads = {name: heads_of(made[name, grid.sizes()[0]]) for name in models}

    def one(cell: tuple[str, Size] | None) -> dict[str, float]:
        if cell is None:
            return {PEAK: 1 / matrix_flops_per_second()}
        name, size = cell
        return seconds_by_kind(made[cell], grid.batch_of(size), size.length, heads[name])

    # None stands for the products of matrices, which are measured in turn with the models.
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
    # No product of matrices alone finds the best that a machine can do: kernels and sizes differ.
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
        # The backward pass costs twice the forward one; a model with a source reads as many tokens again.
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
            # If it takes a very small share of the pass, the time is that of the call and not of the work.
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
    """The length from which on one layer of attention's products takes longer than a model's recurrence."""

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
        # Two lines of one slope never meet.
        if one is None or other is None or other.exponent <= one.exponent:
            continue
        # 4 d T operations a token are those of attention, so T is where both are equal.
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
