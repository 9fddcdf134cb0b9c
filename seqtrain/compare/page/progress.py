"""Progress of an unfinished run: its step, its rate, and the command that resumes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqtrain.compare.entries import Entry, number
from seqtrain.compare.page.answers import duration
from seqtrain.terminal import pasted

RECENT = 20  # steps with a record, from which the rate is taken: the first ones of a run are slower
RESUMABLE = ("interrupted", "failed", "pruned")  # a refused run has not begun
DIVERGED = "the loss is "  # how the reason of a run begins whose loss is no number


def progress(entry: Entry) -> dict[str, Any] | None:
    """Return the progress of an unfinished run; None if it has finished.

    Returns:
        `step` and the `of` that it was planned for, `share` of its limit (steps or seconds, whichever is nearer),
        `rate` in steps a second and seconds `left`, both of training alone and only while it runs, and whether it may
        end earlier (`early`); None for each value that is not known.
    """
    if entry.finished:
        return None
    trainer = _trainer(entry)
    step, seconds = entry.cost("steps"), entry.cost("seconds")
    planned = number(entry.summary.max_steps)
    if planned is None:
        planned = number(trainer.get("max_steps"))
    allowed = number(trainer.get("max_seconds"))
    rate = None
    if entry.status == "running":  # of one that stands still there is nothing to wait for
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
    # The limit that is met first ends it.
    share, remaining = max(shares, default=None), min(left, default=None)
    if share is not None:
        share = min(share, 1.0)  # a run may have been extended by a resume that its summary does not know yet
    return {
        "step": step,
        "of": planned,
        "share": share,
        "rate": rate,
        "left": remaining,
        "early": _may_stop_early(entry),
        "speed": _speed(entry),
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
        # Validations are not counted in it, which the words `of training` say.
        words.append(f"about {duration(where['left'])} of training left")
        if where["early"]:
            words.append("or less by early stopping")
    return ", ".join(words)


def resume_command(entry: Entry) -> str | None:
    """Return the command that resumes a run; None if it cannot be resumed."""
    if entry.status not in RESUMABLE:
        return None
    # A resume repeats a run to the bit, and so its loss, too: only a new run with other settings helps.
    if entry.status == "failed" and entry.reason.startswith(DIVERGED):
        return None
    return pasted("seqtrain", "resume", entry.path, *trusted(entry))


def trusted(entry: Entry) -> list[str]:
    """Return the command-line words that trust a run's own code."""
    words = []
    for package in entry.summary.trust:
        words += ["--trust", str(package)]
    return words


def _trainer(entry: Entry) -> Mapping[str, Any]:
    """Return the part of the config that limits a run; empty if an untrusted file has none."""
    found = entry.config.get("trainer")
    return found if isinstance(found, Mapping) else {}


def _may_stop_early(entry: Entry) -> bool:
    callbacks = entry.config.get("callbacks")
    return isinstance(callbacks, Mapping) and bool(callbacks.get("early_stopping"))


def _rate(entry: Entry) -> float | None:
    """Return steps a second over the newest records; None if they do not show it."""
    steps, seconds = entry.curve("seconds", "steps")
    steps, seconds = steps[-RECENT:], seconds[-RECENT:]
    if len(steps) < 2 or steps[-1] <= steps[0] or seconds[-1] <= seconds[0]:
        return None
    return (steps[-1] - steps[0]) / (seconds[-1] - seconds[0])


def _speed(entry: Entry) -> float | None:
    """Return tokens a second, as last recorded."""
    values = entry.curve("tokens_per_second", "steps")[1]
    return values[-1] if values else None
