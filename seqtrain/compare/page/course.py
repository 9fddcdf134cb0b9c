"""The course of training and validation of a run: the gap between them, and the loss since the best validation.

Training is measured while the weights change, with dropout and whatever else acts in training alone. So the gap may
be below zero, and it is stated for the same metric only.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from seqtrain.compare.entries import BEST_OF, Mode, number

FEWEST_VALIDATIONS = 3  # of fewer, nothing can be said of how validation went
# Below this part, both of what validation had gained and of its best value, a loss since the best is taken for chance.
NOTICEABLE = 0.05
SIGN: dict[Mode, float] = {"min": 1.0, "max": -1.0}  # times a difference: above zero where it is worse
VALIDATION, TRAIN = "validation/", "train/"


@dataclass
class Course:
    """One metric of a run at each of its validations."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    # The mean of what was recorded in training since the validation before; None where nothing was.
    trained: list[float | None] = field(default_factory=list)


@dataclass(frozen=True)
class Ending:
    """The best and the final validation of a run, with the training value at the same step."""

    validations: int
    final: float
    best: float
    best_step: int
    last_step: int
    lost: float  # by how much the last validation is worse than the best one
    trained: float | None  # the metric in training, since the validation before the last
    gap: float | None  # by how much the last validation is worse than training; None of a run validated only once
    overfits: bool | None  # None where it cannot be told

    def plain(self) -> dict[str, Any]:
        """Return the ending as plain values for JSON."""
        return asdict(self)


def courses(records: Iterable[Mapping[str, Any]]) -> dict[str, Course]:
    """Return the course of each metric that was validated, by its name without the split."""
    found: dict[str, Course] = {}
    training: dict[str, list[float]] = {}  # since the last validation of each metric
    for record in records:
        step = number(record.get("step"))
        if step is None:
            continue
        for key, value in record.items():
            value = number(value)
            if value is None or not math.isfinite(value):
                continue
            if key.startswith(TRAIN):
                training.setdefault(key.removeprefix(TRAIN), []).append(value)
            elif key.startswith(VALIDATION):
                name = key.removeprefix(VALIDATION)
                course = found.setdefault(name, Course())
                course.steps.append(int(step))
                course.values.append(value)
                # Popped: what was trained before this validation says nothing of the next one.
                course.trained.append(mean_of(training.pop(name, [])))
    return found


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean; None if one of the values is not known, or there are no values."""
    known = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return statistics.fmean(known) if known else None


def ending(course: Course | None, mode: Mode) -> Ending | None:
    """Return how a metric ended; None if it was never validated."""
    if course is None or not course.values:
        return None
    sign = SIGN[mode]
    best = BEST_OF[mode](course.values)
    # Of equal validations the first: what came after it gained nothing.
    place = course.values.index(best)
    final, trained = course.values[-1], course.trained[-1]
    gap = None
    # What was trained before the first validation begins with random weights: its mean says nothing of the end.
    if trained is not None and len(course.values) > 1:
        gap = sign * (final - trained)
    return Ending(
        validations=len(course.values),
        final=final,
        best=best,
        best_step=course.steps[place],
        last_step=course.steps[-1],
        lost=sign * (final - best),
        trained=trained,
        gap=gap,
        overfits=_overfits(course, place, sign),
    )


def _overfits(course: Course, place: int, sign: float) -> bool | None:
    """Return True if validation became noticeably worse since its best while training still improved.

    Args:
        course: of one metric.
        place: index of its best validation.
        sign: 1 if less is better, else -1.

    Returns:
        None if there are too few validations, or training is not known.
    """
    values = course.values
    if len(values) < FEWEST_VALIDATIONS:
        return None
    lost = sign * (values[-1] - values[place])
    gained = sign * (values[0] - values[place])
    # Held against both: perplexity gains thousands in its first steps, and accuracy may begin where it ends.
    if lost <= NOTICEABLE * gained and lost <= NOTICEABLE * abs(values[place]):
        return False
    before, after = course.trained[place], course.trained[-1]
    if before is None or after is None:
        return None
    # Where training became worse as well, something else went wrong.
    return sign * (after - before) < 0
