"""Baselines of runs: simple predictors that were measured on the same text."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seqtrain.compare.entries import Entry, Mode, number
from seqtrain.compare.settings import deciding
from seqtrain.terminal import printable


def baselines(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the baselines that the runs of a group have kept, each once.

    Returns:
        `name`, what it `knows`, `values` by metric, and the number of `runs` that have it. Runs with other training
        text have other figures of a baseline, so they get a row of their own. For folds, the values are means.
    """
    found = _over_folds(entries)
    for entry in entries:
        if entry.fold is not None:
            continue
        words = entry.summary.baseline_words
        for name, values in kept_baselines(entry):
            # By its numbers, too: the same name may stand for another thing.
            key = f"{name} {sorted(values.items())}"
            if key not in found:
                found[key] = {
                    "name": printable(name.replace("_", " ")),
                    "knows": _knows(words.get(name)),
                    "values": values,
                    "runs": 0,
                }
            found[key]["runs"] += 1
    return list(found.values())


def _over_folds(entries: Sequence[Entry]) -> dict[str, dict[str, Any]]:
    """The baselines of cross-validation: one of each variant, since another one may read other tokens."""
    alike: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.fold is not None and entry.finished:
            alike.setdefault(repr(sorted(deciding(entry).items(), key=repr)), []).append(entry)
    found: dict[str, dict[str, Any]] = {}
    for runs in alike.values():
        of_names: dict[str, list[dict[str, float]]] = {}
        for entry in runs:
            for name, values in kept_baselines(entry):
                of_names.setdefault(name, []).append(values)
        for name, measured in of_names.items():
            # A mean over some of the folds would stand beside a figure of all of them.
            if len(measured) < len(runs):
                continue
            values = _means(measured)
            one = found.setdefault(
                f"{name} {sorted(values.items())}",
                {
                    "name": printable(name.replace("_", " ")),
                    "knows": _knows(runs[0].summary.baseline_words.get(name)),
                    "values": values,
                    "runs": 0,
                },
            )
            one["runs"] += len(runs)
    return found


def _means(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric that all of them have."""
    found = {}
    for metric in measured[0]:
        values = [one[metric] for one in measured if metric in one]
        if len(values) == len(measured):
            found[metric] = statistics.fmean(values)
    return found


def standing(value: float | None, entries: Sequence[Entry], metric: str, mode: Mode) -> tuple[list[str], list[str]]:
    """The baselines that a value of a metric is better than, and those that it is not, such as `bigram (2.51)`."""
    better, rest = [], []
    for baseline in baselines(entries):
        known = baseline["values"].get(metric)
        if known is None or value is None:
            continue
        words = f"{baseline['name']} ({known:.4g})"
        # An equal number is no better: who always gives one answer has the accuracy of that answer.
        is_better = value < known
        if mode == "max":
            is_better = value > known
        if is_better:
            better.append(words)
        else:
            rest.append(words)
    return better, rest


def standing_words(value: float | None, entries: Sequence[Entry], metric: str, mode: Mode) -> str:
    """The same as a clause; empty where no baseline is kept."""
    better, rest = standing(value, entries, metric, mode)
    parts = []
    if rest:
        parts.append(f"not better than {', '.join(rest)}")
    if better:
        parts.append(f"better than {', '.join(better)}")
    return "; ".join(parts)


def _knows(said: Any) -> str:
    """Return the text on what a baseline knows; empty if the task does not say."""
    if not isinstance(said, Mapping) or not isinstance(said.get("knows"), str):
        return ""
    return printable(said["knows"])


def kept_baselines(entry: Entry) -> Iterable[tuple[str, dict[str, float]]]:
    """Yield the name of each baseline of the compared split, and its numbers; the file is untrusted."""
    kept: Any = entry.summary.baselines.get("validation")
    if entry.evaluation is not None:
        kept = entry.evaluation.baselines
    if not isinstance(kept, Mapping):
        return
    for name, values in kept.items():
        if not isinstance(values, Mapping):
            continue
        numbers = {}
        for metric, value in values.items():
            known = number(value)
            if known is not None and known == known:  # not nan
                numbers[str(metric)] = known
        if numbers:
            yield str(name), numbers
