"""Importance of options in the trials of a search, by Optuna's functional ANOVA (Hutter et al. 2014)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from seqtrain.compare.entries import differing
from seqtrain.compare.verdict import Conclusion
from seqtrain.sweeps.folder import Sweep, is_sweep

FEWEST_RUNS = 10  # with fewer, a forest learns the noise
TREES = 64  # Optuna's default
# Optuna's default of 64 takes seconds for hundreds of runs; levels deeper than 8 change shares by 0.01 only.
DEPTH = 8
# The forest also gets columns of random numbers: an option counts if it explains more than twice as much as each of
# them. With 20 runs of pure noise, 4 % of all learning rates still counted.
NUM_RANDOM = 5
ABOVE_CHANCE = 2.0
LEAST_SHARE = 0.02  # smaller shares count as chance, too: if one option explains all, the random columns have 0
MOST_LINES = 8  # options in the terminal
NEEDED = "importance needs optuna and scikit-learn: pip install 'seqtrain[sweep]'"


@dataclass(frozen=True)
class Importance:
    """The importance of one option, over the values that were tried."""

    key: str
    share: float  # share of the variance that the forest has learnt
    by_chance: bool  # True if a random number explains as much
    values: int  # number of different values


@dataclass(frozen=True)
class Importances:
    """The options of a group, the most important first."""

    options: list[Importance] = field(default_factory=list)
    runs: int = 0  # runs that count
    pruned: int = 0  # pruned runs, which do not count
    note: str = ""  # reason for an empty result

    def record(self) -> dict[str, Any]:
        """Return all importances as plain values."""
        return asdict(self)


def importances(found: Conclusion) -> Importances:
    """Return the importance of the options that differ between the trials of a search; empty for other groups."""
    entries = [entry for variant in found.variants for entry in variant.counted]
    values = [value for variant in found.variants for value in variant.values]
    pruned = sum(entry.status == "pruned" for entry in found.group.entries)
    columns: dict[str, tuple[Any, ...]] = {}
    for key in differing(found.group.entries):
        column = [entry.settings[key] for entry in entries if key in entry.settings]
        # An option that only some models have is left out.
        if len(column) == len(entries) and len(set(map(repr, column))) > 1:
            columns[key] = _comparable(column)
    if found.group.refusal or not is_search(found) or not columns or len(set(values)) < 2:
        return Importances([], len(entries), pruned)
    if len(entries) < FEWEST_RUNS:
        note = f"importance of options: at least {FEWEST_RUNS} finished runs are needed, not {len(entries)}"
        return Importances([], len(entries), pruned, note)
    try:
        shares = _shares(tuple(columns.items()), tuple(values))
    except ImportError:
        return Importances([], len(entries), pruned, NEEDED)
    noise = max(LEAST_SHARE, ABOVE_CHANCE * max(shares[name] for name in _random(len(values))))
    options = [Importance(key, shares[key], shares[key] <= noise, len(set(columns[key]))) for key in columns]
    return Importances(sorted(options, key=lambda option: -option.share), len(entries), pruned)


def is_search(found: Conclusion) -> bool:
    """Return True if any of the runs is a trial of a search."""
    folders = {entry.path.resolve().parent for entry in found.group.entries if entry.sweep}
    return any(is_sweep(folder) and Sweep.open(folder).asked.kind == "optuna" for folder in folders)


def text_lines(found: Importances) -> list[str]:
    """Return the terminal's lines on a search: one for each option, the most important first."""
    if not found.options:
        return [found.note] if found.note else []
    # The pruned runs were the bad ones, so the others differ less than all that were tried.
    pruned = f" (not by {found.pruned} that the search pruned)" if found.pruned else ""
    lines = [f"which option mattered, of the values that were tried, by {found.runs} finished runs{pruned}:"]
    for option in found.options[:MOST_LINES]:
        chance = ", no more than chance" if option.by_chance else ""
        values = f"{option.values} value{'s' * (option.values != 1)}"
        lines.append(f"  {option.key}: {option.share:.0%} of the variance (functional ANOVA, {values}){chance}")
    if len(found.options) > MOST_LINES:
        lines.append(f"  and {len(found.options) - MOST_LINES} more: --json has all")
    return lines


@lru_cache(maxsize=100)
def _shares(columns: tuple[tuple[str, tuple[Any, ...]], ...], values: tuple[float, ...]) -> dict[str, float]:
    """Return the share of each option, and of the random numbers; cached, since a served page asks repeatedly.

    Raises:
        ImportError: Optuna or scikit-learn is missing.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    spaces: dict[str, optuna.distributions.BaseDistribution] = {}
    axes: dict[str, Sequence[Any]] = {}
    for name, column in (*columns, *_random(len(values)).items()):
        if isinstance(column[0], str):
            spaces[name] = optuna.distributions.CategoricalDistribution(sorted(set(column)))
            axes[name] = column
        else:
            # Ranks weigh each region by the number of its trials: on its own axis, a learning rate from 0.0001 to
            # 0.1 would be mostly the part above 0.01.
            spaces[name] = optuna.distributions.FloatDistribution(0.0, len(column))
            ranked = sorted(column)
            axes[name] = [float(ranked.index(value)) for value in column]
    study = optuna.create_study()
    for place, value in enumerate(values):
        params = {name: axis[place] for name, axis in axes.items()}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=spaces, value=value))
    found = optuna.importance.FanovaImportanceEvaluator(n_trees=TREES, max_depth=DEPTH, seed=0).evaluate(study)
    return {name: float(share) for name, share in found.items()}


def _random(count: int) -> dict[str, tuple[float, ...]]:
    """Return columns of random numbers, by names that no option has."""
    draw = random.Random(0)
    return {f"random number {number}": tuple(draw.random() for _ in range(count)) for number in range(NUM_RANDOM)}


def _comparable(column: Sequence[Any]) -> tuple[Any, ...]:
    """Return numbers as floats; if one value is not a number (a switch, for example), return all as text."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in column):
        return tuple(map(float, column))
    return tuple(map(repr, column))
