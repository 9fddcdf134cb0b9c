"""Non-numeric records of validations for the page: samples, confusion counts, attention maps."""

from __future__ import annotations

import base64
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.compare.entries import Entry
from seqtrain.errors import UserError
from seqtrain.files.atomic import exists
from seqtrain.files.checked import check_png, read_checked
from seqtrain.runs.directory import Run
from seqtrain.runs.shown import (
    Confusion,
    Samples,
    read_confusion,
    read_samples,
    steps_with_confusion,
    steps_with_samples,
)

if TYPE_CHECKING:
    import numpy as np

LONGEST_SAMPLE = 1500  # characters shown of a run's samples at one step
LONGEST_CELL = 500  # characters of one column of a sample
MAX_STEPS = 12  # steps whose samples a page has, in addition to each run's newest
MAX_SAMPLE_CHARACTERS = 4_000_000  # per page, before packing
MAX_LABELS = 20  # labels of a confusion matrix that is shown whole
MAX_CONFUSED = 20  # pairs of labels shown for a larger matrix
MAX_PICTURE_BYTES = 250_000  # of a run's attention map
MAX_PICTURES_BYTES = 2_000_000  # per page
MAX_READ = 120  # values before a forecast
MAX_AHEAD = 400  # values of a forecast: the plot has no pixels for more
MAX_FAN_VALUES = 400_000  # per page, before packing
FAN_DIGITS = 4
# Columns with the right answer; the first of several columns is the model's input.
REFERENCES = ("reference", "label")


def samples(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return for each run the number of steps with samples, and samples of some steps, the newest first."""
    steps = []
    for entry in entries:
        steps.append(steps_with_samples(Run(entry.path)))
    wanted = _chosen_steps(set().union(*steps), len(entries))
    found, room = [], MAX_FAN_VALUES
    for entry, own in zip(entries, steps, strict=True):
        kept = []
        for step in sorted(own, reverse=True):
            if step in wanted or step == max(own):
                files = [entry.path / "samples" / f"step-{step:08d}.{ending}" for ending in ("txt", "json")]
                kept.append(_sample(entry.path, step, stamp(*files)))
        kept, room = _bounded(kept, room)
        found.append({"steps": len(own), "kept": kept})
    return found


def confusions(entries: Sequence[Entry]) -> list[dict[str, Any] | None]:
    """Return for each run the counts of its newest validation; with many labels, only the most frequent confusions."""
    found: list[dict[str, Any] | None] = []
    for entry in entries:
        run = Run(entry.path)
        steps = steps_with_confusion(run)
        if not steps:
            found.append(None)
            continue
        try:
            confusion = read_confusion(run, max(steps))
        except (UserError, OSError) as fault:
            found.append({"step": max(steps), "fault": str(fault)})
            continue
        found.append(None if confusion is None else {"step": max(steps), **_counts(confusion)})
    return found


def attention(entries: Sequence[Entry]) -> list[dict[str, str] | None]:
    """Return for each run its attention map as PNG, or the reason why it is left out; None if it drew none."""
    left, found = MAX_PICTURES_BYTES, []
    for entry in entries:
        path = entry.path / "plots" / "attention.png"
        if not exists(path):
            found.append(None)
            continue
        try:
            check_png(path)  # a few bytes may expand to more than fits in memory
            content = read_checked(path, MAX_PICTURE_BYTES)
        except (UserError, OSError) as fault:
            found.append({"fault": str(fault)})
            continue
        if len(content) > left:
            found.append(
                {"fault": f"{path}: left out: the pictures of a page are limited to {MAX_PICTURES_BYTES:,} bytes"}
            )
            continue
        left -= len(content)
        found.append({"png": base64.b64encode(content).decode()})
    return found


def _chosen_steps(steps: set[int], runs: int) -> set[int]:
    """Return steps spread evenly up to the last one, as many as fit on a page with `runs` runs."""
    room = MAX_SAMPLE_CHARACTERS // (LONGEST_SAMPLE * max(runs, 1))
    most = min(MAX_STEPS, max(room, 1))
    ordered = sorted(steps, reverse=True)
    if len(ordered) <= most:
        return steps
    if most == 1:
        return {ordered[0]}
    return {ordered[round(k * (len(ordered) - 1) / (most - 1))] for k in range(most)}


@functools.lru_cache(maxsize=20_000)
def _sample(run: Path, step: int, stamp: tuple[int, ...]) -> dict[str, Any]:
    """Return the samples of one step, or why there are none; cached by `stamp` for a served page."""
    try:
        found = read_samples(Run(run), step)
    except (UserError, OSError) as fault:
        return {"step": step, "fault": str(fault)}
    if found is None:  # removed in the meantime
        return {"step": step, "fault": "removed"}
    return {"step": step, **_columns(found)}


def _columns(found: Samples) -> dict[str, Any]:
    """Return the rows by columns, as many as fit; the text if a run has recorded no columns."""
    table = found.table
    if table is None or not table.columns:
        text = found.text
        return {"text": text[:LONGEST_SAMPLE], "cut": len(text) > LONGEST_SAMPLE}
    answers = [place for place, name in enumerate(table.columns) if place and name in REFERENCES]
    rows, room = [], LONGEST_SAMPLE
    for row in table.rows:
        cells = [cell[:LONGEST_CELL] if isinstance(cell, str) else cell for cell in row]
        room -= sum(len(str(cell)) for cell in cells)
        if rows and room < 0:
            break
        rows.append(cells)
    return {
        **{"columns": table.columns, "rows": rows, "reference": next(iter(answers), None)},
        "given": 0 if len(table.columns) > 1 else None,  # index of the input column
        **{"left_out": len(table.rows) - len(rows), "longest": LONGEST_CELL, "fans": _fans(found, len(rows))},
    }


def stamp(*files: Path) -> tuple[int, ...]:
    """Return a mark that changes with any of the files: their times in nanoseconds and sizes in bytes."""
    found: list[int] = []
    for file in files:
        try:
            state = file.stat()
        except OSError:  # there is none, or it was removed
            continue
        found += [state.st_mtime_ns, state.st_size]
    return tuple(found)


def _counts(confusion: Confusion) -> dict[str, Any]:
    labels, counts = confusion.labels, confusion.counts
    examples = sum(map(sum, counts))
    if len(labels) <= MAX_LABELS:
        return {"labels": labels, "counts": counts, "examples": examples}
    pairs = []
    for true, row in enumerate(counts):
        for taken, count in enumerate(row):
            if true != taken and count > 0:
                pairs.append((count, labels[true], labels[taken], sum(row)))
    pairs.sort(key=lambda pair: -pair[0])
    return {"many": len(labels), "confused": pairs[:MAX_CONFUSED], "examples": examples}


def _fans(found: Samples, rows: int) -> list[dict[str, Any] | None]:
    """Return the forecast plots of the first rows of samples; an empty list if no row has one."""
    if not any(found.fans):
        return []
    made: list[dict[str, Any] | None] = []
    for fan in found.fans[:rows]:
        # Not thinned, which would silently lose spikes of a series.
        if fan is None or len(fan.times) > MAX_AHEAD:
            made.append(None)
            continue
        bands = []
        # The widest first, so that narrower ones are drawn on top.
        for share in sorted(fan.bands, reverse=True):
            low, high = fan.bands[share]
            bands.append([share, _few_digits(low), _few_digits(high)])
        truth = None if fan.truth is None else _few_digits(fan.truth)
        history = _few_digits(fan.history[-MAX_READ:])
        made.append(
            {"title": fan.title, "history": history, "median": _few_digits(fan.median), "truth": truth, "bands": bands}
        )
    return made


def _bounded(kept: Sequence[dict[str, Any]], room: int) -> tuple[list[dict[str, Any]], int]:
    """Return the samples of steps, without plots that do not fit, and the remaining room.

    Args:
        kept: samples of one run, newest first.
        room: number of values that still fit on the page.
    """
    found = []
    for step in kept:
        pictures = [fan for fan in step.get("fans", ()) if fan is not None]
        size = sum(len(fan["history"]) + (2 + 2 * len(fan["bands"])) * len(fan["median"]) for fan in pictures)
        if size > room:
            found.append({**step, "fans": [], "without_fans": True})
            continue
        room -= size
        found.append(step)
    return found, room


def _few_digits(values: np.ndarray) -> list[float | None]:
    """Round the values to the digits that a small plot shows; a missing value is None."""
    found: list[float | None] = []
    for value in values.tolist():
        found.append(None if value != value else float(f"{value:.{FAN_DIGITS}g}"))
    return found
