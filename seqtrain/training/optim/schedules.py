"""Learning-rate schedules: pure functions from the step and the number of all steps to a factor of the rate."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod


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
