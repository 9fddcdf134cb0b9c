"""What the page draws, as plain numbers: thinned curves."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

MOST_POINTS = 200  # of a curve
TICKS = 20_000  # the clock of a run is drawn to a fraction of its length that no screen shows
OTHERS = ("lr", "gradient_norm", "tokens_per_second")  # drawn beside train/... and validation/...


def thinned(values: Sequence[float], most: int = MOST_POINTS) -> list[int]:
    """Which of the values to draw, at most `most` and in order: the first, the last, and of each stretch its extremes.

    Stretches are equally long, so the smallest and the largest of all are always among them.
    """
    if len(values) <= most:
        return list(range(len(values)))
    stretches = most // 2 - 1
    inner = len(values) - 2
    edges = [1 + stretch * inner // stretches for stretch in range(stretches + 1)]
    kept = {0, len(values) - 1}
    for start, end in pairwise(edges):
        kept.add(min(range(start, end), key=values.__getitem__))
        kept.add(max(range(start, end), key=values.__getitem__))
    return sorted(kept)


def finite(value: Any) -> float | None:
    """The value as a number; None where it is none, or nan or an infinity."""
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:  # a whole number that only a stranger writes
        return None
    return number if math.isfinite(number) else None


def short(value: float) -> float:
    """The number to 5 significant digits."""
    return float(f"{value:.5g}")


@dataclass(frozen=True)
class Curves:
    """The curves of one run: `clock` of the records that any of them needs, and for each metric (records, values).

    Steps, tokens and records are written as differences, which pack well; seconds in units of `tick` seconds.
    """

    steps: list[int]
    tokens: list[int]
    seconds: list[int]
    tick: float
    metrics: dict[str, tuple[list[int], list[float]]]


def curves(records: Iterable[dict[str, Any]]) -> Curves:
    """What is drawn of the records of metrics.jsonl; values that are not finite are left out."""
    rows = [record for record in records if "step" in record]
    found: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for row, record in enumerate(rows):
        for name, value in record.items():
            if _drawn(name) and (number := finite(value)) is not None:
                found[name].append((row, number))
    kept = {}
    for name, points in found.items():
        kept[name] = [points[index] for index in thinned([value for _, value in points])]
    needed = sorted({row for points in kept.values() for row, _ in points})
    place = {row: index for index, row in enumerate(needed)}
    clock = {name: [finite(rows[row].get(name)) or 0.0 for row in needed] for name in ("step", "tokens", "seconds")}
    tick = max(clock["seconds"], default=0.0) / TICKS or 1.0
    return Curves(
        steps=differences([int(step) for step in clock["step"]]),
        tokens=differences([int(tokens) for tokens in clock["tokens"]]),
        seconds=differences([round(seconds / tick) for seconds in clock["seconds"]]),
        tick=tick,
        metrics={
            name: (differences([place[row] for row, _ in points]), [short(value) for _, value in points])
            for name, points in kept.items()
        },
    )


def _drawn(name: str) -> bool:
    return name in OTHERS or name.startswith(("train/", "validation/"))


def differences(numbers: Sequence[int]) -> list[int]:
    """The first number, then what is added from each to the next."""
    return [after - before for before, after in pairwise((0, *numbers))]
