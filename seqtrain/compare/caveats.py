"""Caveats on the variants of a verdict: settings that differ, and runs that were folded."""

from __future__ import annotations

from collections.abc import Sequence

from seqtrain.compare.by import COMMIT, by_caveats
from seqtrain.compare.entries import Axis
from seqtrain.compare.names import differences_line
from seqtrain.compare.replicates import replicate_caveats, unlike_codes
from seqtrain.compare.variants import Variant

UNLIKE_STEPS = 0.1  # of the larger of two: batches of examples are never quite equal


def caveats(
    ranked: Sequence[Variant], keys: Sequence[str], parts: Sequence[Sequence[Variant]], x: Axis | None = None
) -> list[str]:
    """A sentence each, on the variants of a group.

    Args:
        keys: those of `--by`.
        parts: the variants that were held against each other, as `by.strata` gives them.
        x: the axis at whose equal values they were compared.
    """
    entries, settings = [], []
    for variant in ranked:
        entries.append(variant.entries[0])
        settings.append(variant.settings)
    line = differences_line(entries, settings, keys)
    found = [*filter(None, [line]), *by_caveats(keys, parts), *replicate_caveats(ranked), *_of_axis(ranked, x)]
    return found if COMMIT in keys else found + unlike_codes(ranked)


def _of_axis(ranked: Sequence[Variant], x: Axis | None) -> list[str]:
    """A sentence where equal values of an axis are no equal amount of text."""
    counted = [variant for variant in ranked if variant.counted]
    if x == "tokens":
        tokenizers = {str(variant.counted[0].summary.hashes.get("tokenizer")) for variant in counted}
        if len(tokenizers) > 1:
            return [
                f"--x tokens: tokens of {len(tokenizers)} tokenizers are unlike pieces, so as many of them are not as "
                "much text; --x flops and seconds are the same for all"
            ]
    if x == "steps":
        sizes = [variant.costs["tokens"] / variant.costs["steps"] for variant in counted if variant.costs.get("steps")]
        if sizes and max(sizes) - min(sizes) > UNLIKE_STEPS * max(sizes):
            return [
                f"--x steps: a step trains on {min(sizes):,.0f} to {max(sizes):,.0f} tokens, so as many of them are "
                "not as much text"
            ]
    return []
