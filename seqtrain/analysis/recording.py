"""Recording of a model's embedded inputs and layer inputs by hooks."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqtrain.models.base import SequenceModel
from seqtrain.models.layers.recurrence import pack_state, unpack_state

INPUT = "embedded input"

Recorded = dict[str, Float[Tensor, "B T E"]]
"""Values of one forward pass: the output of the front end, under INPUT, and the input of each layer, by its name."""


class OneByOne(nn.Module):
    """The layers of a fused torch recurrence, run one by one, so that hooks see the input of each."""

    def __init__(self, core: nn.RNNBase) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for number in range(core.num_layers):
            self.layers.append(_layer_of(core, number))

    def forward(self, x: Float[Tensor, "B T D"], state: Any) -> tuple[Float[Tensor, "B T U"], Any]:
        """Run the layers as torch's own module does, but without dropout between layers."""
        before = unpack_state(state)
        after = []
        for number, layer in enumerate(self.layers):
            own = [tensor[number : number + 1].contiguous() for tensor in before]
            x, new = layer(x, pack_state(own))
            after.append(unpack_state(new))
        joined = [torch.cat(tensors) for tensors in zip(*after, strict=True)]
        return x, pack_state(joined)


def _layer_of(core: nn.RNNBase, number: int) -> nn.RNNBase:
    """Return one layer of a stack as a separate module, with its weights."""
    options: dict[str, Any] = {"bias": core.bias, "batch_first": True}
    if core.mode.startswith("RNN"):
        options["nonlinearity"] = core.mode.removeprefix("RNN_").lower()
    # Layers above the first read the output of the layer below.
    width = core.input_size if number == 0 else core.hidden_size
    layer: Any = type(core)(width, core.hidden_size, **options)  # type: ignore[arg-type]
    layer = layer.double()
    with torch.no_grad():
        for name, weight in layer.named_parameters():
            weight.copy_(getattr(core, name.replace("_l0", f"_l{number}")))
    return layer


def prepared(module: Any) -> Any:
    """Return a copy to measure: float64, no dropout, fused recurrences split into layers. The module is unchanged."""
    # In float64: a gradient rounded to 0 by autocast or a kernel would look like one without a path.
    own = copy.deepcopy(module).double().eval()
    for parent in list(own.modules()):
        for name, child in list(parent.named_children()):
            # A single layer can be hooked directly.
            is_stack = isinstance(child, nn.RNNBase) and child.num_layers > 1
            if is_stack and not child.bidirectional and child.batch_first and not child.proj_size:
                setattr(parent, name, OneByOne(child))
    return own


class Recorder:
    """The forward passes of a model since `readings` was last emptied."""

    def __init__(self) -> None:
        self.readings: list[Recorded] = []
        self.left_out: list[str] = []  # layers that read positions in another order
        self._checked: set[str] = set()

    def keep_input(self, module: nn.Module, args: Any, out: Tensor) -> Tensor:
        """Begin a reading with the output of the front end."""
        if torch.is_grad_enabled() and not out.requires_grad:
            out = out.requires_grad_()  # a front end that is frozen or has no weights
        self.readings.append({INPUT: out})
        return out

    def keep_layer(self, name: str, x: Any) -> None:
        """Record the input of a layer, if it has the positions of the embedded input."""
        if not self.readings or not isinstance(x, Tensor) or x.dim() != 3 or not x.requires_grad:
            return
        reading = self.readings[-1]
        if x.shape[:2] != reading[INPUT].shape[:2]:
            return
        # A single position shows no order.
        if name not in self._checked and x.shape[1] > 1:
            self._checked.add(name)
            if not _in_order(x, reading[INPUT]):
                self.left_out.append(name)
        if name not in self.left_out:
            reading.setdefault(name, x)


def _in_order(x: Float[Tensor, "B T D"], read: Float[Tensor, "B T E"]) -> bool:
    """Return True if the first position of a layer's input depends on the first position of the model's input.

    The layers of a stack that reads backwards get the last position first.
    """
    # Unequal weights: the sum of a norm's outputs is constant, so it would have no gradient.
    weights = torch.linspace(1.0, 2.0, x.shape[-1], dtype=x.dtype, device=x.device)
    (gradient,) = torch.autograd.grad((x[:, 0] * weights).sum(), read, retain_graph=True, allow_unused=True)
    if gradient is None:
        return False
    # A lane of one token is the same in both orders, so the majority of lanes decides.
    return bool((gradient[:, 0].abs().sum(-1) > 0).double().mean() > 0.5)


@contextmanager
def recording(model: SequenceModel) -> Iterator[Recorder]:
    """Record what the model reads inside the block. Layers are the items of its module lists, except the first.

    The first layer's input is the embedded input itself.
    """
    recorder = Recorder()
    handles = [
        model.embed.register_forward_pre_hook(_in_double),
        model.embed.register_forward_hook(recorder.keep_input),
    ]
    for place, items in model.named_modules():
        if not isinstance(items, nn.ModuleList):
            continue
        names: dict[nn.Module, list[str | None]] = {}  # several names for a layer that is applied several times
        for number, layer in enumerate(items):
            names.setdefault(layer, []).append(f"{place} {number + 1}" if number else None)
        for layer, own in names.items():
            handles.append(layer.register_forward_pre_hook(_layer_hook(recorder, own)))
    try:
        yield recorder
    finally:
        for handle in handles:
            handle.remove()


def _layer_hook(recorder: Recorder, names: Sequence[str | None]) -> Any:
    calls = cycle(names)  # a forward pass calls a layer once for each of its names

    def keep(module: nn.Module, args: Any) -> None:
        name = next(calls)
        if name is not None:
            recorder.keep_layer(name, args[0] if args else None)

    return keep


def _in_double(module: nn.Module, args: Any) -> Any:
    """Convert values to the precision of the weights; keep ids."""
    first, *rest = args
    return (first.double() if first.is_floating_point() else first, *rest)
