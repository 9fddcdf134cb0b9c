"""How long a learning rate warms up, by the schedule itself: also by one of torch's, and by one of others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch

MOST_STEPS = 200_000  # that are looked at: no warm-up is longer


def warmup_steps(schedule: Any, max_steps: int) -> int:
    """Optimizer steps at the beginning that are taken with a learning rate which has still to rise.

    Args:
        schedule: as the config makes it: a function of the step and of all steps, or one of torch's, that waits for
            its optimizer.
        max_steps: of the whole training.

    Returns:
        The number of the step, from 0, at which the rate is highest before it falls for the first time; 0 where it
        never rises.
    """
    if isinstance(schedule, partial):
        rates = _of_torch(schedule)
    else:
        rates = _of_function(schedule, max_steps)
    warmup, highest = 0, None
    for step, rate in enumerate(islice(rates, min(max_steps, MOST_STEPS))):
        if highest is not None and rate < highest:
            break
        # A rate may also wait between two rises.
        if highest is not None and rate > highest:
            warmup = step
        highest = rate
    return warmup


def _of_function(schedule: Any, max_steps: int) -> Iterator[float]:
    """The factor of the learning rate at each step."""
    for step in range(max_steps):
        yield schedule(step, max_steps)


def _of_torch(schedule: partial[Any]) -> Iterator[float]:
    """The same of a schedule that knows only how to go on, tried on a single weight."""
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
