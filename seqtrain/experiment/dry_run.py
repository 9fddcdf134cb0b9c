"""Dry run of a training: its cost, and its duration estimated from the speed of the first steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from seqtrain.distributed.ranks import say
from seqtrain.experiment.start import Request, prepare, read_data
from seqtrain.files.atomic import plain_json
from seqtrain.training.callbacks.signals import Signals

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from seqtrain.config.check import Composed
    from seqtrain.training.cost import Cost
    from seqtrain.training.splits import Data

STEPS = 4  # largest number of trial steps; their median is used, because the first one is slow
MAX_FLOPS = 1.2e12  # of all trial steps: a few seconds on a CPU


def dry_run(composed: Composed, request: Request) -> Cost:
    """Check a training, read its data, try its first steps, and return its cost. Creates no run directory."""
    config = composed.config
    for line in composed.notes:
        say(line)
    for line in prepare(config, request):
        say(line)
    from seqtrain.training.session import cost_of
    from seqtrain.training.trainer import resolve_auto

    resolve_auto(config, say)
    data = read_data(config, say)
    cost = cost_of(config, data)
    if cost.steps is None:  # a time limit decides
        return cost
    steps = min(STEPS, int(MAX_FLOPS / (cost.flops_per_token * cost.tokens_per_step)))
    if config.trainer.devices != 1 or not steps:
        say("seconds are unknown: they are estimated only for small steps on one device")
        return cost
    return replace(cost, tokens_per_second=_speed(config, data, steps))


def _speed(config: DictConfig, data: Data, steps: int) -> float:
    """Return the speed of the first steps of a training, in tokens per second."""
    from seqtrain.experiment import report
    from seqtrain.experiment.learning_rate import few_steps

    with Signals() as signals, few_steps(config, data, steps, signals) as session:
        session.fit(None)
        return report.speed(session.recorder.run, 0.0)


def print_cost(cost: Cost, as_json: bool) -> None:
    """Print the cost of a training."""
    if as_json:
        print(plain_json(cost.record()))
    else:
        print("\n".join(cost.lines()))
