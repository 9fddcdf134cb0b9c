"""Pictures of forecasts for the page: numbers with few digits, and at most as many as a page may hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from seqtrain.runs.shown import Samples

MAX_READ = 120  # values before a forecast
MAX_AHEAD = 400  # values of a forecast: of more the picture has no pixels
MAX_FAN_VALUES = 400_000  # of a page, before they are packed
DIGITS = 4


def fans(found: Samples, rows: int) -> list[dict[str, Any] | None]:
    """Return the pictures of the first rows of samples; an empty list if no row has one."""
    if not any(found.fans):
        return []
    made: list[dict[str, Any] | None] = []
    for fan in found.fans[:rows]:
        # Thinned out, spikes of a series would be lost without a word.
        if fan is None or len(fan.times) > MAX_AHEAD:
            made.append(None)
            continue
        bands = []
        # The widest first, so that the narrower ones are drawn upon it.
        for share in sorted(fan.bands, reverse=True):
            low, high = fan.bands[share]
            bands.append([share, _plain(low), _plain(high)])
        truth = None if fan.truth is None else _plain(fan.truth)
        history = _plain(fan.history[-MAX_READ:])
        made.append(
            {"title": fan.title, "history": history, "median": _plain(fan.median), "truth": truth, "bands": bands}
        )
    return made


def bounded(kept: Sequence[dict[str, Any]], room: int) -> tuple[list[dict[str, Any]], int]:
    """Return the samples of steps, without pictures once there is no room, and the room that is left.

    Args:
        kept: Of one run, newest first.
        room: Values that the page has room for.
    """
    found = []
    for step in kept:
        size = sum(map(_size, step.get("fans", ())))
        if size > room:
            found.append({**step, "fans": [], "without_fans": True})
            continue
        room -= size
        found.append(step)
    return found, room


def _size(fan: dict[str, Any] | None) -> int:
    """Return the number of values of a picture."""
    if fan is None:
        return 0
    ahead = len(fan["median"])
    return len(fan["history"]) + (2 + 2 * len(fan["bands"])) * ahead


def _plain(values: Float[np.ndarray, " n"]) -> list[float | None]:
    """Few digits, as many as a small picture shows; None where a value is missing."""
    found: list[float | None] = []
    for value in values.tolist():
        found.append(None if value != value else float(f"{value:.{DIGITS}g}"))
    return found
