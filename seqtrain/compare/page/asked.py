"""Values for the page's filter: the same keys and words as in `compare --where`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from seqtrain.compare.entries import Entry
from seqtrain.compare.filters import FIGURES, words
from seqtrain.runs.directory import METRICS


def shared(entries: Sequence[Entry]) -> dict[str, Any]:
    """The settings that every run has, with the same value in all of them."""
    if not entries:
        return {}
    found = {}
    for key, value in entries[0].settings.items():
        if all(key in entry.settings and entry.settings[key] == value for entry in entries):
            found[key] = value
    return found


def known(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return `words`, a map from every word for a key to the whole key, and `figures`, the keys that every run has."""
    return {"words": words(entries), "figures": list(FIGURES)}


def of_runs(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the settings of each run that not all share, its final metrics, and figures that the page lacks."""
    common = shared(entries)
    metrics: dict[str, None] = {}  # each once, in the order of the runs
    for entry in entries:
        metrics |= dict.fromkeys(entry.metrics)
    found = []
    for entry in entries:
        settings = {key: value for key, value in entry.settings.items() if key not in common}
        measured = {name: entry.metric(name) for name in metrics}
        said = {"settings": settings, "metrics": measured, "steps": entry.cost("steps"), "sweep": entry.sweep or None}
        found.append(said | {"when": last_record(entry)})
    return found


def last_record(entry: Entry) -> str:
    """Return the time of the run's last record, to the minute; empty if its record is missing."""
    try:
        changed = (entry.path / METRICS).stat().st_mtime
    except OSError:  # removed meanwhile
        return ""
    return datetime.fromtimestamp(changed).strftime("%Y-%m-%d %H:%M")
