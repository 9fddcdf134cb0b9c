"""Laws of gates: they are those that torch's fused kernels used, and stand at the tokens that were read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest
import torch
from torch import nn

from seqtrain.api import Trained
from seqtrain.inference import gates
from seqtrain.inference.gates import GATED, Gates, draw, look, words_of_time
from tests.support.model_cases import cases
from tests.support.untrained_runs import NEXT_TOKEN, SENTIMENT, TEXTS, double, make_run

TEXT = TEXTS[0]
NEXT = ("task=next_token", "tokenizer=char", "model.num_layers=2")
PAIR = ("task=translation", "model=rnn_encoder_decoder", "tokenizer=char", "model.num_layers=2")
RUNS = {
    "lstm": (*NEXT, "model=lstm"),
    "gru": (*NEXT, "model=gru"),
    "bare": (*NEXT, "model=lstm", "model.bias=false"),
    "learned": (*NEXT, "model=gru", "model.learned_state=true"),
    "both": (*SENTIMENT, "model.bidirectional=true", "model.num_layers=2"),
    "both_learned": (*SENTIMENT, "model=lstm", "model.bidirectional=true", "model.learned_state=true"),
    "additive": PAIR,
    "dot": (*PAIR, "model.attention=dot", "model.encoder=lstm", "model.decoder=lstm", "model.bidirectional=false"),
    "prefix": ("task=translation", "model=lstm", "tokenizer=char"),
    "gpt": NEXT_TOKEN,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: double(make_run(folder / name, *overrides)) for name, overrides in RUNS.items()}


# -- values ------------------------------------------------------------------------------------------------------


def test_gates_are_those_of_the_fused_kernels(trained: dict[str, Trained]) -> None:
    for name in ("lstm", "gru", "bare", "learned", "both", "both_learned"):
        run = trained[name]
        tokens, *_ = run._looked_at(TEXT, None)
        with torch.no_grad():
            hidden, state = run.model(torch.tensor([tokens]))
        layers = run.gates(TEXT)
        last = [gates.values["hidden"] for gates in layers[-1 if "both" not in name else -2 :]]
        torch.testing.assert_close(torch.cat(last, -1), hidden[0], rtol=0, atol=1e-12)
        for place, gate in enumerate(layers):
            for kept in {"hidden", "cell"} & state.keys():  # of all layers, what is left at the end
                torch.testing.assert_close(gate.values[kept][-1], state[kept][0, place], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["additive", "dot", "prefix"])
def test_gates_of_a_pair_are_those_of_its_two_networks(name: str, trained: dict[str, Trained]) -> None:
    run = trained[name]
    seen: list[tuple[nn.Module, Any]] = []
    hooks = []
    for module in run.model.modules():
        if isinstance(module, nn.LSTM | nn.GRU | nn.LSTMCell | nn.GRUCell):
            hooks.append(module.register_forward_hook(lambda module, args, out: seen.append((module, out))))
    layers = run.gates(TEXT, "a film")
    for hook in hooks:
        hook.remove()
    # What each fused call, or step of a cell, gave as its last output.
    theirs = [out[0][0, -1] if isinstance(module, nn.RNNBase) else None for module, out in seen]
    found = [gates.values["hidden"] for gates in layers]
    for last in (value for value in theirs if value is not None):
        # A layer that reads backwards ends at the first token.
        assert any(min(_apart(last, hidden[-1]), _apart(last, hidden[0])) < 1e-12 for hidden in found)
    if name == "additive":
        cells = [out for module, out in seen if isinstance(module, nn.GRUCell)]
        for place, gates in enumerate(layers[-2:]):  # two cells take turns
            steps = torch.cat(cells[place::2])
            torch.testing.assert_close(gates.values["hidden"], steps, rtol=0, atol=1e-12)


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    if one.shape != other.shape:
        return math.inf
    return (one - other).abs().max().item()


def test_layers_and_tokens_are_named_as_they_are_read(trained: dict[str, Trained]) -> None:
    one, two = trained["lstm"].gates("tired")
    assert (one.name, two.name) == ("layer 1", "layer 2")
    assert one.tokens == two.tokens == ["[start]", *"tired"]
    assert [gates.name for gates in trained["both"].gates("tired")] == [
        f"layer {layer} {way}" for layer in (1, 2) for way in ("forwards", "backwards")
    ]
    names = [(gates.name, gates.tokens) for gates in trained["additive"].gates("tired", "a film")]
    source, target = [*"tired", "[sep]"], ["[start]", *"a film"]
    assert names[0] == ("encoder layer 1 forwards", source)
    assert names[3:] == [
        ("encoder layer 2 backwards", source),
        ("decoder layer 1", target),
        ("decoder layer 2", target),
    ]
    (one,) = trained["prefix"].gates("tired", "a")  # which reads source and target as one text
    assert (one.name, one.tokens) == ("layer 1", [*"tired", "[sep]", "[start]", "a"])


def test_what_reads_backwards_knows_nothing_of_earlier_tokens(trained: dict[str, Trained]) -> None:
    one, other = trained["both"].gates("abbad"), trained["both"].gates("eabbad")
    assert [gates.name for gates in one[:2]] == ["layer 1 forwards", "layer 1 backwards"]
    # The way back meets the same tokens; the way there begins with another one.
    same = [_apart(a.values["hidden"][1:], b.values["hidden"][2:]) for a, b in zip(one[:2], other[:2], strict=True)]
    assert same[1] < 1e-12 < same[0]


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_unit_holds_as_long_as_its_gate_lets_it(name: str) -> None:
    run = nn.Module()
    core = {"lstm": nn.LSTM, "gru": nn.GRU}[name](3, 4, batch_first=True).double()
    run.embed = nn.Embedding(9, 3, dtype=torch.double)
    run.core = core
    run.forward = lambda tokens, state=None: core(run.embed(tokens))  # type: ignore[method-assign]
    with torch.no_grad():
        for weight in core.parameters():
            weight.zero_()
        # The second of torch's gates: forget of an LSTM, update of a GRU.
        core.bias_ih_l0[4:8] = torch.tensor([0.1, 0.5, 0.9, 0.99], dtype=torch.double).logit()
    (gates,) = look(run, [1, 2, 3], str)  # type: ignore[arg-type]
    expected = [-1 / math.log(mean) for mean in (0.1, 0.5, 0.9, 0.99)]
    torch.testing.assert_close(gates.hold_times.tolist(), expected)
    assert gates.order.tolist() == [3, 2, 1, 0]


def test_models_with_gates_are_named() -> None:
    gated = set()
    for case in (case for case in cases() if not case.is_mixture):
        kinds = {type(module).__name__.removesuffix("Cell") for module in case.make().modules()}
        gated |= {case.name} if {"LSTM", "GRU"} & kinds else set()
    assert gated == {name.partition(" ")[0] for name in GATED}


# -- pictures ----------------------------------------------------------------------------------------------------


def some_gates(layers: int, tokens: list[str], units: int) -> list[Gates]:
    made = []
    for layer in range(layers):
        values = {name: torch.rand(len(tokens), units) for name in ("input", "forget", "output")}
        values |= {name: torch.randn(len(tokens), units) for name in ("cell", "hidden")}
        made.append(Gates(f"layer {layer + 1}", "lstm", tokens, values))
    return made


@pytest.mark.long
def test_a_picture_says_what_it_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gates.png"
    monkeypatch.setattr(gates, "MAX_LAYERS", 2)
    monkeypatch.setattr(gates, "MAX_TOKENS", 5)
    monkeypatch.setattr(gates, "MAX_UNITS", 7)
    monkeypatch.setattr(gates, "MAX_PIXELS", 900)
    assert draw(some_gates(2, ["a"] * 5, 7), path, "title") == ""
    assert draw(some_gates(3, ["a"] * 9, 8), path, "title") == "1 of 3 layers, 1 of 8 units, 4 of 9 tokens"
    height, width, _ = matplotlib.image.imread(path).shape
    assert 890 <= max(height, width) <= 901


def test_a_gate_that_is_always_open_holds_without_end(tmp_path: Path) -> None:
    (gates,) = some_gates(1, ["a", "b"], 2)
    gates.values["forget"][:, 0] = 1.0
    assert gates.hold_times[0] == math.inf
    assert gates.order[0] == 0
    assert words_of_time(math.inf) == "∞"
    assert draw([gates], tmp_path / "gates.png", "title") == ""
