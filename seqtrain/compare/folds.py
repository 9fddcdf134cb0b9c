"""Cross-validation in a verdict: variants are paired fold by fold, with a correction for the dependence of folds.

Any two folds share most of their training rows, so a plain t-test on their differences is overconfident: it calls one
of two equal learners better far more often than its level allows. The corrected resampled t-test (Nadeau & Bengio 2003,
Machine Learning 52) replaces 1/n, for n folds, by 1/n plus the ratio of tested rows to training rows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from seqtrain.compare.entries import Entry

KEYS = ("data.fold", "data.fold_seed")  # config keys that choose the test rows, and are no part of a variant
CONFIDENCE = 0.95
FEWEST = 2
# Words of a verdict on its interval.
CORRECTED = "corrected for the training rows they share (Nadeau & Bengio 2003)"


class FoldPair(NamedTuple):
    """Two variants compared on their common folds."""

    count: int  # number of common folds
    difference: float  # mean over folds of other - reference
    sd: float  # of the differences
    half: float  # half of the interval, simultaneous over all pairs of variants


def fold_of(config: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """Return a run's test fold as (fold seed, fold number), or None if it has none."""
    data = config.get("data")
    if not isinstance(data, Mapping) or data.get("folds") is None:
        return None
    return data.get("fold_seed"), data.get("fold")


def whole_of(entry: Entry) -> str | None:
    """Return the identity of the set of folds that a run belongs to; None if it has no fold or the set is unknown.

    Folds are compared only within one set.
    """
    kept = entry.summary.data.get("fold")
    if entry.fold is None or not isinstance(kept, Mapping):
        return None
    return f"{kept.get('folds')} folds of {kept.get('hash')}"


def are_folds(variants: Sequence[Any]) -> bool:
    """Return True if all runs that count in these variants are folds."""
    found = [entry.fold is not None for variant in variants for entry in variant.counted]
    return bool(found) and all(found)


def tested_to_trained(entries: Sequence[Entry]) -> float:
    """Return the ratio of a fold's measured rows to its training rows, the largest of these runs."""
    # Folds may differ by a row: the largest ratio gives the wider interval.
    found = []
    for entry in entries:
        kept = entry.summary.data.get("fold")
        sizes = kept if isinstance(kept, Mapping) else {}
        tested, trained = sizes.get(entry.split), sizes.get("train")
        if isinstance(tested, int) and isinstance(trained, int) and trained > 0:
            found.append(tested / trained)
    # Unknown sizes count as equal parts, a ratio of 1, which is conservative.
    return max(found, default=1.0)


def half_width(sd: float, count: int, ratio: float, num_pairs: int = 1) -> float:
    """Return half of the 95 % interval of a mean over folds or seeds, for several pairs at once by Bonferroni's bound.

    Args:
        sd: the standard deviation.
        count: the number of folds or seeds.
        ratio: measured rows to training rows, from `tested_to_trained`; 0 for seeds, which do not share rows.
        num_pairs: the number of intervals that must hold at once.
    """
    from scipy.special import stdtrit

    quantile = float(stdtrit(count - 1, 1 - (1 - CONFIDENCE) / 2 / num_pairs))
    return quantile * sd * math.sqrt(1 / count + ratio)  # the training rows of folds overlap


def fold_pair(reference: Any, other: Any, num_pairs: int) -> FoldPair | None:
    """Compare two variants on their common folds; return None if they have fewer than two."""
    # Only common folds: a fold that only one variant has finished has other rows.
    of_reference = {entry.fold: value for entry, value in zip(reference.counted, reference.values, strict=True)}
    # Differences within a fold cancel how hard the fold is.
    differences, entries = [], []
    for entry, value in zip(other.counted, other.values, strict=True):
        if entry.fold in of_reference:
            differences.append(value - of_reference[entry.fold])
            entries.append(entry)
    count = len(differences)
    # One difference has no spread, so there is no interval.
    if count < FEWEST:
        return None
    sd = statistics.stdev(differences)
    half = half_width(sd, count, tested_to_trained(entries), num_pairs)
    return FoldPair(count, statistics.fmean(differences), sd, half)
