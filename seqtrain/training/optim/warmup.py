"""Length of a learning rate's warm-up, measured on the schedule itself: seqtrain's, torch's or a user's own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch

MOST_STEPS = 200_000  # that are checked: no warm-up is longer


def warmup_steps(schedule: Any, max_steps: int) -> int:
    """Return the number of optimizer steps before the learning rate reaches its first maximum.

    Args:
        schedule: Schedule as the config makes it: a function of the step and of all steps, or a partial of one of
            torch's that takes the optimizer.
        max_steps: Steps of the whole training.

    Returns:
        The step, from 0, at which the rate is highest before it falls for the first time; 0 if it never rises.
    """
    if isinstance(schedule, partial):
        rates = _of_torch(schedule)
    else:
        rates = _of_function(schedule, max_steps)
    warmup, highest = 0, None
    for step, rate in enumerate(islice(rates, min(max_steps, MOST_STEPS))):
        if highest is not None and rate < highest:
            break
        # A rate may also stay constant between two rises.
        if highest is not None and rate > highest:
            warmup = step
        highest = rate
    return warmup


def _of_function(schedule: Any, max_steps: int) -> Iterator[float]:
    """Yield the factor of the learning rate at each step."""
    for step in range(max_steps):
        yield schedule(step, max_steps)


def _of_torch(schedule: partial[Any]) -> Iterator[float]:
    """Yield the learning rate of one of torch's schedules at each step, measured on a single weight."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=0.5)  # some schedules move the momentum, too
    optimizer.param_groups[0]["initial_lr"] = 1.0  # as the learner leaves its groups
    scheduler = schedule(optimizer)
    optimizer.step()  # torch warns of a schedule that moves before its optimizer
    yield optimizer.param_groups[0]["lr"]
    # Plateau only ever lowers the rate, and asks for a loss.
    while not isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        try:
            scheduler.step()
        except ValueError:  # OneCycleLR knows its last step, and refuses another one
            return
        yield optimizer.param_groups[0]["lr"]
