"""Memory of a training pass: measured bytes, and their growth with length and width compared with theory.

On the CPU the bytes are exact: each storage that autograd keeps is counted once, and each storage that a torch call
makes is counted from that call until it is freed. They do not depend on other load on the machine.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode  # no public mode sees autograd's operations

from seqtrain.analysis.formula import FILTERS, PowerLaw, core_of, fit_power_law, formula_of
from seqtrain.analysis.profile import Fitted, Grid, Make, Size, heads_of, read
from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel
from seqtrain.models.layers.recorder import recording
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

SAME = 0.01  # relative tolerance within which formula and counter agree
BYTES = 4  # per float32 number
FUSED_KERNEL = "_scaled_dot_product_"  # prefix of torch's kernels that never materialise the attention products
OptimizerMaker = Callable[[list[dict[str, Any]]], Optimizer]
"""Makes an optimizer for groups of weights."""


@dataclass
class MemoryProfile:
    """The memory of one model over a grid."""

    name: str
    grid: Grid
    device: str
    materialised: bool  # True if its attention materialises its products, T x T numbers per head
    core_parameters: dict[int, int]  # by width, as the formula counts them
    cells: dict[Size, dict[str, int]]  # bytes of each kind
    fits: list[Fitted]

    def numbers(self) -> dict[str, float]:
        """Return the numbers that a page may quote."""
        found: dict[str, float] = {}
        for fitted in self.fits:
            found |= fitted.numbers(f"{self.name}_memory")
        longest = self.grid.along("T")[-1]
        tokens = longest.length * self.grid.batch_of(longest)
        for kind in (KEPT, PEAK):
            found[f"{self.name}_memory_{kind}_per_token"] = self.cells[longest][kind] / tokens
        widest = self.grid.along("d")[-1]
        # A bag of words has no core.
        if parameters := self.core_parameters[widest.dim]:
            # 8 bytes per parameter are Adam's two moments in float32.
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
        cells = {(fitted.kind, fitted.axis): (fitted.words(), fitted.theory_words()) for fitted in self.fits}
        width = max((len(words) for words, _ in cells.values()), default=0)
        lines = [f"{'memory of':22}  {'in T':{width}}  theory  {'in d':{width}}  theory"]
        for kind in dict.fromkeys(fitted.kind for fitted in self.fits):
            line = f"{KINDS[kind]:22}"
            for axis in ("T", "d"):
                words, theory = cells.get((kind, axis), ("-", "-"))
                line += f"  {words:{width}}  {theory:6}"
            lines.append(line.rstrip())
        longest, widest = self.grid.along("T")[-1], self.grid.along("d")[-1]
        cell, wide = self.cells[longest], self.cells[widest]
        tokens = longest.length * self.grid.batch_of(longest)
        lines.append(
            f"a training pass keeps {cell[KEPT] / tokens:,.0f} bytes per token at T = {longest.length}, d = "
            f"{longest.dim}, with a peak of {cell[PEAK] / tokens:,.0f} ({_seen(self.device)}; without a head)"
        )
        count = self.core_parameters[widest.dim]
        if count:
            lines.append(
                f"at d = {widest.dim} the core takes {wide[WEIGHTS]:,} bytes (by formula {BYTES * count:,}), and the "
                f"optimizer's states {wide[OPTIMIZER]:,}, {wide[OPTIMIZER] / count:.2f} bytes per parameter (Adam's "
                f"two moments: {2 * BYTES})"
            )
        if self.materialised:
            lines.append(
                "attention materialises its products in this pass (as it does on the CPU with dropout), so what is "
                "kept grows with T^1 and T^2 at once, and no single exponent is expected"
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
        # In training mode: dropout keeps a mask, and may prevent attention's fused kernel.
        model = make(size.dim, size.length)
        num_heads, head_width = heads_of(model.eval())
        formula = formula_of(model, size.length)
        filters = filters or FILTERS in formula.parameters
        core_parameters[size.dim] = sum(formula.parameters.values())
        # Work unknown to the formula, such as third-party attention, may keep memory unknown to theory.
        operations = model.flops_per_token(size.length, carried=False)
        known = known and abs(formula.total - operations) <= SAME * operations
        batch = grid.batch_of(size)
        model = model.to(device).train()
        # With parameter groups as in training, because Muon needs the role of each weight.
        groups = parameter_groups(model, nn.Module())
        found = training_memory(model, groups, make_optimizer, batch=batch, length=size.length)
        cells[size] = {WEIGHTS: found.weights, OPTIMIZER: found.optimizer, KEPT: found.kept, PEAK: found.peak}
        materialised = materialised or found.materialised
        if num_heads:
            query = torch.ones(batch, num_heads, size.length, head_width, device=device)
            cells[size][FUSED] = attention_kept(query, fused=True)
            cells[size][MATERIALISED] = attention_kept(query, fused=False)
    fits = memory_fits(cells, grid, linear=known and not materialised and not filters, filters=filters)
    return MemoryProfile(name, grid, device.type, materialised, core_parameters, cells, fits)


def memory_fits(cells: dict[Size, dict[str, int]], grid: Grid, *, linear: bool, filters: bool = False) -> list[Fitted]:
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
        # A sum of weight gradients, d^2 numbers, and what is kept, d^1.
        (PEAK, "T"): 1 if linear else None,
        (PEAK, "d"): None,
        (FUSED, "T"): 1,
        (FUSED, "d"): 1,
        (MATERIALISED, "T"): 2,
        # A sum: the products do not depend on d, but queries, keys and values do.
        (MATERIALISED, "d"): None,
    }
    found = []
    for kind, axis in theories:
        sizes = grid.along(axis)
        values = [cells[size].get(kind, 0) for size in sizes]
        law = fit_power_law(grid.across(axis), values)
        # If all values are equal, the fit has no error.
        if law is not None and len(set(values)) == 1:
            law = PowerLaw(0.0, 0.0, float(values[0]), len(values))
        # None if a model has no attention, or an optimizer such as plain SGD has no states.
        if law is not None:
            found.append(Fitted(kind, axis, law, theories[kind, axis]))
    return found


def _seen(device: str) -> str:
    """Return what a measured peak includes, in words."""
    if device == "cpu":
        return "of tensors on the CPU, without the memory inside a torch call, such as a whole LSTM"
    return f"all that was allocated on {device}"


# -- one pass --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes of one training pass of a model without its head, and of the optimizer's first step after it."""

    weights: int  # of the core, without the embedding, whose size depends on the data
    gradients: int  # of the same weights
    optimizer: int  # states of the same weights
    kept: int  # by autograd, from the forward to the backward pass, without weights
    peak: int  # most bytes alive at once, without weights and states but with gradients
    materialised: bool  # True if some attention materialises its products, T x T numbers per head


def training_memory(
    model: SequenceModel, groups: list[dict[str, Any]], make_optimizer: OptimizerMaker, *, batch: int, length: int
) -> TrainingMemory:
    """Measure a training pass over blanks, and a step of the optimizer.

    Args:
        model: The model in the mode and on the device to be measured; the step changes its weights.
        groups: Its weights, as parameter groups of the optimizer.
        make_optimizer: Makes the optimizer.
        batch: Number of sequences.
        length: T; for a model with a source, the length of source and target each.

    Raises:
        UserError: If the optimizer cannot make its first step.
    """
    device = next(model.parameters()).device
    with Allocations((*model.parameters(), *model.buffers())) as seen:
        on_card = _start_on_card(device)
        with kept_storages(model) as storages:
            loss = read(model, batch, length).sum()
        kept = bytes_of(storages)
        # Storages held here would not be freed in the backward pass.
        storages.clear()
        loss.backward()
        peak = seen.peak if on_card is None else torch.cuda.max_memory_allocated(device) - on_card
    # Gradients are there now. A step makes the states, which most optimizers do not have before it.
    optimizer = make_optimizer(groups)
    try:
        # With a closure, which some optimizers, such as LBFGS, cannot do without.
        optimizer.step(lambda: loss.item())
    except (RuntimeError, TypeError) as fault:
        raise UserError(f"optimizer: its first step fails: {fault}") from None
    weights, gradients, states = 0, 0, 0
    for module in core_of(model):
        for weight in module.parameters(recurse=False):
            weights += weight.nbytes
            gradients += 0 if weight.grad is None else weight.grad.nbytes
            states += sum(held.nbytes for held in _tensors(optimizer.state.get(weight)))
    # Otherwise the next pass would find gradients and allocate none.
    model.zero_grad(set_to_none=True)
    # The recorder hears of every attention, the kernels tell how many of them made no products.
    with torch.no_grad(), recording() as maps:
        read(model, 1, min(length, 2))
    return TrainingMemory(weights, gradients, states, kept, peak, materialised=seen.fused < len(maps))


def _start_on_card(device: torch.device) -> int | None:
    """Return the bytes allocated on a GPU before a pass, or None on the CPU. Untested on a GPU."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    # A card's allocator sees what kernels take inside themselves, too.
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def attention_kept(query: Tensor, *, fused: bool) -> int:
    """Return the bytes that attention alone keeps for the backward pass, including its queries, keys and values.

    Args:
        query: (B, H, T, K); keys and values have the same shape.
        fused: Use torch's kernel; otherwise the products are made, as in Vaswani et al. (2017).
    """
    key, value = query.clone(), query.clone()
    for tensor in (query, key, value):
        tensor.requires_grad_()
    with kept_storages(nn.Module()) as kept:
        if fused:
            functional.scaled_dot_product_attention(query, key, value)
        else:
            weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)
            torch.matmul(weights, value)
    return bytes_of(kept)


@contextmanager
def kept_storages(model: nn.Module) -> Iterator[dict[int, torch.UntypedStorage]]:
    """Collect the storages kept for the backward pass inside the block. Duplicates and views count once.

    Weights and buffers of `model` are left out, since they exist anyway.
    """
    own = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        # Held until the end, so that no other storage gets the same address.
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept


def bytes_of(storages: dict[int, torch.UntypedStorage]) -> int:
    """Return the sum of the storages' sizes, in bytes."""
    return sum(storage.nbytes() for storage in storages.values())


class Allocations(TorchDispatchMode):
    """Counter of the bytes of all storages that torch calls return while it is open, until each is freed.

    Memory that a call takes and frees internally, such as the workspace of a fused kernel, is not counted.
    """

    def __init__(self, before: Iterable[Tensor]) -> None:
        """Start the counter.

        Args:
            before: Tensors that exist already, such as weights; they are not counted.
        """
        super().__init__()
        self.alive = 0
        self.peak = 0
        self.fused = 0  # calls of attention that did not materialise their products
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in before}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = str(func)
        self.fused += FUSED_KERNEL in name and "backward" not in name
        # Inputs are counted as well, because autograd makes some tensors itself.
        for tensor in _tensors((args, kwargs, out)):
            self._add(tensor.untyped_storage())
        self.peak = max(self.peak, self.alive)
        return out

    def _add(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        # Views share a storage, and in-place calls return their input.
        if key in self._sizes:
            return
        self._sizes[key] = storage.nbytes()
        self.alive += self._sizes[key]
        # Then its address may be used by another storage.
        weakref.finalize(storage, self._freed, key)

    def _freed(self, key: int) -> None:
        self.alive -= self._sizes.pop(key)


def _tensors(held: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested containers."""
    if isinstance(held, Tensor):
        yield held
    elif isinstance(held, Mapping):
        yield from _tensors(list(held.values()))
    elif isinstance(held, list | tuple):
        for each in held:
            yield from _tensors(each)
