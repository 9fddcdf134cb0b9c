"""Growth of the memory of a training pass with length and width: measured over a grid, compared with theory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from seqtrain.analysis import power_law, timing
from seqtrain.analysis.formula import FILTERS, formula_of
from seqtrain.analysis.power_law import PowerLaw
from seqtrain.analysis.profile import Grid, Make, Size
from seqtrain.analysis.training_memory import OptimizerMaker, attention_kept, training_memory
from seqtrain.training.optim.groups import parameter_groups

WEIGHTS, OPTIMIZER, KEPT, PEAK = "weights", "optimizer", "kept", "peak"
FUSED, MATERIALISED = "attention fused", "attention materialised"
KINDS = {
    WEIGHTS: "weights of the core",
    OPTIMIZER: "optimizer's states",
    KEPT: "kept for backward",
    PEAK: "peak of a pass",
    FUSED: "attention, fused",
    MATERIALISED: "attention, T x T made",
}
"""Each kind of memory in words for a table."""

SAME = 0.01  # within which formula and counter count the same operations
BYTES = 4  # of a number of float32


@dataclass(frozen=True)
class MemoryFit:
    """The growth of the bytes of one kind, with its theoretical exponent."""

    kind: str
    axis: str  # "T" or "d"
    law: PowerLaw
    theory: float | None  # None: two terms of theory are in it, and neither rules

    def record(self) -> dict[str, Any]:
        """Return the fit as JSON values."""
        return {"kind": self.kind, "axis": self.axis, "law": self.law.record(), "theory": self.theory}


@dataclass
class MemoryProfile:
    """The memory of one model over a grid."""

    name: str
    grid: Grid
    device: str
    materialised: bool  # whether its attention makes its products, T x T numbers a head
    core_parameters: dict[int, int]  # by width, as the formula counts them
    cells: dict[Size, dict[str, int]]  # bytes of each kind
    fits: list[MemoryFit]

    def numbers(self) -> dict[str, float]:
        """Return the numbers that a page may quote."""
        found: dict[str, float] = {}
        for fitted in self.fits:
            key = f"{self.name}_memory_{fitted.kind.replace(' ', '_')}_{fitted.axis}"
            found |= {key: fitted.law.exponent, f"{key}_error": fitted.law.error}
        longest = self.grid.along("T")[-1]
        tokens = longest.length * self.grid.batch_of(longest)
        for kind in (KEPT, PEAK):
            found[f"{self.name}_memory_{kind}_per_token"] = self.cells[longest][kind] / tokens
        widest = self.grid.along("d")[-1]
        # A bag of words has no core.
        if parameters := self.core_parameters[widest.dim]:
            # Bytes beside each number of the weights: 8 are Adam's two moments in float32.
            found[f"{self.name}_memory_optimizer_per_parameter"] = self.cells[widest][OPTIMIZER] / parameters
        return found

    def record(self) -> dict[str, Any]:
        """Return the profile as JSON values."""
        cells = []
        for size, found in self.cells.items():
            cells.append({**size._asdict(), "bytes": found})
        return {
            "name": self.name,
            "device": self.device,
            "materialised": self.materialised,
            "core_parameters": self.core_parameters,
            "cells": cells,
            "fits": [fitted.record() for fitted in self.fits],
        }

    def lines(self) -> list[str]:
        """Return the lines to print."""
        words = {(fitted.kind, fitted.axis): fitted.law.words(fitted.axis) for fitted in self.fits}
        theories = {}
        for fitted in self.fits:
            if fitted.theory is not None:
                theories[fitted.kind, fitted.axis] = f"{fitted.axis}^{fitted.theory:g}"
        width = max(map(len, words.values()), default=0)
        lines = [f"{'memory of':22}  {'in T':{width}}  theory  {'in d':{width}}  theory"]
        for kind in dict.fromkeys(fitted.kind for fitted in self.fits):
            line = f"{KINDS[kind]:22}"
            for axis in ("T", "d"):
                line += f"  {words.get((kind, axis), '-'):{width}}  {theories.get((kind, axis), '-'):6}"
            lines.append(line.rstrip())
        longest, widest = self.grid.along("T")[-1], self.grid.along("d")[-1]
        cell, wide = self.cells[longest], self.cells[widest]
        tokens = longest.length * self.grid.batch_of(longest)
        lines.append(
            f"a training pass keeps {cell[KEPT] / tokens:,.0f} bytes a token at T = {longest.length}, d = "
            f"{longest.dim}, with a peak of {cell[PEAK] / tokens:,.0f} ({_seen(self.device)}; without a head)"
        )
        count = self.core_parameters[widest.dim]
        if count:
            lines.append(
                f"at d = {widest.dim} the core weighs {wide[WEIGHTS]:,} bytes (by formula {BYTES * count:,}), and the "
                f"optimizer's states {wide[OPTIMIZER]:,}, {wide[OPTIMIZER] / count:.2f} bytes a parameter (Adam's "
                f"two moments: {2 * BYTES})"
            )
        if self.materialised:
            lines.append(
                "attention makes its products in this pass (as it does on the CPU with dropout), so what is kept "
                "grows with T^1 and T^2 at once and has no theory of one power"
            )
        return lines


def measure_memory(
    name: str,
    make: Make,
    grid: Grid,
    make_optimizer: OptimizerMaker,
    device: torch.device,
) -> MemoryProfile:
    """Measure the memory of one model at all sizes of a grid.

    Args:
        name: Name of the model.
        make: Makes it for a width and a length.
        grid: The sizes.
        make_optimizer: Makes the optimizer whose states are measured.
        device: Device of the passes.
    """
    cells: dict[Size, dict[str, int]] = {}
    core_parameters: dict[int, int] = {}
    materialised, known, filters = False, True, False
    for size in grid.sizes():
        # In training, since dropout keeps a mask, and may keep attention from its fused kernel.
        model = make(size.dim, size.length)
        num_heads = timing.num_heads_of(model.eval())
        formula = formula_of(model, size.length)
        filters = filters or FILTERS in formula.parameters
        core_parameters[size.dim] = sum(formula.parameters.values())
        # Work that the formula does not know, such as an attention of others, may keep what theory does not know.
        operations = model.flops_per_token(size.length, carried=False)
        known = known and abs(formula.total - operations) <= SAME * operations
        batch = grid.batch_of(size)
        model = model.to(device).train()
        # Muon asks for the role of each weight, as training gives it.
        groups = parameter_groups(model, nn.Module())
        found = training_memory(model, groups, make_optimizer, batch=batch, length=size.length)
        cells[size] = {WEIGHTS: found.weights, OPTIMIZER: found.optimizer, KEPT: found.kept, PEAK: found.peak}
        materialised = materialised or found.materialised
        if num_heads:
            query = torch.ones(batch, num_heads, size.length, model.dim // num_heads, device=device)
            cells[size][FUSED] = attention_kept(query, fused=True)
            cells[size][MATERIALISED] = attention_kept(query, fused=False)
    fits = memory_fits(cells, grid, linear=known and not materialised and not filters, filters=filters)
    return MemoryProfile(name, grid, device.type, materialised, core_parameters, cells, fits)


def memory_fits(
    cells: dict[Size, dict[str, int]], grid: Grid, *, linear: bool, filters: bool = False
) -> list[MemoryFit]:
    """Fit the exponent of each kind of memory, along the lengths and along the widths.

    Args:
        cells: Bytes of each kind at each size.
        grid: The sizes.
        linear: True if theory covers all work of the model, and none of it keeps T^2 numbers.
        filters: True if the model has filters: d numbers each where matrices have d^2, over one window for any T.
    """
    theories: dict[tuple[str, str], float | None] = {
        (WEIGHTS, "T"): 0,
        (WEIGHTS, "d"): None if filters else 2,
        (OPTIMIZER, "T"): 0,
        (OPTIMIZER, "d"): None if filters else 2,
        (KEPT, "T"): 1 if linear else None,
        (KEPT, "d"): 1 if linear else None,
        # Gradients of weights, d^2 numbers, come to what is kept, d^1.
        (PEAK, "T"): 1 if linear else None,
        (PEAK, "d"): None,
        (FUSED, "T"): 1,
        (FUSED, "d"): 1,
        (MATERIALISED, "T"): 2,
        # Its products know no d; queries, keys and values do.
        (MATERIALISED, "d"): None,
    }
    found = []
    for kind, axis in theories:
        sizes = grid.along(axis)
        values = [cells[size].get(kind, 0) for size in sizes]
        law = power_law.fit([_along(size, axis) for size in sizes], values)
        # A fit of numbers that are all the same has no error.
        if law is not None and len(set(values)) == 1:
            law = PowerLaw(0.0, 0.0, float(values[0]), len(values))
        # Not every model attends, and an optimizer such as plain SGD has no states.
        if law is not None:
            found.append(MemoryFit(kind, axis, law, theories[kind, axis]))
    return found


def _seen(device: str) -> str:
    """Return what a measured peak includes, in words."""
    if device == "cpu":
        return "of tensors on the CPU; what one call of torch, such as a whole LSTM, takes meanwhile is not seen"
    return f"all that was allocated on {device}"


def _along(size: Size, axis: str) -> int:
    return size.length if axis == "T" else size.dim
