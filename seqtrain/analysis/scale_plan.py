"""Plan of a ladder before any training: the size and the real cost for each model and budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from seqtrain.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from seqtrain.training.splits import Data

FLOPS_PER_WEIGHT_AND_TOKEN = 6  # two forward, four backward
NEAREST = 0.1  # relative tolerance of a rung's size: widths are integers, so small sizes cannot be met exactly
MIN_RATIO = 1.1  # smallest ratio of neighbouring rungs: the law would treat closer ones as one rung


@dataclass(frozen=True)
class Planned:
    """A planned rung of one model."""

    asked_flops: float
    asked_parameters: float
    flops: float  # actual cost
    parameters: int
    dim: int
    budget: str  # the override that gives this rung

    @property
    def is_near(self) -> bool:
        """True if the model has the size asked for, within the tolerance of every budget."""
        from seqtrain.training.budget import TOLERANCE

        return abs(self.parameters / self.asked_parameters - 1) <= TOLERANCE


class _Reader(NamedTuple):
    """A model with its checked config and the data it will read."""

    model: str
    config: DictConfig
    data: Data


def plan(
    models: Sequence[str], others: Sequence[str], budgets: Sequence[float], tokens_per_parameter: float
) -> dict[str, list[Planned]]:
    """Check every model with its task, and solve for the size of each of its rungs.

    Args:
        models: Names, as in `model=`.
        others: Overrides of all of them.
        budgets: FLOPs of the rungs in ascending order; the last one is held back.
        tokens_per_parameter: Training tokens for each parameter, which divides a budget.

    Returns:
        The rungs of each model, in the order of the budgets.

    Raises:
        UserError: If a training would be refused, or a rung is too small.
    """
    from seqtrain.training.data import make_data

    configs = {model: _checked(model, others) for model in models}  # all of them before data is read
    readers = []
    for model, config in configs.items():
        readers.append(_Reader(model, config, make_data(config, ("train", "validation"), _silent)))
    return _solve_all(readers, budgets, tokens_per_parameter)


def _silent(line: str) -> None:
    """Ignore a line: each training prints it again."""


def _checked(model: str, others: Sequence[str]) -> DictConfig:
    """Return the config of a model's rungs, without a budget; raise UserError for faults known before data is read."""
    from seqtrain.config import check
    from seqtrain.experiment.start import Request, prepare

    # A placeholder budget, so that the config is prepared to be solved.
    words = [f"model={model}", "budget=[params:1e6,flops:1e12]", *others]
    composed = check.compose(words, ())
    prepare(composed.config, Request(words))
    return composed.config


def _solve_all(
    readers: Sequence[_Reader], budgets: Sequence[float], tokens_per_parameter: float
) -> dict[str, list[Planned]]:
    """Return the rungs of every model; raise UserError if one is too small."""
    found = {}
    for reader in readers:
        rungs = [_solve(reader, flops, tokens_per_parameter) for flops in budgets]
        for below, rung in pairwise(rungs):
            if rung.flops < MIN_RATIO * below.flops:
                raise UserError(
                    f"--flops: {below.asked_flops:g} and {rung.asked_flops:g} are too close to fit a law; give budgets "
                    f"at least {MIN_RATIO:g} times apart, better twice"
                )
        found[reader.model] = rungs
    return found


def _solve(reader: _Reader, flops: float, tokens_per_parameter: float) -> Planned:
    """Return the rung whose number of parameters is nearest to what the budget buys.

    Args:
        reader: The model with its data.
        flops: The budget.
        tokens_per_parameter: Training tokens for each parameter.

    Raises:
        UserError: If no width comes near.
    """
    from seqtrain.training import budget

    # C = 6 N D with D = R N, so N = sqrt(C / (6 R)).
    parameters = math.sqrt(flops / (FLOPS_PER_WEIGHT_AND_TOKEN * tokens_per_parameter))
    words = [f"params:{parameters:.4g}", f"flops:{flops:g}"]
    config = reader.config.copy()
    config.budget = words
    try:
        reached = budget.solve(config, reader.data, _silent, tolerance=NEAREST)
        # If a size is outside the tolerance of a run's budget, request its exact number.
        if abs(reached["params"] / parameters - 1) > budget.TOLERANCE:
            words[0] = f"params:{reached['params']:.0f}"
        if abs(reached["flops"] / flops - 1) > budget.TOLERANCE:
            words[1] = f"flops:{reached['flops']:.9g}"
        config = reader.config.copy()
        config.budget = words
        reached = budget.solve(config, reader.data, _silent)  # as the training will
    except budget.TooCoarse as error:
        raise UserError(
            f"--flops {flops:g} is too small for model={reader.model}: {error.reason}; give larger budgets"
        ) from None
    return Planned(
        asked_flops=flops,
        asked_parameters=parameters,
        flops=reached["flops"],
        parameters=int(reached["params"]),
        dim=config.model.dim,
        budget=f"budget=[{','.join(words)}]",
    )


def size_words(model: str, rungs: Sequence[Planned]) -> str | None:
    """Return a line on the rungs whose size differs from what their budgets buy, or None if there are none."""
    words = []
    for rung in rungs:
        if not rung.is_near:
            words.append(
                f"at {rung.asked_flops:g} FLOPs {rung.parameters:,} parameters (model.dim={rung.dim}) for "
                f"{rung.asked_parameters:,.0f}"
            )
    if not words:
        return None
    return (
        f"{model}: no width comes within 1 % of some rungs, so the nearest is used: {'; '.join(words)}; the law is "
        "fitted to the actual FLOPs of each"
    )
