"""Frequency and amount of gradient clipping, summed over updates; clipping computes the norm anyway."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Plain = tuple[int, float, float]
"""Number of updates, number of clipped updates, and sum of norm / limit over the clipped updates."""


class Clipping:
    """Sums since the last record. The norm is that of all processes, so each has the same sums, in the same order."""

    def __init__(self, updates: int = 0, clipped: float = 0.0, excess: float = 0.0) -> None:
        self.updates = updates
        self.clipped: Tensor | float = clipped
        self.excess: Tensor | float = excess

    def add(self, norm: Tensor, limit: float | None) -> None:
        """Add one update with a gradient of this norm. Without a limit, nothing is clipped or counted.

        A norm that is not finite does not count as clipped: the scaler of fp16 skips that update.
        """
        if not limit:
            return
        self.updates += 1
        if norm.device.type == "cpu":
            ratio = norm.item() / limit
            if 1 < ratio < math.inf:
                self.clipped += 1
                self.excess += ratio
            return
        # On a GPU the sums become tensors: reading a number would make every step wait.
        ratios = norm.detach().double() / limit
        over = (ratios > 1) & ratios.isfinite()
        self.clipped = self.clipped + over.double()
        self.excess = self.excess + torch.where(over, ratios, torch.zeros_like(ratios))

    def plain(self) -> Plain:
        """Return the sums as numbers, for a checkpoint. Waits for a GPU."""
        return self.updates, float(self.clipped), float(self.excess)

    def measures(self) -> dict[str, float]:
        """Return the metrics of a record: the share of clipped updates, and their mean norm / limit."""
        updates, clipped, excess = self.plain()
        if not updates:
            return {}
        measures = {"clipped": clipped / updates}
        if clipped:
            measures["clipped_by"] = excess / clipped
        return measures

    @classmethod
    def from_plain(cls, sums: Any) -> Clipping:
        """Return the sums of a checkpoint, or empty ones if its run began before they were kept."""
        return cls() if sums is None else cls(*sums)


def of_records(records: Sequence[dict[str, Any]], every: int, steps: int) -> dict[str, float]:
    """Return the share of all updates that were clipped, and the mean factor, from the records of a run.

    Each record stands for `every` updates. Updates after the last record are not included.

    Args:
        records: Records of the run.
        every: Updates between two records.
        steps: Last step to include.
    """
    clipped, excess, updates = 0.0, 0.0, 0
    for record in records:
        if "clipped" in record and record["step"] <= steps:
            updates += every
            clipped += record["clipped"] * every
            excess += record["clipped"] * every * record.get("clipped_by", 0.0)
    if not updates:
        return {}
    measures = {"share": clipped / updates}
    if clipped:
        measures["by"] = excess / clipped
    return measures
