"""The recurrent models against torch.nn's stacks on packed sequences, with the same weights."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqtrain.models.recurrent import Recurrent
from tests.support.model_cases import Case, some_tokens

CORES = {"rnn-tanh": nn.RNN, "rnn-relu": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
LENGTHS = torch.tensor([7, 11, 1, 4])


def made(kind: str, num_layers: int, bidirectional: bool, **options: Any) -> Recurrent:
    name, _, activation = kind.partition("-")
    options |= {"activation": activation} if activation else {}
    model = Case(name, ()).make(num_layers=num_layers, bidirectional=bidirectional, **options)
    assert isinstance(model, Recurrent)
    return model


def weights(model: Recurrent) -> dict[str, Tensor]:
    """The model's weights under the names that torch gives them in one stack."""
    if not model.bidirectional:
        return dict(model.layer.named_parameters())
    return {
        name.replace("_l0", f"_l{layer}") + direction: weight
        for layer, pair in enumerate(model.layers)
        for direction, core in zip(("", "_reverse"), pair, strict=True)  # type: ignore[arg-type]
        for name, weight in core.named_parameters()
    }


def stack(kind: str, model: Recurrent) -> nn.RNNBase:
    """torch's own stack, in the model's precision."""
    units = model.dim // 2 if model.bidirectional else model.dim
    options: dict[str, Any] = {"nonlinearity": kind.partition("-")[2]} if kind.startswith("rnn") else {}
    options |= {"batch_first": True, "bidirectional": model.bidirectional, "dtype": next(model.parameters()).dtype}
    options |= {"bias": model.bias}
    core = CORES[kind](model.dim, units, model.num_layers, **options)
    core.load_state_dict(weights(model))
    return core


def first_state(model: Recurrent) -> Any:
    """The state that the model begins from, as torch's stack takes it for four lanes; None where that is zeros."""
    if model.first is None:
        return None
    ways = ("", "_reverse") if model.bidirectional else ("",)
    parts = [
        torch.stack([model.first[f"{part}_l{layer}{way}"] for layer in range(model.num_layers) for way in ways])
        for part in model.state_names
    ]
    states = [part.unsqueeze(1).expand(-1, len(LENGTHS), -1).contiguous() for part in parts]
    return tuple(states) if len(states) > 1 else states[0]


OPTIONS = [{}, {"bias": False}, {"learned_state": True}]


@pytest.mark.parametrize("kind", CORES)
def test_uneven_lanes_equal_torchs_packed_sequences(kind: str) -> None:
    tokens = some_tokens(4, 11)
    for num_layers, bidirectional, options in product((1, 2), (False, True), OPTIONS):
        case = (num_layers, bidirectional, options)
        model = made(kind, num_layers, bidirectional, **options)
        packed = pack_padded_sequence(model.embed(tokens), LENGTHS, batch_first=True, enforce_sorted=False)
        out, last = stack(kind, model)(packed, first_state(model))
        expected = pad_packed_sequence(out, batch_first=True)[0]
        hidden, after = model(tokens, None, LENGTHS)
        for lane, length in enumerate(LENGTHS.tolist()):
            assert torch.allclose(hidden[lane, :length], expected[lane, :length], rtol=0, atol=1e-9), case
        for name, value in zip(after, last if isinstance(last, tuple) else (last,), strict=False):
            assert torch.allclose(after[name], value.transpose(0, 1), rtol=0, atol=1e-9), case
