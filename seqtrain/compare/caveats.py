"""What a reader of a verdict must know of its variants: what they differ in, and which runs stand in each."""

from __future__ import annotations

from collections.abc import Sequence

from seqtrain.compare.by import by_caveats
from seqtrain.compare.names import differences_line
from seqtrain.compare.replicates import replicate_caveats
from seqtrain.compare.variants import Variant


def caveats(ranked: Sequence[Variant], keys: Sequence[str], parts: Sequence[Sequence[Variant]]) -> list[str]:
    """A sentence each, on the variants of a group.

    Args:
        keys: those of `--by`.
        parts: the variants that were held against each other, as `by.strata` gives them.
    """
    entries, settings = [], []
    for variant in ranked:
        entries.append(variant.entries[0])
        settings.append(variant.settings)
    line = differences_line(entries, settings, keys)
    differences = [line] if line else []
    return [*differences, *by_caveats(keys, parts), *replicate_caveats(ranked)]
