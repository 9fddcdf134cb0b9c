"""The course of a run: its progress, the gap between training and validation, and the loss since the best validation.

Training is measured while the weights change, with dropout and whatever else is active only in training. So the gap may
be below zero, and it is given only for the same metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seqtrain.compare.entries import BEST_OF, Entry, Mode, mean_of, number
from seqtrain.compare.filters import value
from seqtrain.terminal import pasted

FEWEST_VALIDATIONS = 3  # with fewer, overfitting is unknown
# A loss since the best validation is noticeable above this part of the total gain, or of the best value.
NOTICEABLE = 0.05
SIGN: dict[Mode, float] = {"min": 1.0, "max": -1.0}  # factor of a difference: then above zero means worse
VALIDATION, TRAIN = "validation/", "train/"
RECENT = 20  # newest records that give the rate: the first steps of a run are slower
RESUMABLE = ("interrupted", "failed", "pruned")  # a refused run has not begun
DIVERGED = "the loss is "  # beginning of the reason of a run whose loss is not a number
MINUTE, HOUR, DAY = 60, 3600, 86_400  # seconds


@dataclass
class Course:
    """One metric of a run at each of its validations."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    # Mean over the training records since the previous validation; None if there are none.
    trained: list[float | None] = field(default_factory=list)


@dataclass(frozen=True)
class Ending:
    """The best and the final validation of a run, with the training value at the same step."""

    validations: int
    final: float
    best: float
    best_step: int
    last_step: int
    lost: float  # how much worse the last validation is than the best one
    trained: float | None  # the metric in training, since the second-last validation
    gap: float | None  # how much worse the last validation is than training; None if there is only one validation
    overfits: bool | None  # None if unknown


Endings = Mapping[int, Ending | None]  # by the id of an entry


def courses(records: Iterable[Mapping[str, Any]]) -> dict[str, Course]:
    """Return the course of each metric that was validated, by its name without the split."""
    found: dict[str, Course] = {}
    training: dict[str, list[float]] = {}  # since the last validation of each metric
    for record in records:
        step = number(record.get("step"))
        if step is None:
            continue
        for key, found_value in record.items():
            recorded = number(found_value)
            if recorded is None:
                continue
            if key.startswith(TRAIN):
                training.setdefault(key.removeprefix(TRAIN), []).append(recorded)
            elif key.startswith(VALIDATION):
                name = key.removeprefix(VALIDATION)
                course = found.setdefault(name, Course())
                course.steps.append(int(step))
                course.values.append(recorded)
                # Popped: training before this validation does not count for the next one.
                course.trained.append(mean_of(training.pop(name, [])))
    return found


def mean_cost(entries: Iterable[Entry], name: str) -> float | None:
    """Return the mean of a cost over runs, such as `seconds`; None if it is unknown for one, or there are no runs."""
    return mean_of(value(entry, name) for entry in entries)


def ending(course: Course | None, mode: Mode) -> Ending | None:
    """Return how a metric ended; None if it was never validated."""
    if course is None or not course.values:
        return None
    sign = SIGN[mode]
    best = BEST_OF[mode](course.values)
    # The first of equal validations: later ones gained nothing.
    place = course.values.index(best)
    final, trained = course.values[-1], course.trained[-1]
    gap = None
    # Before the first validation, training begins with random weights: its mean does not describe the end.
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
        course: the course of one metric.
        place: index of the best validation.
        sign: 1 if less is better, else -1.

    Returns:
        None if there are too few validations, or the training value is unknown.
    """
    values = course.values
    if len(values) < FEWEST_VALIDATIONS:
        return None
    lost = sign * (values[-1] - values[place])
    gained = sign * (values[0] - values[place])
    # Compared with both: perplexity gains thousands in its first steps, and accuracy may hardly change.
    if lost <= NOTICEABLE * gained and lost <= NOTICEABLE * abs(values[place]):
        return False
    before, after = course.trained[place], course.trained[-1]
    if before is None or after is None:
        return None
    # If training became worse as well, the cause is not overfitting.
    return sign * (after - before) < 0


def progress(entry: Entry) -> dict[str, Any] | None:
    """Return the progress of an unfinished run; None if it has finished.

    Returns:
        `step` and the planned number of steps `of`, `share` of its limit (steps or seconds, whichever is nearer),
        `rate` in steps per second and seconds `left`, both for training only and only while it runs, and whether it
        may end earlier (`early`); None for each unknown value.
    """
    if entry.finished:
        return None
    trainer, callbacks = (entry.config.get(name) for name in ("trainer", "callbacks"))
    trainer = trainer if isinstance(trainer, Mapping) else {}  # the file is untrusted
    step, seconds = entry.cost("steps"), entry.cost("seconds")
    planned = number(entry.summary.max_steps)
    if planned is None:
        planned = number(trainer.get("max_steps"))
    allowed = number(trainer.get("max_seconds"))
    rate = None
    if entry.status == "running":  # a stopped run has no time left to estimate
        rate = _rate(entry)
    shares, left = [], []
    if step is not None and planned:
        shares.append(step / planned)
        if rate:
            left.append(max(planned - step, 0.0) / rate)
    if seconds is not None and allowed:
        shares.append(seconds / allowed)
        if rate:
            left.append(max(allowed - seconds, 0.0))
    # The limit that is reached first ends the run.
    share, remaining = max(shares, default=None), min(left, default=None)
    if share is not None:
        share = min(share, 1.0)  # a run may have been extended by a resume that its summary does not know yet
    return {
        "step": step,
        "of": planned,
        "share": share,
        "rate": rate,
        "left": remaining,
        "early": isinstance(callbacks, Mapping) and bool(callbacks.get("early_stopping")),
        "speed": next(reversed(entry.curve("tokens_per_second", "steps")[1]), None),  # as last recorded
    }


def progress_words(entry: Entry) -> str:
    """Return the progress of an unfinished run: step, rate, and the estimated training time that is left."""
    where = progress(entry)
    if where is None or where["step"] is None:
        return ""
    words = [f"step {int(where['step']):,}"]
    if where["of"]:
        words[0] += f" of {int(where['of']):,}"
    if where["share"] is not None:
        words[0] += f" ({where['share']:.0%})"
    if where["rate"]:
        words.append(f"{where['rate']:.3g} steps/s")
    if where["left"] is not None:
        # `of training`, since validations are not included.
        words.append(f"about {duration(where['left'])} of training left")
        if where["early"]:
            words.append("or less by early stopping")
    return ", ".join(words)


def resume_command(entry: Entry) -> str | None:
    """Return the command that resumes a run; None if it cannot be resumed."""
    if entry.status not in RESUMABLE:
        return None
    # A resume repeats the run bit for bit, and so its divergence: only a new run with other settings helps.
    if entry.status == "failed" and entry.reason.startswith(DIVERGED):
        return None
    return pasted("seqtrain", "resume", entry.path, *entry.trust_words)


def _rate(entry: Entry) -> float | None:
    """Return steps per second over the newest records; None if it is unknown."""
    steps, seconds = entry.curve("seconds", "steps")
    steps, seconds = steps[-RECENT:], seconds[-RECENT:]
    if len(steps) < 2 or steps[-1] <= steps[0] or seconds[-1] <= seconds[0]:
        return None
    return (steps[-1] - steps[0]) / (seconds[-1] - seconds[0])


def duration(seconds: float) -> str:
    """Format a time in few words, such as `34 s` or `2.5 h`."""
    for size, unit in ((DAY, "days"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * size:
            return f"{_rounded(seconds / size)} {unit}"
    return f"{_rounded(seconds)} s"


def _rounded(value: float) -> str:
    """Return a time to two digits."""
    if value >= 10:
        return f"{value:.0f}"
    return f"{value:.2g}"
