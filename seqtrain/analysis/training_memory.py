"""Bytes of one training pass of a model: weights, gradients, optimizer, kept tensors, and the peak.

On the CPU nothing is sampled. Each storage that autograd keeps is counted once, and so is each storage that a torch
call makes, from that call until it is freed. The bytes do not depend on other load on the machine.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seqtrain.analysis.formula import core_of
from seqtrain.analysis.timing import read
from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel
from seqtrain.models.layers.recorder import recording

FUSED = "_scaled_dot_product_"  # how the names of torch's kernels begin that never make the products of attention
OptimizerMaker = Callable[[list[dict[str, Any]]], Optimizer]
"""Makes an optimizer for groups of weights."""


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes of one training pass of a model without its head, and of the optimizer's first step after it."""

    weights: int  # of the core: a table of vectors has as many rows as the data have words
    gradients: int  # of the same weights
    optimizer: int  # states of the same weights
    kept: int  # by automatic differentiation, from the forward to the backward pass; no weights
    peak: int  # most bytes alive at once beside weights and states; gradients count from when they are made
    materialised: bool  # whether some attention makes its products, T x T numbers a head

    def record(self) -> dict[str, int]:
        """Return the bytes as JSON values."""
        return asdict(self)


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
            states += sum(held.nbytes for held in tree_leaves(optimizer.state.get(weight)) if torch.is_tensor(held))
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
        self.fused = 0  # calls of attention that made no products
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in before}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = str(func)
        self.fused += FUSED in name and "backward" not in name
        # Inputs are counted as well: autograd makes some tensors by itself.
        for tensor in tree_leaves((args, kwargs, out)):
            if isinstance(tensor, Tensor):
                self._add(tensor.untyped_storage())
        self.peak = max(self.peak, self.alive)
        return out

    def _add(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        # Views share a storage, and a call that works in place gives what it was given.
        if key in self._sizes:
            return
        self._sizes[key] = storage.nbytes()
        self.alive += self._sizes[key]
        # Its address is free for another then.
        weakref.finalize(storage, self._freed, key)

    def _freed(self, key: int) -> None:
        self.alive -= self._sizes.pop(key)
