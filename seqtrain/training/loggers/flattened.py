"""A run's config and figures in the form of loggers: plain names to group by, flat options, and numbers as metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from seqtrain.config.groups import GROUPS, option_name
from seqtrain.config.nodes import flat

OPTIONS = "options"  # key of the nested config: plain names take the keys of its groups
NO_HYPERPARAMETERS = ("logger", "callbacks", "run_dir", "dry_run")  # they say how a run is watched, not what it is
FIRST_WORDS = {"metrics": "final", "best": "best", "baselines": "baselines"}
"""What figures of the summary are called among metrics, where the same names stand for what was measured on the way."""


def chosen(config: dict[str, Any]) -> dict[str, str]:
    """Return the choice of each group of the config, such as `model: lstm`. The config may be untrusted."""
    names = {}
    for group in GROUPS:
        node = config.get(group)
        # `seqtrain sync` reads the config of a run, which may be untrusted.
        if isinstance(node, dict) and isinstance(node.get("_target_"), str):
            names[group] = option_name(node["_target_"])
    return names


def grouped(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config with a plain name for each group, and all of its options nested below OPTIONS."""
    # W&B advises against dots in keys, and cannot filter by them: options stay nested.
    plain = {key: value for key, value in config.items() if not isinstance(value, dict)}
    return {**plain, **chosen(config), OPTIONS: config}


def hyperparameters(config: dict[str, Any]) -> dict[str, str | bool | int | float]:
    """Return the choice of each group and every option that defines the run, by dotted path; other values as text."""
    found: dict[str, str | bool | int | float] = dict(chosen(config))
    for path, value in flat(config):
        words = path.split(".")
        # The plain names replace `_target_`; recommendations of a YAML have become values already.
        if words[0] in NO_HYPERPARAMETERS or any(word.startswith("_") for word in words):
            continue
        found[path] = value if isinstance(value, str | bool | int | float) else str(value)
    return found


def figures_as_metrics(figures: dict[str, Any]) -> dict[str, float]:
    """Return numbers of the summary as metrics: final/validation/loss, best/step, run/parameters/total.

    Entries that are not finite numbers are left out: `words_of` yields them.
    """
    return {_metric_name(path): float(value) for path, value in flat(figures) if is_number(value)}


def words_of(figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield path and value, as text, of summary entries that are not metrics."""
    for path, value in flat(figures):
        if not is_number(value):
            yield path, str(value)


def is_number(value: Any) -> bool:
    """Return True if the value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _metric_name(path: str) -> str:
    first, _, rest = path.partition(".")
    if first not in FIRST_WORDS:
        first, rest = "run", path
    return f"{FIRST_WORDS.get(first, first)}/{rest}".replace(".", "/")
