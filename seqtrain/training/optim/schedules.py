"""Learning-rate schedules: pure functions from the step and the number of all steps to a factor of the rate."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch


class Schedule(ABC):
    """Linear warm-up over `warmup` steps, then the schedule of the subclass."""

    def __init__(self, *, warmup: int) -> None:
        if warmup < 0:
            raise ValueError(f"warmup={warmup} must be 0 or more steps")
        self.warmup = warmup

    def __call__(self, step: int, max_steps: int) -> float:
        """Return the factor of the learning rate at `step` (from 0) of `max_steps`."""
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)  # never 0: the first step would change nothing
        return self.after(step, max_steps)

    @abstractmethod
    def after(self, step: int, max_steps: int) -> float:
        """Return the factor after warm-up."""


class Constant(Schedule):
    """Constant learning rate."""

    def after(self, step: int, max_steps: int) -> float:
        return 1.0


class InverseSqrt(Schedule):
    """1/sqrt(step), continuous at the end of warm-up (Vaswani et al. 2017)."""

    def after(self, step: int, max_steps: int) -> float:
        return math.sqrt((self.warmup + 1) / (step + 1))


class Cosine(Schedule):
    """Half a cosine from 1 to `final` at the last step (Loshchilov & Hutter 2017)."""

    def __init__(self, *, warmup: int, final: float) -> None:
        super().__init__(warmup=warmup)
        _check_fraction("final", final)
        self.final = final

    def after(self, step: int, max_steps: int) -> float:
        # The last step is number max_steps - 1; a run with fewer steps than its warm-up must not divide by 0.
        progress = (step - self.warmup) / max(max_steps - 1 - self.warmup, 1)
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * min(progress, 1.0))) / 2


class WarmupStableDecay(Schedule):
    """Constant until the last `decay` of all steps, then linear to `final` (Hu et al. 2024, arXiv 2404.06395)."""

    def __init__(self, *, warmup: int, decay: float, final: float) -> None:
        super().__init__(warmup=warmup)
        _check_fraction("decay", decay)
        _check_fraction("final", final)
        self.decay = decay
        self.final = final

    def after(self, step: int, max_steps: int) -> float:
        length = max(self.decay * max_steps, 1.0)  # steps that the decay takes, not always a whole number
        progress = min(max((step + 1 - (max_steps - length)) / length, 0.0), 1.0)
        return 1 - (1 - self.final) * progress


def _check_fraction(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name}={value} must lie between 0 and 1")


MOST_STEPS = 200_000  # checked for a warm-up; none is longer


def warmup_steps(schedule: Any, max_steps: int) -> int:
    """Return the number of optimizer steps before the learning rate reaches its first maximum.

    Args:
        schedule: Schedule of the config: a function of the step and the number of steps, or a partial of a torch
            schedule that takes the optimizer.
        max_steps: Steps of the whole training.

    Returns:
        The step, from 0, at which the rate is highest before it falls for the first time; 0 if it never rises.
    """
    if isinstance(schedule, partial):
        rates = _rates_of_torch(schedule)
    else:
        rates = (schedule(step, max_steps) for step in range(max_steps))
    warmup, highest = 0, None
    for step, rate in enumerate(islice(rates, min(max_steps, MOST_STEPS))):
        if highest is not None and rate < highest:
            break
        # A rate may also stay constant between two rises.
        if highest is not None and rate > highest:
            warmup = step
        highest = rate
    return warmup


def _rates_of_torch(schedule: partial[Any]) -> Iterator[float]:
    """Yield the learning rate of one of torch's schedules at each step, measured on a single weight."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=0.5)  # some schedules change the momentum, too
    optimizer.param_groups[0]["initial_lr"] = 1.0  # as the learner leaves its groups
    scheduler = schedule(optimizer)
    optimizer.step()  # torch warns if a schedule steps before its optimizer
    yield optimizer.param_groups[0]["lr"]
    # A plateau schedule only lowers the rate, and needs a loss.
    while not isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        try:
            scheduler.step()
        except ValueError:  # OneCycleLR knows its last step, and refuses another one
            return
        yield optimizer.param_groups[0]["lr"]
