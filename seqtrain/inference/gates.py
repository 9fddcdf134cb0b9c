"""Gate values of each unit in LSTM and GRU layers while a model reads a text.

torch's fused kernels return hidden states only, so the gates are recomputed step by step from each module's inputs and
weights (Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000; Cho et al. 2014).
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqtrain.errors import UserError
from seqtrain.inference.attention_maps import (
    INCHES_PER_TOKEN,
    MAX_PIXELS,
    MAX_TITLE_CHARACTERS,
    Label,
    save_picture,
    shorten,
    words_left_out,
)
from seqtrain.models.base import SequenceModel, State, name_of

GATED = (
    "lstm",
    "gru",
    "elmo",
    "gru_d",
    "rnn_encoder_decoder",
    "encoder_decoder (model.encoder or model.decoder lstm or gru)",
)
LSTM, GRU = (nn.LSTM, nn.LSTMCell), (nn.GRU, nn.GRUCell)
HOLDING = {"lstm": "forget", "gru": "update"}
"""The gate whose value is the fraction of a unit's state that is kept in the next step."""


@dataclass(frozen=True)
class Gates:
    """One layer with U units that read T tokens; units are in the module's order."""

    name: str
    kind: str  # "lstm" or "gru"
    tokens: list[str]  # T labels
    # (T, U) each. lstm: input, forget, output, cell, hidden; gru: reset, update, hidden. Gates lie between 0 and 1.
    values: dict[str, Float[Tensor, "T U"]]

    @property
    def hold_times(self) -> Float[Tensor, " U"]:
        """The number of tokens that each unit holds its value: -1 / log(mean forget gate, or update gate of a GRU).

        After that many steps at the mean gate value, 1/e of a unit's value is left (Mahto et al. 2021). The mean is
        over this text and differs between texts.
        """
        mean = self.values[HOLDING[self.kind]].double().mean(0)
        # abs() instead of a minus sign: the hold time for a mean of 1 is then inf, not -inf.
        return 1 / mean.log().abs()

    @property
    def order(self) -> Int[Tensor, " U"]:
        """Unit indices, the longest hold time first."""
        return self.hold_times.argsort(descending=True, stable=True)


@dataclass
class ModuleCalls:
    """All calls of one torch module while a text is read: the inputs and initial state of each."""

    path: str  # of the module in the model
    module: nn.Module
    inputs: list[Float[Tensor, "t E"]] = field(default_factory=list)
    states: list[tuple[Float[Tensor, "L U"], ...] | None] = field(default_factory=list)  # before each call; None: zeros

    def layers(self, length: int) -> list[ModuleCalls]:
        """Split the calls of a module that is applied several times to each of `length` tokens: model.share_layers."""
        times = max(sum(map(len, self.inputs)) // length, 1)
        return [ModuleCalls(self.path, self.module, self.inputs[n::times], self.states[n::times]) for n in range(times)]


@torch.no_grad()
def look(
    model: SequenceModel,
    tokens: Sequence[int],
    label: Label,
    source: Sequence[int] | None = None,
    source_label: Label | None = None,
) -> list[Gates]:
    """Record the gates of a model while it reads tokens.

    Args:
        model: a model in evaluation mode.
        tokens: the input tokens; for an encoder-decoder, those of the target.
        label: returns the label of a token.
        source: the encoder's tokens; None for a model that reads one text.
        source_label: returns the label of a source token; None: `label`.

    Returns:
        The layers that read the source, then those that read the text, each from first to last. A bidirectional layer
        appears twice. Each value is at the position of the token that was just read.

    Raises:
        UserError: If the model has no LSTM or GRU layer, or does not read token by token.
    """
    # The tokens go where the weights are.
    device = next(model.parameters()).device
    state: State | None = None
    found: list[Gates] = []
    if source is not None:
        with _recording(model) as recorded:
            state = model.begin(torch.tensor([source], device=device))
        found += _gates_of(recorded, list(map(source_label or label, source)), "source ")
    with _recording(model) as recorded:
        model(torch.tensor([tokens], device=device), state)
    found += _gates_of(recorded, list(map(label, tokens)), "")
    if not found:
        raise UserError(
            f"model={name_of(model)}: no LSTM or GRU gates; use a run of one of these models: {', '.join(GATED)}"
        )
    return found


@contextmanager
def _recording(model: nn.Module) -> Iterator[list[ModuleCalls]]:
    """Yield a list that is filled on exit: ModuleCalls of each LSTM and GRU called inside, in order of first call."""
    recorded: dict[str, ModuleCalls] = {}
    hooks = []
    for path, module in model.named_modules():
        if isinstance(module, LSTM + GRU):
            hooks.append(module.register_forward_pre_hook(_recorder(path, recorded), with_kwargs=True))
    found: list[ModuleCalls] = []
    try:
        yield found
        found += recorded.values()
    finally:
        for hook in hooks:
            hook.remove()


def _recorder(path: str, recorded: dict[str, ModuleCalls]) -> Any:
    """Return a hook that records the inputs and initial states of a module."""

    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x, state = (*args, *kwargs.values(), None)[:2]
        # A module may be called once for the whole text, or once for each token, as the cells of a decoder are.
        calls = recorded.setdefault(path, ModuleCalls(path, module))
        calls.inputs.append(_steps(module, x))
        calls.states.append(None if state is None else _vectors(state))

    return record


def _steps(module: nn.Module, x: Any) -> Float[Tensor, "t E"]:
    """Return the inputs of one call for the single sequence in the batch; one step for a cell."""
    is_cell = isinstance(module, nn.RNNCellBase)
    lane_first = is_cell or module.batch_first
    if not isinstance(x, Tensor) or x.dim() != 3 - is_cell or x.shape[0 if lane_first else 1] != 1:
        raise UserError(f"gates: the model's {type(module).__name__} does not receive a batch of one text")
    if is_cell:
        return x
    return x.squeeze(0 if lane_first else 1)


def _vectors(state: Any) -> tuple[Float[Tensor, "L U"], ...]:
    """Remove the batch dimension from a state: (L, U) for hidden, and for cell."""
    if isinstance(state, Tensor):
        state = (state,)
    vectors = []
    for value in state:
        # (L, 1, U) for a fused module; (1, U) for a cell, which is one layer.
        vectors.append(value.reshape(-1, value.shape[-1]))
    return tuple(vectors)


def _gates_of(recorded: Sequence[ModuleCalls], tokens: list[str], prefix: str) -> list[Gates]:
    """Compute the gates of all layers that were called, named by their position in the model."""
    depths = zip_longest(*(calls.layers(len(tokens)) for calls in recorded))
    recorded = [calls for depth in depths for calls in depth if calls is not None]
    parts = {calls.path.partition(".")[0] for calls in recorded}
    numbers: dict[tuple[str, str], int] = {}
    found = []
    backwards = {calls.path for calls in recorded if _is_backwards(calls, recorded)}
    for calls in recorded:
        part = calls.path.partition(".")[0]
        ways = _ways(calls, backwards)
        # Encoder and decoder are named; a model with a single network is not.
        name = f"{part} " if len(parts) > 1 or part in ("encoder", "decoder") else prefix
        inputs = torch.cat(calls.inputs)
        if len(inputs) != len(tokens):
            raise UserError(f"gates: the model's {calls.path} reads {len(inputs)} steps for {len(tokens)} tokens")
        # Gates of a backward module are computed in its reading order; the result is reversed afterwards.
        shown = tokens[::-1] if calls.path in backwards else tokens
        for way, kind, values in _layers(calls, inputs):
            number = numbers[part, ways + way] = numbers.get((part, ways + way), 0) + 1
            gates = Gates(f"{name}layer {number}{ways}{way}", kind, shown, values)
            found.append(_turned(gates) if calls.path in backwards else gates)
    return found


def _is_backwards(calls: ModuleCalls, recorded: Sequence[ModuleCalls]) -> bool:
    """Return True if a module reads the reversed input of a sibling, as a bidirectional pair of modules does."""
    parent = calls.path.rpartition(".")[0]
    for other in recorded:
        if other is calls:  # the first of the two reads forwards; a palindrome must not change that
            return False
        in_one_call = len(other.inputs) == len(calls.inputs) == 1
        is_sibling = other.path.rpartition(".")[0] == parent
        if is_sibling and in_one_call and torch.equal(other.inputs[0].flip(0), calls.inputs[0]):
            return True
    return False


def _ways(calls: ModuleCalls, backwards: set[str]) -> str:
    """Return the direction suffix of the name of a bidirectional layer, else an empty string."""
    if calls.path in backwards:
        return " backwards"
    parent = calls.path.rpartition(".")[0]
    if any(path.rpartition(".")[0] == parent for path in backwards):
        return " forwards"
    return ""


def _turned(gates: Gates) -> Gates:
    """Reverse the gates of a backward layer into the order of the text."""
    values = {name: value.flip(0) for name, value in gates.values.items()}
    return Gates(gates.name, gates.kind, gates.tokens[::-1], values)


# -- the recurrences, step by step ---------------------------------------------------------------------------------


def _layers(calls: ModuleCalls, x: Float[Tensor, "T E"]) -> Iterator[tuple[str, str, dict[str, Float[Tensor, "T U"]]]]:
    """Yield direction suffix, kind and values of each layer of a module; T is in the order of the text."""
    module: Any = calls.module
    kind = "lstm" if isinstance(module, LSTM) else "gru"
    read = _lstm if kind == "lstm" else _gru
    if isinstance(module, nn.RNNCellBase):
        yield "", kind, read(x, _weights(module, ""), _first(calls, 0))
        return
    if getattr(module, "proj_size", 0):
        raise UserError(f"gates: {calls.path} of the model is an LSTM with projections, whose gates are not shown")
    directions = 2 if module.bidirectional else 1
    for layer in range(module.num_layers):
        outputs = []
        for direction in range(directions):
            suffix = f"_l{layer}" + "_reverse" * direction
            # No dropout between layers: the model is in evaluation mode.
            turned = x.flip(0) if direction else x
            values = read(turned, _weights(module, suffix), _first(calls, layer * directions + direction))
            if direction:
                values = {name: value.flip(0) for name, value in values.items()}
            # The next layer reads both directions concatenated.
            outputs.append(values["hidden"])
            way = "" if directions == 1 else (" forwards", " backwards")[direction]
            yield way, kind, values
        x = torch.cat(outputs, -1)


def _first(calls: ModuleCalls, layer: int) -> list[Float[Tensor, " U"]]:
    """Return the initial state of a layer: hidden, and the cell of an LSTM."""
    first = calls.states[0]
    if first is None:
        zeros = calls.inputs[0].new_zeros(calls.module.hidden_size)  # type: ignore[call-overload]
        return [zeros, zeros]
    return [vectors[layer] for vectors in first]


def _weights(module: Any, suffix: str) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return the input and state weights, and their biases (None if there are none)."""
    names = [f"{name}{suffix}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    return tuple(getattr(module, name, None) for name in names)  # type: ignore[return-value]


def _lstm(
    x: Float[Tensor, "T E"],
    weights: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    first: Sequence[Float[Tensor, " U"]],
) -> dict[str, Float[Tensor, "T U"]]:
    """Compute the gates of an LSTM: c_t = f c_{t-1} + i g and h_t = o tanh(c_t)."""
    of_input, of_state, input_bias, state_bias = weights
    hidden, cell = first
    rows = []
    for step in nn.functional.linear(x, of_input, input_bias):
        # torch stacks the four weight matrices in this order.
        i, f, g, o = (step + nn.functional.linear(hidden, of_state, state_bias)).chunk(4)
        i, f, o = i.sigmoid(), f.sigmoid(), o.sigmoid()
        cell = f * cell + i * g.tanh()
        hidden = o * cell.tanh()
        rows.append(torch.stack([i, f, o, cell, hidden]))
    return _by_name(rows, ("input", "forget", "output", "cell", "hidden"))


def _gru(
    x: Float[Tensor, "T E"],
    weights: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    first: Sequence[Float[Tensor, " U"]],
) -> dict[str, Float[Tensor, "T U"]]:
    """Compute the gates of a GRU: h_t = z h_{t-1} + (1 - z) n.

    As in Cho et al., z = 1 keeps the state; torch applies the reset gate after U h.
    """
    of_input, of_state, input_bias, state_bias = weights
    hidden = first[0]
    rows = []
    for step in nn.functional.linear(x, of_input, input_bias):
        r, z, n = step.chunk(3)
        state_r, state_z, state_n = nn.functional.linear(hidden, of_state, state_bias).chunk(3)
        r, z = (r + state_r).sigmoid(), (z + state_z).sigmoid()
        hidden = z * hidden + (1 - z) * (n + r * state_n).tanh()
        rows.append(torch.stack([r, z, hidden]))
    return _by_name(rows, ("reset", "update", "hidden"))


def _by_name(rows: list[Float[Tensor, "G U"]], names: Sequence[str]) -> dict[str, Float[Tensor, "T U"]]:
    return dict(zip(names, torch.stack(rows, 1).cpu(), strict=True))


MAX_LAYERS = 6  # in a picture
MAX_TOKENS = 60  # across a picture
MAX_UNITS = 256  # down a picture
SIGNED = ("cell", "hidden")  # may be negative; gates may not
DRAWN = {"lstm": ("input", "forget", "output", "cell"), "gru": ("reset", "update", "hidden")}
LAYER_INCHES = 2.8
LEAST_MAP_INCHES = 2.2
MARGIN_INCHES = 1.6
UNIT_TICKS = 5  # hold times that label the unit axis
SAID = "units are sorted by how long they hold: -1 / log(mean {gate} gate over this text), in tokens"


def draw(layers: Sequence[Gates], path: Path, title: str) -> str:
    """Draw a PNG of layers (rows) and gates (columns).

    Returns:
        A text that lists what was left out; empty if nothing was.

    Raises:
        OSError: If the file cannot be written.
    """
    from matplotlib.figure import Figure

    shown = list(layers[:MAX_LAYERS])
    columns = max(len(DRAWN[gates.kind]) for gates in shown)
    tokens = min(max(len(gates.tokens) for gates in shown), MAX_TOKENS)
    # Tokens need room for their labels; units have none, so they share the fixed height of a layer.
    width = MARGIN_INCHES + columns * max(tokens * INCHES_PER_TOKEN, LEAST_MAP_INCHES)
    height = 1.2 + len(shown) * LAYER_INCHES
    figure = Figure(figsize=(width, height), dpi=min(140, MAX_PIXELS / max(width, height)), layout="constrained")
    grid = figure.subplots(len(shown), columns, squeeze=False)
    image = None
    for row, gates in zip(grid, shown, strict=True):
        for axes in row[len(DRAWN[gates.kind]) :]:
            axes.set_axis_off()
        for axes, name in zip(row, DRAWN[gates.kind], strict=False):
            drawn = _draw_values(axes, gates, name)
            if name not in SIGNED:  # all gates share one scale
                image = drawn
        _name_units(row[0], gates)
    assert image is not None  # each kind of layer has gates
    bar = figure.colorbar(image, ax=grid, location="top", fraction=0.02, pad=0.02, shrink=0.3, ticks=[0, 0.5, 1])
    bar.ax.tick_params(labelsize=7)
    left_out = words_left_out(
        {
            "layers": (len(shown), len(layers)),
            "units": (MAX_UNITS, max(len(gates.order) for gates in layers)),
            "tokens": (MAX_TOKENS, max(len(gates.tokens) for gates in layers)),
        }
    )
    save_picture(figure, _heading(layers, title, left_out, width), path)
    return left_out


def _heading(layers: Sequence[Gates], title: str, left_out: str, width: float) -> str:
    holding = " or ".join(dict.fromkeys(HOLDING[layer.kind] for layer in layers))
    lines = [shorten(title, MAX_TITLE_CHARACTERS), SAID.format(gate=holding)]
    if left_out:
        lines.append(f"not shown: {left_out}")
    return "\n".join(textwrap.fill(line, int(12 * width)) for line in lines)


def _draw_values(axes: Any, gates: Gates, name: str) -> Any:
    """Draw one map: units down, tokens across."""
    values = gates.values[name][:MAX_TOKENS, gates.order[:MAX_UNITS]].double().T.numpy()
    title, colors, low, high = f"{name} gate", "viridis", 0.0, 1.0
    if name in SIGNED:
        # Zero is white on any scale, so that a sign can be seen.
        high = float(abs(values).max()) or 1.0
        title, colors, low = f"{name}: red +{high:.2g}, blue -{high:.2g}", "RdBu_r", -high
    image = axes.imshow(values, cmap=colors, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    axes.set_title(title, fontsize=8)
    labels = [shorten(token) for token in gates.tokens[:MAX_TOKENS]]
    axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7, parse_math=False)
    axes.set_yticks([])
    axes.tick_params(length=0)
    return image


def _name_units(axes: Any, gates: Gates) -> None:
    """Label some units on the first map of a layer with their hold times."""
    times = gates.hold_times[gates.order[:MAX_UNITS]].tolist()
    # From the longest to the shortest, in equal steps of rank.
    ticks = torch.linspace(0, len(times) - 1, min(UNIT_TICKS, len(times))).round().int().tolist()
    axes.set_yticks(ticks, [f"{words_of_time(times[tick])} tokens" for tick in ticks], fontsize=7)
    axes.set_ylabel(f"{gates.name}\nunits, by how long they hold", fontsize=8)


def words_of_time(time: float) -> str:
    """Format a time in tokens with three digits; infinity (a gate that is always open) becomes ∞."""
    if math.isinf(time):
        return "∞"
    return f"{time:.3g}"
