"""Equal budgets for different models: width and steps are set to match.

`budget=params:1e6` and `budget=state:4096` set the width, `budget=flops:1e14` and `budget=seconds:120` the steps.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from seqtrain.config.check import key_of
from seqtrain.config.options import read_budget
from seqtrain.config.ranges import MAX_STEPS, MAX_WIDTH
from seqtrain.errors import UserError
from seqtrain.training.cost import check_memory, count, state_size
from seqtrain.training.model_and_task import make_pair, on_meta
from seqtrain.training.session import cost_of

if TYPE_CHECKING:  # the first two functions run before heavy imports
    from omegaconf import DictConfig

    from seqtrain.tasks.base import Say
    from seqtrain.training.splits import Data

TOLERANCE = 0.01  # relative to the request
INNER = "dim_feedforward"  # of a Transformer; solved for if the attention heads allow too few widths
SOLVED = {
    "params": ("model.dim",),
    "state": ("model.dim",),
    "flops": ("trainer.max_steps", "trainer.max_epochs"),
    "seconds": ("trainer.max_steps", "trainer.max_epochs", "trainer.max_seconds"),
}
"""The options that each kind of budget decides."""
OF_WIDTH = {"params": "parameters", "state": "numbers of state"}  # kinds that decide the width, and their unit


class TooCoarse(UserError):
    """The nearest choice is too far from the requested budget. `reason` explains why, without naming the option."""

    def __init__(self, asked: str, reason: str, remedy: str) -> None:
        super().__init__(f"{asked}: {reason}; {remedy}")
        self.reason = reason


def check_free(config: DictConfig, overrides: Sequence[str]) -> None:
    """Raise UserError for options on the command line that the budget decides, or if there is nothing to solve for."""
    typed = {key_of(text) for text in overrides}
    lines = []
    for kind, number in read_budget(config.budget).items():
        for key in SOLVED[kind]:
            if key in typed:
                lines.append(f"{key}: budget={kind}:{number:g} determines it; leave it out")
    if lines:
        raise UserError(*lines)


def prepare(config: DictConfig) -> None:
    """Set what is known before the data is read: the time limit, and a width that the model's heads can share.

    The width is provisional. Without it a model could be rejected for a width that the user did not choose.
    """
    asked = read_budget(config.budget)
    if not OF_WIDTH.keys().isdisjoint(asked) and "dim" in config.model:
        # A multiple of twice the heads, because rotary positions rotate pairs of a head's values.
        config.model.dim = math.lcm(config.model.dim, 2 * max(config.model.get("num_heads", 1), 1))
    if "flops" in asked or "seconds" in asked:
        config.trainer.max_epochs = None
    if "seconds" in asked:
        config.trainer.max_steps = None
        config.trainer.max_seconds = asked["seconds"]


def solve(config: DictConfig, data: Data, say: Say, *, tolerance: float = TOLERANCE) -> dict[str, float]:
    """Set width and steps in the config and log them. Solving again leaves them unchanged.

    Args:
        config: Config of a run; its budget defines what to solve for.
        data: Data that the run reads.
        say: Called with a line for each result.
        tolerance: Largest accepted relative distance between the request and the nearest choice.

    Returns:
        The value reached, by kind of budget.

    Raises:
        TooCoarse: No choice is close enough.
    """
    asked = read_budget(config.budget)
    reached: dict[str, float] = {}
    for kind in OF_WIDTH.keys() & asked.keys():  # one of them at most
        size = reached[kind] = _solve_width(config, data, kind, asked[kind], tolerance)
        say(f"budget: {kind} {asked[kind]:g}: {_width_words(config)}, {size:,} {OF_WIDTH[kind]}")
    if "flops" in asked:  # after the width, which decides the cost of a token
        flops = reached["flops"] = _solve_steps(config, data, asked["flops"], tolerance)
        say(f"budget: flops {asked['flops']:g}: trainer.max_steps={config.trainer.max_steps}, {flops:.4g} FLOPs")
    return reached


def met(config: DictConfig, reached: Mapping[str, float | None]) -> dict[str, dict[str, float]]:
    """Return the summary entry: value asked, value reached and their relative distance, by kind of budget."""
    entry = {}
    for kind, number in read_budget(config.budget).items():
        value = reached.get(kind)
        if value is not None:
            entry[kind] = {"asked": number, "reached": value, "within": abs(value / number - 1)}
    return entry


def _width_words(config: DictConfig) -> str:
    inner = config.model.get(INNER)
    return f"model.dim={config.model.dim}" + (f", model.{INNER}={inner}" if inner else "")


def _solve_width(config: DictConfig, data: Data, kind: str, number: float, tolerance: float) -> int:
    """Set the width, and if needed the inner width, whose size is nearest to `number`; return that size.

    Args:
        config: As in `solve`.
        data: As in `solve`.
        kind: Key of OF_WIDTH: the size is the count of parameters, or of numbers in the state.
        number: The requested size.
        tolerance: As in `solve`.
    """
    asked = f"budget={kind}:{number:g}"
    if "dim" not in config.model:
        raise UserError(f"{asked}: model={config.model._target_} has no option dim to solve for")
    if kind == "params":
        check_memory(config, asked, number)
    size, inner = _sizes(config, data, kind), config.model.get(INNER)
    grain = _grain(size, config.model.dim)
    dim = grain * closest(lambda times: size(grain * times, inner), number, MAX_WIDTH // grain)
    # Only if the model has this option and the user has not set it.
    if kind == "params" and not _near(size(dim, inner), number) and config.model.get(INNER, 0) is None:
        inner = closest(lambda width: size(dim, width), number, 16 * dim)
    if not _near(size(dim, inner), number, tolerance):
        widths = [width for width in (dim - grain, dim, dim + grain) if 0 < width <= MAX_WIDTH]
        sizes = {width: size(width, config.model.get(INNER)) for width in widths}
        words = _coarse_words(number, sizes, tolerance, OF_WIDTH[kind])
        raise TooCoarse(asked, words, "use one of these values, or a larger one")
    if kind == "state":  # a recurrent model of this width may not fit in memory
        check_memory(config, f"{asked}: model.dim={dim}", _sizes(config, data, "params")(dim, inner))
    config.model.dim = dim
    if inner is not None:
        config.model[INNER] = inner
    return size(dim, inner)


def _sizes(config: DictConfig, data: Data, kind: str) -> Callable[..., int]:
    """Return a function from width and inner width to the size of this kind; it builds models on the meta device."""
    other = config.copy()

    @functools.cache  # the search repeats some widths, and building a model takes a while
    def size(dim: int, inner: int | None = None) -> int:
        other.model.dim = dim
        if INNER in other.model:
            other.model[INNER] = inner
        with on_meta():
            model, task = make_pair(other, data.preprocessor, data.label_counts)
        return count(model) + count(task) if kind == "params" else state_size(model) or 0

    return size


def _grain(size: Callable[..., int], dim: int) -> int:
    """Return the smallest valid width of a model that accepts `dim`; all other valid widths are its multiples."""
    for smaller in range(1, dim):
        with contextlib.suppress(UserError):  # a width that the heads cannot share
            size(smaller)
            return smaller
    return dim


def _coarse_words(number: float, sizes: dict[int, int], tolerance: float, unit: str) -> str:
    """Return the message that no width, of these widths and sizes, is close enough to the request."""
    nearest = heapq.nsmallest(2, sizes, key=lambda dim: abs(sizes[dim] - number))
    words = " and ".join(f"model.dim={dim} makes {sizes[dim]:,} {unit}" for dim in sorted(nearest))
    return f"no width comes within {tolerance * 100:g} %: {words}"


def _solve_steps(config: DictConfig, data: Data, number: float, tolerance: float) -> float:
    """Set the number of optimiser steps whose FLOPs are nearest to `number`; return those FLOPs."""
    plan, each = data.plan("train"), cost_of(config, data).flops_per_token

    def flops(steps: int) -> float:
        return each * plan.tokens_before(steps)

    most = math.ceil(number / each / plan.num_tokens + 1) * plan.steps  # whole epochs, enough and one more
    if most > MAX_STEPS:
        raise UserError(f"budget=flops:{number:g}: takes more than {MAX_STEPS:,} steps; use a smaller budget")
    steps = closest(flops, number, most)
    if not _near(flops(steps), number, tolerance):
        raise TooCoarse(
            f"budget=flops:{number:g}",
            f"no number of steps comes within {tolerance * 100:g} %: {steps} cost {flops(steps):.4g} FLOPs, "
            f"{steps + 1} cost {flops(steps + 1):.4g}",
            "use a larger budget",
        )
    config.trainer.max_steps = steps
    return flops(steps)


def closest(function: Callable[[int], float], number: float, most: int) -> int:
    """Return the argument from 1 to `most` at which a non-decreasing function is nearest to `number`."""
    # The first argument that reaches the number, or `most`; the one before may be nearer.
    first = 1 + bisect.bisect_left(range(1, most), number, key=function)
    return min((max(first - 1, 1), first), key=lambda argument: abs(function(argument) - number))


def _near(value: float, number: float, tolerance: float = TOLERANCE) -> bool:
    return abs(value / number - 1) <= tolerance
