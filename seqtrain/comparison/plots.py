"""What the page draws, as plain numbers: thinned curves, and how much each option of the configuration matters."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

MOST_POINTS = 200  # of a curve
MOST_LEVELS = 6  # values of a number that are taken as they are; more are put into BINS
BINS = 4
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


def share_of_variance(levels: Sequence[Hashable], values: Sequence[float]) -> float | None:
    """How much of the variance of the values goes with the levels of one option: epsilon squared of a one-way ANOVA.

    From 0 to 1, corrected for what as many levels would explain by chance (Kelley 1935, "An unbiased correlation ratio
    measure"). None where no level has two values, or where the values do not differ.
    """
    groups: defaultdict[Hashable, list[float]] = defaultdict(list)
    for level, value in zip(levels, values, strict=True):
        groups[level].append(value)
    mean = sum(values) / max(len(values), 1)
    total = sum((value - mean) ** 2 for value in values)
    free = len(values) - len(groups)
    if not free or len(groups) < 2 or not total:
        return None
    within = sum((value - sum(group) / len(group)) ** 2 for group in groups.values() for value in group)
    return max(0.0, 1 - (within / free) * (len(values) - 1) / total)


def levels(values: Sequence[Any]) -> list[Hashable]:
    """The values of an option as levels: a number with many values is cut into BINS with equally many runs each."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values) or len(set(numbers)) <= MOST_LEVELS:
        return [str(value) for value in values]
    ranked = sorted(numbers)
    return [ranked.index(number) * BINS // len(ranked) for number in numbers]
