"""Error and power of the verdict, simulated: `python -m benchmarks.power` writes the table of docs/guarantees.md.

Error: of comparisons in which no variant is better than another, the share in which the best is said to beat one.
Power: of the variants that are worse than the best, by 1 to 12 standard deviations evenly, the share that it is said to
beat. "Before" is Welch's t by Bonferroni over all pairs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from seqtrain.compare.intervals import half_widths
from seqtrain.compare.variants import CONFIDENCE

PAGE = Path(__file__).parent.parent / "docs" / "guarantees.md"
MARKS = ("<!-- power -->", "<!-- /power -->")
VARIANTS = (2, 3, 5, 10, 20, 40)
SEEDS = (2, 3, 5, 10)
WIDE = 5.0


def spreads(kind: str, count: int) -> np.ndarray:
    """The standard deviation of each variant."""
    found = np.ones(count)
    if kind == "one wide":
        found[0] = WIDE
    elif kind == "half wide":
        found[: count // 2] = WIDE
    elif kind == "all but one wide":
        found[1:] = WIDE
    elif kind == "one to three":
        found = np.linspace(1.0, 3.0, count)
    elif kind == "one wild":
        found[0] = 100.0
    return found


SPREADS = ("equal", "one wide", "half wide", "all but one wide", "one to three", "one wild")


def welch_bonferroni(variances: np.ndarray, counts: np.ndarray, best: np.ndarray) -> np.ndarray:
    """The half widths of before."""
    errors = variances / counts
    freedom = counts - 1.0
    place = best[:, None]
    best_error = np.take_along_axis(errors, place, 1)
    both = errors + best_error
    pair = both**2 / (errors**2 / freedom + best_error**2 / freedom[best][:, None])
    return stdtrit(pair, 1 - (1 - CONFIDENCE) / 2 / math.comb(len(counts), 2)) * np.sqrt(both)


Method = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
METHODS: dict[str, Method] = {"now": half_widths, "before": welch_bonferroni}


def claims(
    method: Method, centres: np.ndarray, deviations: np.ndarray, counts: np.ndarray, number: int, seed: int
) -> np.ndarray:
    """Whether the best is said to beat each variant (number, k), in so many comparisons; less is better."""
    rng = np.random.default_rng(seed)
    means = np.empty((number, len(counts)))
    variances = np.empty_like(means)
    for place, count in enumerate(counts):
        values = rng.normal(centres[place], deviations[place], (number, count))
        means[:, place] = values.mean(1)
        variances[:, place] = values.var(1, ddof=1)
    best = means.argmin(1)
    differences = means - np.take_along_axis(means, best[:, None], 1)
    beats = differences > method(variances, counts, best)
    np.put_along_axis(beats, best[:, None], False, 1)
    return beats


def error(method: Method, kind: str, counts: np.ndarray, number: int) -> float:
    """The share of comparisons of equal variants in which something is said to be better."""
    equal = np.zeros(len(counts))
    return float(claims(method, equal, spreads(kind, len(counts)), counts, number, seed=0).any(1).mean())


def power(method: Method, kind: str, counts: np.ndarray, number: int) -> float:
    """The share of worse variants that are said to be worse; of a wild one nothing can be said, so it is the worst."""
    deviations = spreads(kind, len(counts))[::-1]
    centres = np.concatenate([[0.0], np.linspace(1, 12, len(counts) - 1)]) * np.median(deviations)
    return float(claims(method, centres, deviations, counts, number, seed=1).sum(1).mean() / (len(counts) - 1))


def table(number: int) -> list[str]:
    """The table in Markdown: of the error the worst over all spreads, of the power that with equal spreads."""
    lines = [
        "| variants | seeds | error now: equal spreads | worst spreads | error before: worst | power now | before |",
        "|---|---|---|---|---|---|---|",
    ]
    for variants in VARIANTS:
        for seeds in (*SEEDS, "2 to 5"):
            counts = np.array([2 + place * 3 % 4 if seeds == "2 to 5" else seeds for place in range(variants)])
            errors = {
                name: {kind: error(method, kind, counts, number) for kind in SPREADS}
                for name, method in METHODS.items()
            }
            worst = max(errors["now"], key=errors["now"].__getitem__)
            powers = [power(method, "equal", counts, number) for method in METHODS.values()]
            lines.append(
                f"| {variants} | {seeds} | {errors['now']['equal']:.1%} | {errors['now'][worst]:.1%} ({worst}) | "
                f"{max(errors['before'].values()):.1%} | {powers[0]:.0%} | {powers[1]:.0%} |"
            )
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=20_000, help="comparisons a cell")
    lines = table(parser.parse_args().number)
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    PAGE.write_text("\n".join([f"{before}{MARKS[0]}", *lines, f"{MARKS[1]}{after}"]), "utf-8")


if __name__ == "__main__":
    main()
