"""Leaks in a run's summary: validation text that its weights were trained on.

The summary may be untrusted: entries of another form count as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqtrain.data.leak_kinds import LIMITS, Leak
from seqtrain.runs.summary import Summary

SKETCH = "train.sketch"  # of all text that the weights of a run were trained on
MIN_SAID = 0.01  # share of a split; natural text with a good split has less
# Size of a split compressed by xz given train, relative to its size alone. On twelve data sets of prose, reviews,
# captions, code and made-up sentences it is 0.66 to 0.86; it falls towards 0 if train contains the text.
MIN_XZ_RATIO = 0.5
MAX_XZ_ALONE = 5.0  # bits per byte: above, the text is so short that xz's own header dominates
# Words for places that may contain validation text; init_from includes all earlier parents.
PLACES = {"train": "train too", "init_from": "the training text of init_from"}


def worst(summary: Summary) -> str | None:
    """Return why results on validation do not count; None if they count."""
    for place, leak in _leaks(summary).items():
        if leak is not None and is_grave(leak):
            return in_words("validation", place, leak)
    return None


def worst_kept(split: str, kept: Any, place: str) -> str | None:
    """Return why results on an evaluated split do not count, as `worst` does; None if they count.

    Args:
        split: The split that was evaluated.
        kept: The leak that the evaluation found.
        place: Words for the other place that contains the text.
    """
    leak = _read(kept)
    return None if leak is None or not is_grave(leak) else in_words(split, place, leak)


def notes_kept(split: str, kept: Any, place: str) -> list[str]:
    """Return a line for a smaller share of an evaluated split; arguments are those of `worst_kept`."""
    leak = _read(kept)
    is_noted = leak is not None and leak.share >= MIN_SAID and not is_grave(leak)
    return [in_words(split, place, leak)] if leak is not None and is_noted else []


def place_of_kept(has_parent: bool) -> str:
    """Return the name of the text that a run's sketch covers: it includes the text that the run's parents read."""
    return "train, or the training text of init_from" if has_parent else PLACES["train"]


def notes(summary: Summary) -> list[str]:
    """Return further remarks on the results: smaller shares, and unknown leaks."""
    lines = []
    for place, leak in _leaks(summary).items():
        if leak is None:
            reason = f"{SKETCH} is missing, or its sample has too little to compare"
            lines.append(f"validation: unknown whether it occurs in {PLACES[place]}: {reason}")
        elif leak.share >= MIN_SAID and not is_grave(leak):
            lines.append(in_words("validation", place, leak))
    return lines + _compressed_away(summary)


def is_grave(leak: Leak) -> bool:
    """Return True if so much leaked that the results show memorised text."""
    return leak.share >= LIMITS[leak.kind]


def in_words(split: str, place: str, leak: Leak) -> str:
    """Return a share in one line, such as `validation: 12.0 % of its documents occur in train too`."""
    verb = "occurs" if leak.kind == "text" else "occur"
    return f"{split}: {100 * leak.share:.1f} % of its {leak.kind} {verb} in {PLACES.get(place, place)}"


def _compressed_away(summary: Summary) -> list[str]:
    """Return a line if train helps a compressor with validation more than it does for natural text."""
    baselines = summary.baselines.get("validation")
    alone, given = _bits_per_byte(baselines, "xz"), _bits_per_byte(baselines, "xz_given_train")
    if alone is None or given is None or not 0 < alone <= MAX_XZ_ALONE or given >= MIN_XZ_RATIO * alone:
        return []
    return [
        f"validation: given train, xz needs {given / alone:.2f} of what it needs alone (natural text: 0.66 to 0.86): "
        "much of it may occur in train in similar words"
    ]


def _bits_per_byte(baselines: Any, name: str) -> float | None:
    values = baselines.get(name) if isinstance(baselines, Mapping) else None
    found = values.get("bits_per_byte") if isinstance(values, Mapping) else None
    return found if isinstance(found, int | float) else None


def _leaks(summary: Summary) -> dict[str, Leak | None]:
    """Return the leaks of validation by place; None for an unknown leak."""
    found = summary.leaks.get("validation")
    if not isinstance(found, Mapping):
        return {}
    leaks: dict[str, Leak | None] = {}
    for place in PLACES:
        if place in found:
            leaks[place] = _read(found[place])
    return leaks


def _read(kept: Any) -> Leak | None:
    if not isinstance(kept, Mapping) or kept.get("kind") not in LIMITS:
        return None
    share, asked = kept.get("share"), kept.get("asked")
    if not isinstance(share, int | float) or not isinstance(asked, int):
        return None
    return Leak(float(share), kept["kind"], asked)
