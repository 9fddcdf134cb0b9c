"""How often the gradient was clipped, and by how much: sums over updates, of the norm that clipping computes anyway."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Plain = tuple[int, float, float]
"""Updates, how many of them were clipped, and the sum of norm / limit over those."""


class Clipping:
    """Sums since the last record. The norm is that of all processes, so each has the same sums, in the same order."""

    def __init__(self, updates: int = 0, clipped: float = 0.0, excess: float = 0.0) -> None:
        self.updates = updates
        self.clipped: Tensor | float = clipped
        self.excess: Tensor | float = excess

    def add(self, norm: Tensor, limit: float | None) -> None:
        """Adds one update with a gradient of this norm; without a limit nothing is clipped, and nothing counted.

        A norm that is no number is no clipping: of fp16's scaler, which leaves that update out.
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
        # On a GPU the sums become tensors: to read a number off it would make every step wait.
        ratios = norm.detach().double() / limit
        over = (ratios > 1) & ratios.isfinite()
        self.clipped = self.clipped + over.double()
        self.excess = self.excess + torch.where(over, ratios, torch.zeros_like(ratios))

    def plain(self) -> Plain:
        """The sums as numbers, for a checkpoint; waits for a GPU."""
        return self.updates, float(self.clipped), float(self.excess)

    def measures(self) -> dict[str, float]:
        """What a record says: the share of updates that were clipped, and norm / limit on average over those."""
        updates, clipped, excess = self.plain()
        if not updates:
            return {}
        measures = {"clipped": clipped / updates}
        if clipped:
            measures["clipped_by"] = excess / clipped
        return measures

    @classmethod
    def from_plain(cls, sums: Any) -> Clipping:
        """The sums of a checkpoint; none of a run that began before they were kept."""
        return cls() if sums is None else cls(*sums)


def of_records(records: Sequence[dict[str, Any]], every: int, steps: int) -> dict[str, float]:
    """The share of all updates that were clipped, and by how much on average, from the records of a run.

    Each record stands for `every` updates, so the last ones of a run whose length is no multiple are not in it.
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
