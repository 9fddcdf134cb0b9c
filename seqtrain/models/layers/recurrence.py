"""torch's fused recurrent kernels with batch-first states, and the reversal of padded sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqtrain.models.layers.lengths import padding_of, real_lengths

Cell = Literal["rnn", "gru", "lstm"]

CORES: dict[Cell, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
STEPS: dict[Cell, Callable[..., nn.RNNCellBase]] = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}

STATE_NAMES: dict[Cell, tuple[str, ...]] = {"rnn": ("hidden",), "gru": ("hidden",), "lstm": ("hidden", "cell")}
"""The tensors that a layer carries, in torch's order."""


def mirror_index(x: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"] | None) -> Int[Tensor, "B T 1"]:
    """Return, for each position of the reversed lanes, the index that it is read from.

    Only the real tokens are reversed; padding stays in place. A lane read backwards therefore begins with its own last
    token, as it would alone, and needs no packing.
    """
    # An index instead of a flip of the tensor, because each lane has its own end.
    ends = real_lengths(x, lengths)
    time = torch.arange(x.shape[1], device=x.device)
    backwards = ends.unsqueeze(1) - 1 - time
    return torch.where(padding_of(ends, x.shape[1]), time, backwards).unsqueeze(-1)


def reverse(x: Float[Tensor, "B T D"], mirror: Int[Tensor, "B T 1"]) -> Float[Tensor, "B T D"]:
    """Reverse each lane from its end. Applied twice it returns x, because the index is its own inverse."""
    return x.gather(1, mirror.expand_as(x))


def pack_state(
    tensors: Sequence[Float[Tensor, "*L B U"]],
) -> Float[Tensor, "*L B U"] | tuple[Float[Tensor, "*L B U"], ...]:
    """Pack a state for torch's modules: hidden and cell as a tuple, a hidden state alone as a tensor."""
    if len(tensors) == 1:
        return tensors[0]
    return tuple(tensors)


def unpack_state(
    state: Float[Tensor, "*L B U"] | tuple[Float[Tensor, "*L B U"], ...],
) -> tuple[Float[Tensor, "*L B U"], ...]:
    """Unpack a state from torch's modules into a tuple."""
    if isinstance(state, tuple):
        return state
    return (state,)


def layers_of(
    make: Callable[[int, float], nn.RNNBase], num_layers: int, dropout: float, share_layers: bool
) -> nn.RNNBase | nn.ModuleList:
    """Return L recurrent layers for `run_layers`.

    Args:
        make: creates torch's module from a number of layers and the dropout between them.
        num_layers: L.
        dropout: between the layers.
        share_layers: True if one layer is applied L times.
    """
    if share_layers:
        return nn.ModuleList([make(1, 0.0)] * num_layers)
    return make(num_layers, dropout if num_layers > 1 else 0.0)  # torch warns about dropout without a second layer


def run_layers(
    core: nn.Module, x: Float[Tensor, "B T D"], state: Sequence[Float[Tensor, "B L U"]], dropout: nn.Module
) -> tuple[Float[Tensor, "B T U"], list[Float[Tensor, "B L U"]]]:
    """Run L layers with `run_fused`, one by one if `core` is a list, which may contain a layer several times.

    Args:
        core: torch's module of all layers, or a ModuleList with one module a layer.
        x: input of the first layer.
        state: as in `run_fused`.
        dropout: applied between the layers of a list.
    """
    if not isinstance(core, nn.ModuleList):
        return run_fused(core, x, state)
    ends = []
    for number, layer in enumerate(core):
        if number:
            x = dropout(x)
        x, after = run_fused(layer, x, [value[:, number : number + 1] for value in state])
        ends.append(after)
    return x, [torch.cat(values, 1) for values in zip(*ends, strict=True)]


def run_fused(
    core: nn.Module, x: Float[Tensor, "B T D"], state: Sequence[Float[Tensor, "B L U"]]
) -> tuple[Float[Tensor, "B T U"], list[Float[Tensor, "B L U"]]]:
    """Run all steps of x on torch's fused kernel of L layers of U units.

    Args:
        core: torch's module, batch first.
        x: input sequence.
        state: the hidden state, followed by the cell for an LSTM.

    Returns:
        Outputs of the last layer, and the state after them.
    """
    # torch's states are layers first, ours batch first; the copy has no measurable cost.
    before = [value.transpose(0, 1).contiguous() for value in state]
    if torch.is_autocast_enabled("cpu") and x.device.type == "cpu" and not _gains_by_bf16(core):
        with torch.autocast("cpu", enabled=False):
            out, after = core(x.to(before[0].dtype), pack_state(before))
    else:
        out, after = core(x, pack_state(before))
    return out, [value.transpose(0, 1) for value in unpack_state(after)]


def _gains_by_bf16(core: nn.Module) -> bool:
    """Return True if a recurrence should be computed in bf16 on this CPU; else it is computed in float32."""
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return False  # oneDNN has no bf16 recurrences for such a CPU, and raises an error
    # torch's RNN and GRU call one product per token; for narrow ones the call takes longer than the product.
    assert isinstance(core, nn.RNNBase)
    return core.hidden_size > {"RNN_TANH": 128, "GRU": 96}.get(core.mode, 0)
