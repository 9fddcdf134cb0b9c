"""Importance of options in runs: epsilon squared of each one alone and, for a search, functional ANOVA."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqtrain.compare import fanova
from seqtrain.compare.entries import Entry, differing
from seqtrain.compare.verdict import Conclusion
from seqtrain.errors import Unavailable
from seqtrain.sweeps.folder import Sweep, is_sweep

MOST_LEVELS, BINS = 6, 4  # a number of more values is cut into bins; colours of the page are cut likewise
LEVEL = 0.05  # of the F test, which all options share
FEWEST_TRIALS = 10  # of a forest: of fewer it learns the noise
# Of the variance of unseen trials: of 10 trials that are noise 5 % of all forests seem to predict 0.13, of 15 0.16.
LEAST_PREDICTED = 0.2
MOST_LINES = 8  # options in the terminal


@dataclass(frozen=True)
class Importance:
    """The importance of one option, over the values that were tried."""

    key: str
    epsilon: float | None  # share of the variance, from 0 to 1; None where it cannot be told
    by_chance: bool | None  # whether chance may explain that share
    fanova: float | None  # share of the forest's variance; None where it cannot be told
    num_values: int
    num_levels: int  # fewer than values, where numbers were cut into bins

    def record(self) -> dict[str, Any]:
        """Return the importance as plain values."""
        return {
            "key": self.key,
            "epsilon": self.epsilon,
            "by_chance": self.by_chance,
            "fanova": self.fanova,
            "values": self.num_values,
            "levels": self.num_levels,
        }


@dataclass(frozen=True)
class Importances:
    """The options of a group, the most important first."""

    options: list[Importance]
    num_runs: int  # that count
    num_pruned: int  # that do not
    predicted: float | None = None  # of the variance of unseen trials, by the forest
    notes: list[str] = field(default_factory=list)  # what could not be told, and why

    def record(self) -> dict[str, Any]:
        """Return all importances as plain values."""
        return {
            "options": list(map(Importance.record, self.options)),
            "runs": self.num_runs,
            "pruned": self.num_pruned,
            "predicted": self.predicted,
            "notes": self.notes,
        }


def is_search(found: Conclusion) -> bool:
    """Return True if any of the runs is a trial of a search."""
    folders = set()
    for entry in found.group.entries:
        if entry.sweep:
            folders.add(entry.path.resolve().parent)
    return any(map(_is_searched, folders))


def importances(found: Conclusion, *, seed: int = 0) -> Importances:
    """Return the options in which the runs of a group differ, the most important first.

    Epsilon squared is reckoned of all groups, functional ANOVA of those that hold trials of a search.

    Args:
        found: a group whose variants have been measured: the values that are compared count here, too.
        seed: of the forest of functional ANOVA.
    """
    entries, values = _measured(found)
    pruned = sum(entry.status == "pruned" for entry in found.group.entries)
    keys = differing(found.group.entries)
    if found.group.refusal or not keys:
        return Importances([], len(entries), pruned)
    notes: list[str] = []
    shares: dict[str, float] = {}
    predicted = None
    if is_search(found):
        forest = _forest(entries, values, keys, seed, notes)
        if forest is not None:
            shares, predicted = forest
    options = []
    for key in keys:
        options.append(_importance(key, entries, values, len(keys), shares.get(key)))
    options.sort(key=_rank, reverse=True)
    return Importances(options, len(entries), pruned, predicted, notes)


def levels(column: Sequence[Any]) -> list[Any]:
    """The values of an option as levels: a number of many values is cut into bins of equally many runs."""
    names = list(map(_text, column))
    if not all(map(_is_number, column)) or len(set(column)) <= MOST_LEVELS:
        return names
    ranked = sorted(column)
    return [ranked.index(value) * BINS // len(ranked) for value in column]


def epsilon_squared(found: Sequence[Any], values: Sequence[float]) -> tuple[float, float] | None:
    """The share of the variance that goes with levels, and the chance of the F test to find as much by luck.

    A one-way ANOVA, corrected for what as many levels would explain by chance (Kelley 1935, "An unbiased correlation
    ratio measure"); below 0 it is 0.

    Args:
        found: the level of each value.
        values: what is to be explained.

    Returns:
        None where no level has two values, where there is one level, or where the values do not differ.
    """
    from scipy.special import fdtrc

    parts: dict[Any, list[float]] = {}
    for level, value in zip(found, values, strict=True):
        parts.setdefault(level, []).append(value)
    free = len(values) - len(parts)
    if free == 0 or len(parts) < 2:
        return None
    total = _squares(values)
    if total == 0:
        return None
    within = sum(map(_squares, parts.values()))
    share = max(0.0, 1 - (within / free) * (len(values) - 1) / total)
    if within == 0:  # every level has one number: no chance is left
        return share, 0.0
    ratio = max(total - within, 0.0) / (len(parts) - 1) / (within / free)
    return share, float(fdtrc(len(parts) - 1, free, ratio))


def text_lines(found: Importances) -> list[str]:
    """Return the terminal's lines on a search: one for each option, the most important first."""
    if not found.options:
        return []
    pruned = ""
    if found.num_pruned:  # they were the bad ones: what is left differs less than what was tried
        pruned = f" (not by {found.num_pruned} that the search pruned)"
    runs = f"{found.num_runs} finished run{'s' * (found.num_runs != 1)}"
    lines = [f"which option mattered, of the values that were tried, by {runs}{pruned}:"]
    for option in found.options[:MOST_LINES]:
        lines.append(f"  {option.key}: {_words(option)}")
    if len(found.options) > MOST_LINES:
        lines.append(f"  and {len(found.options) - MOST_LINES} more: --json has all")
    if found.predicted is not None:
        lines.append(f"  functional ANOVA: a forest that predicts {found.predicted:.0%} of the variance of unseen runs")
    for note in found.notes:
        lines.append(f"  {note}")
    return lines


def _words(option: Importance) -> str:
    """One option in words."""
    num_values = f"{option.num_values} value{'s' * (option.num_values != 1)}"
    if option.epsilon is None:
        words = f"cannot be told from {num_values}"
    else:
        words = f"{option.epsilon:.0%} of the variance (epsilon squared, {num_values})"
        if option.by_chance:
            words += ", not told apart from chance"
    if option.fanova is not None:
        words += f"; {option.fanova:.0%} by functional ANOVA"
    return words


def _measured(found: Conclusion) -> tuple[list[Entry], list[float]]:
    """The runs that count in the comparison, and their values."""
    entries: list[Entry] = []
    values: list[float] = []
    for variant in found.variants:
        entries += variant.counted
        values += variant.values
    return entries, values


def _importance(
    key: str, entries: Sequence[Entry], values: Sequence[float], num_options: int, share: float | None
) -> Importance:
    """One option, over the runs that have it."""
    column, own = [], []
    for entry, value in zip(entries, values, strict=True):
        if key in entry.settings:
            column.append(entry.settings[key])
            own.append(value)
    cut = levels(column)
    found = epsilon_squared(cut, own)
    num_values = len(set(map(_text, column)))
    if found is None:
        return Importance(key, None, None, share, num_values, len(set(cut)))
    # Many options are asked at once, and of twenty one would seem to matter by luck.
    by_chance = found[1] >= LEVEL / num_options
    return Importance(key, found[0], by_chance, share, num_values, len(set(cut)))


def _forest(
    entries: Sequence[Entry], values: Sequence[float], keys: Sequence[str], seed: int, notes: list[str]
) -> fanova.Forest | None:
    """Return the result of functional ANOVA, or None after adding the reason to `notes`."""
    name = "functional ANOVA: cannot be told"
    if len(entries) < FEWEST_TRIALS:
        notes.append(f"{name} from {len(entries)} finished runs; {FEWEST_TRIALS} would be a start")
        return None
    if len(set(values)) < 2:
        notes.append(f"{name}: all runs have the same value")
        return None
    options: dict[str, list[Any]] = {}
    for key in keys:
        column = [entry.settings[key] for entry in entries if key in entry.settings]
        # An option of one model alone says nothing of the others.
        if len(column) == len(entries) and len(set(map(repr, column))) > 1:
            options[key] = column
    if not options:
        notes.append(f"{name}: no option differs that all runs have")
        return None
    try:
        forest = fanova.learn(options, values, seed=seed)
    except Unavailable as fault:
        notes += fault.lines
        return None
    if forest.predicted < LEAST_PREDICTED:
        share = max(forest.predicted, 0.0)
        notes.append(f"{name}: its forest predicts {share:.0%} of the variance of unseen runs, too little to be read")
        return None
    return forest


def _rank(option: Importance) -> list[float]:
    """By epsilon squared, then by functional ANOVA; what cannot be told last."""
    found = []
    for share in (option.epsilon, option.fanova):
        found.append(-1.0 if share is None else share)
    return found


def _text(value: Any) -> str:
    """A value as one text: a list has no place in a set."""
    return json.dumps(value, default=str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _squares(values: Sequence[float]) -> float:
    """The sum of squared distances from the mean."""
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)


def _is_searched(folder: Path) -> bool:
    return is_sweep(folder) and Sweep.open(folder).asked.kind == "optuna"
