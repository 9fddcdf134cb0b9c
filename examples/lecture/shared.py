"""Common parts of the demonstrations: options, trainings, statistics over seeds, and how a result is shown."""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import stdtrit

import seqtrain
from seqtrain.analysis.measured import COLORS, new_figure, save
from seqtrain.training.model_and_task import make_pair

__all__ = [
    "COLORS",
    "Bench",
    "Difference",
    "Numbers",
    "Result",
    "dots",
    "fmean",
    "grid",
    "main",
    "new_figure",
    "paired",
    "spread",
    "untrained",
]

PRECISION = "trainer.precision=32-true"  # a verdict must not depend on whether the machine has bf16 units
LEVEL = 0.95  # of the intervals; for several reported together, of all of them at once

Row = dict[str, str | float]
Numbers = dict[str, list[float]]
"""A number for each seed, by variant."""


class Result(NamedTuple):
    """The result of a demonstration: numbers, and their verdict on the claim."""

    rows: list[Row]  # a table: the same columns in each row
    verdict: str  # one or two sentences, derived from the numbers
    holds: bool | None  # True if the claim held here; None: the numbers do not decide
    figure: Figure


@dataclass(frozen=True)
class Bench:
    """The folder of a demonstration, and the number of seeds: each training is repeated with seeds 1, 2, ..."""

    out: Path
    seeds: int = 1

    def train(self, name: str, *overrides: str) -> seqtrain.Trained:
        """Train a run, or reuse or resume the run of an earlier call; open its last weights.

        The best weights are not used: they were chosen on validation, so their results on it would be too good.
        """
        path = self.out / "runs" / name
        words = [*overrides, PRECISION, f"run_dir={path}", "logger=none"]
        if not (path / "config.yaml").exists():
            seqtrain.train(*words)
        file = path / "summary.json"  # missing if an earlier call was killed early
        summary = json.loads(file.read_text("utf-8")) if file.exists() else {}
        if summary.get("command", words)[-len(words) :] != words:
            raise seqtrain.UserError(f"{path}: trained with other options; remove it, or give another --out")
        if summary.get("status") != "finished":
            subprocess.run([sys.executable, "-m", "seqtrain", "resume", path], check=True, stdout=sys.stderr)
        return seqtrain.load(path, checkpoint="last")


def grid(
    bench: Bench,
    variants: Mapping[str, Sequence[str]],
    common: Sequence[str],
    measure: Callable[[seqtrain.Trained], float],
) -> tuple[list[Row], Numbers]:
    """Train each variant with each seed; return a row for each variant, and its numbers.

    Args:
        bench: Folder of the runs, and number of seeds.
        variants: Overrides of each variant, by its name.
        common: Overrides of all variants.
        measure: Returns the number of a run.
    """
    rows: list[Row] = []
    numbers: Numbers = {}
    for name, words in variants.items():
        folder = re.sub(r"\W+", "_", name)
        seeds = range(1, bench.seeds + 1)
        runs = [bench.train(f"{folder}-{seed}", *common, *words, f"seed={seed}") for seed in seeds]
        numbers[name] = list(map(measure, runs))
        row: Row = {"variant": name, "parameters": f"{runs[0].summary['parameters']['total']:,}"}
        row |= {"mean": fmean(numbers[name]), "sd": stdev(numbers[name]) if bench.seeds > 1 else "-"}
        rows.append(row | {"seconds": fmean(run.summary["seconds"] for run in runs)})
    return rows, numbers


def dots(axes: Axes, numbers: Numbers) -> None:
    """Draw a row for each variant, with a dot for each seed; the first variant is on top."""
    for height, (color, values) in enumerate(zip(COLORS * 2, numbers.values(), strict=False)):
        axes.plot(values, [height] * len(values), "o", color=color, alpha=0.7)
    axes.set(yticks=range(len(numbers)), yticklabels=list(numbers), ylim=(len(numbers) - 0.5, -0.5))


def untrained(run: seqtrain.Trained) -> seqtrain.Trained:
    """Return a run with the initial weights of its seed: the reference for an effect of training."""
    model, task = make_pair(run.opened.config, run.opened.preprocessor)
    return seqtrain.Trained(replace(run.opened, model=model.eval(), task=task.eval(), step=0))


def main(name: str, claim: str, run: Callable[[Bench], Result]) -> None:
    """Run a demonstration from the command line: print its claim, table and verdict, and save them."""
    parser = argparse.ArgumentParser(
        description=f"Test a claim by an experiment: {claim}",
        epilog="Runs are kept in FOLDER/NAME/runs and reused by a second call.",
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="repeat with seeds 1 to N (default: 1)")
    parser.add_argument(
        "--out", type=Path, default=Path("outputs/demo"), metavar="FOLDER", help="(default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error(f"--seeds {options.seeds}: expected at least 1")
    folder = options.out / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        rows, verdict, holds, figure = run(Bench(folder, options.seeds))
    except (seqtrain.UserError, OSError) as error:
        parser.exit(2, f"error: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, "interrupted; the same command continues\n")
    save(figure, folder / f"{name}.png")
    record = {"name": name, "claim": claim, "seeds": options.seeds, "rows": rows, "verdict": verdict, "holds": holds}
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print(json.dumps(record) if options.json else "\n".join([f"claim: {claim}", "", *table(rows), "", verdict]))
    print(f"written: {folder / name}.json and .png", file=sys.stderr)


def table(rows: Sequence[Row]) -> list[str]:
    """Format the rows as text, each column as wide as its widest cell."""
    cells = [list(rows[0])]
    for row in rows:
        cells.append([f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def spread(values: Sequence[float]) -> str:
    """Format the mean over seeds, followed by the standard deviation if there is one: `0.512 (0.004)`."""
    return f"{fmean(values):.3f}" if len(values) < 2 else f"{fmean(values):.3f} ({stdev(values):.3f})"


class Difference(NamedTuple):
    """The mean difference of two models, seed by seed, with its interval, or the reason why there is none."""

    mean: float
    interval: tuple[float, float] | None
    about: str  # text with the interval, or the reason

    @property
    def sign(self) -> int | None:
        """1 or -1 if the interval shows that the first model's numbers are above or below; None if it contains 0."""
        if self.interval is None or self.interval[0] <= 0 <= self.interval[1]:
            return None
        return 1 if self.interval[0] > 0 else -1

    def words(self, shown: Callable[[float], str] = "{:+.3f}".format) -> str:
        """Format the difference with its interval, or with the reason why there is none."""
        return f"{shown(self.mean)} ({self.about.format(*map(shown, self.interval or ()))})"


def paired(first: Sequence[float], second: Sequence[float], comparisons: int = 1) -> Difference:
    """Compare the numbers of two models seed by seed, by Student's t interval (Student 1908).

    Runs of the same seed read the same data in the same order: so the difference cancels what both have in common.
    One seed, numbers that are not finite, and differences that no seed changes do not show the effect of chance.

    Args:
        first: A number of the first model for each seed.
        second: A number of the second model for each seed, in the same order.
        comparisons: Number of differences that are judged together; the more, the wider each interval (Bonferroni).
    """
    differences = [left - right for left, right in zip(first, second, strict=True)]
    if not all(map(math.isfinite, differences)):
        return Difference(math.nan, None, "a number is not finite, no verdict")
    mean, count = fmean(differences), len(differences)
    if count == 1:
        return Difference(mean, None, "one seed, no verdict")
    if (deviation := stdev(differences)) == 0:
        return Difference(mean, None, "the same for each seed, no verdict")
    half = float(stdtrit(count - 1, 1 - (1 - LEVEL) / comparisons / 2)) * deviation / math.sqrt(count)
    together = "" if comparisons == 1 else f" of {comparisons} comparisons at once"
    about = f"{LEVEL:.0%} interval{together} {{}} to {{}}, {count} seeds".replace("%", " %")
    return Difference(mean, (mean - half, mean + half), about)
