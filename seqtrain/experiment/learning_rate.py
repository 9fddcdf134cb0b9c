"""The learning rate of a run with optimizer.lr=auto: a range test of 100 steps, before the run's first step."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from seqtrain.errors import NonFinite, UserError
from seqtrain.runs.directory import Run
from seqtrain.training.callbacks.signals import Signals
from seqtrain.training.data import AUTO
from seqtrain.training.session import Session, load_initial_weights, make_session, set_first_weights
from seqtrain.training.splits import Data

STEPS = 100
LOWEST, HIGHEST = 1e-6, 10.0  # rates of the first and the last step
MEMORY = 0.9  # decay of the smoothed loss at each step
STILL = 20  # first steps, whose rates are too small to change the loss: their losses differ only between batches


def resolve_rate(config: DictConfig, data: Data, signals: Signals) -> list[str]:
    """Set `optimizer.lr` by a range test (Smith 2017) if it is auto; return the line that reports it.

    The test trains another instance of the model on the run's initial weights and batches. It has no effect on the run
    itself apart from the rate.

    Args:
        config: Config of the run.
        data: Its data, laid out.
        signals: Signals that ask the training to stop.

    Raises:
        UserError: The loss does not fall clearly at any rate.
    """
    if config.optimizer.get("lr") != AUTO:
        return []
    quiet = dataclasses.replace(data, say=lambda line: None)
    with few_steps(config, quiet, STEPS, signals) as session:
        session.learner.schedule = lambda step, steps: rate(step) / LOWEST
        set_first_weights(config, session, quiet.say)
        if config.init_from is not None:
            load_initial_weights(config, session, quiet.say, parent_hash=None)
        with contextlib.suppress(NonFinite):
            session.fit(None)
        signals.at_once()  # an interrupted training leaves them deferred
        records = session.recorder.run.metrics()
    config.optimizer.lr = halfway([record["train/loss"] for record in records if "train/loss" in record])
    return [f"optimizer.lr {config.optimizer.lr:g}: the rate at half the fall of the loss in {STEPS} rising steps"]


@contextlib.contextmanager
def few_steps(config: DictConfig, data: Data, steps: int, signals: Signals) -> Iterator[Session]:
    """Yield a session that trains the first steps of a run in a temporary folder, and records each of them.

    Args:
        config: Config of the run.
        data: Its data.
        steps: Steps to train. There is no validation, which may be slow.
        signals: Signals that ask the training to stop.
    """
    limits = {"max_steps": steps, "max_epochs": None, "max_seconds": None, "log_every": 1, "validate_every": steps + 1}
    few: Any = OmegaConf.merge(config, {"trainer": {**limits, "profile": "none"}})
    few.logger, few.callbacks = {}, {}
    if few.optimizer.get("lr") == AUTO:
        few.optimizer.lr = LOWEST
    with tempfile.TemporaryDirectory() as folder:
        run, console = Run.create(Path(folder, "run")), Console(quiet=True)
        session = make_session(few, data, run, signals, console, logged_config={})
        session.recorder.validated = steps
        yield session


def rate(step: int) -> float:
    """Return the learning rate of a step of the test, counted from 0."""
    return LOWEST * (HIGHEST / LOWEST) ** (step / (STEPS - 1))


def halfway(losses: Sequence[float]) -> float:
    """Return the rate at which half of the smoothed loss's fall is reached, to two digits.

    The common alternative, the rate of the steepest fall, is dominated by noise between batches.

    Args:
        losses: Loss of each step of the test.

    Raises:
        UserError: The least smoothed loss is not clearly below the first losses.
    """
    smooth = list(itertools.accumulate(losses, lambda mean, loss: MEMORY * mean + (1 - MEMORY) * loss))
    still = losses[:STILL]
    if len(losses) > STILL and min(smooth) < statistics.mean(still) - 2 * statistics.stdev(still):
        middle = (statistics.mean(still) + min(smooth)) / 2
        return float(f"{rate(next(step for step, loss in enumerate(smooth) if step >= STILL and loss <= middle)):.2g}")
    raise UserError("optimizer.lr=auto: the loss does not clearly fall in 100 steps of rising rates; give a number")
