"""The recurrent encoder-decoder against its equations, a step at a time, and against torch's packed encoder."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqtrain.models.encoder_decoder import EncoderDecoder
from seqtrain.models.layers.front_ends import TokenEmbedding
from seqtrain.models.layers.recorder import recording
from seqtrain.models.layers.recurrence import CORES
from tests.support.model_cases import Case, assert_near, some_tokens

BATCH, SOURCE, TIME = 4, 6, 5
LENGTHS = torch.tensor([6, 1, 4, 3])
PARTS = {"rnn": ("hidden",), "gru": ("hidden",), "lstm": ("hidden", "cell")}
ATTENTIVE = pytest.mark.parametrize("attention", ["additive", "dot"])


def made(*, cell: str = "gru", **options: Any) -> Any:
    """Two layers of 8 on either side, in float64."""
    return Case("rnn_encoder_decoder", ()).make(encoder=cell, decoder=cell, **options)


def sources() -> Tensor:
    return some_tokens(BATCH, SOURCE, seed=3)


Parts = tuple[Tensor, ...]


def elman(x: Tensor, state: Parts, weights: Parts) -> Parts:
    into, over, bias, bias_over = weights
    return (torch.tanh(into @ x + bias + over @ state[0] + bias_over),)


def gru(x: Tensor, state: Parts, weights: Parts) -> Parts:
    into, over, bias, bias_over = weights
    forget, update, candidate = (into @ x + bias).chunk(3)
    forget_over, update_over, candidate_over = (over @ state[0] + bias_over).chunk(3)
    gate = (update + update_over).sigmoid()
    new = (candidate + (forget + forget_over).sigmoid() * candidate_over).tanh()
    return ((1 - gate) * new + gate * state[0],)


def lstm(x: Tensor, state: Parts, weights: Parts) -> Parts:
    into, over, bias, bias_over = weights
    enter, forget, new, leave = (into @ x + bias + over @ state[0] + bias_over).chunk(4)
    cell = forget.sigmoid() * state[1] + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * cell.tanh(), cell


CELLS = {"rnn": elman, "gru": gru, "lstm": lstm}


def weights_of(core: nn.RNNBase, layer: int) -> Parts:
    return tuple(getattr(core, f"{kind}_l{layer}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))


@pytest.mark.parametrize(("cell", "bidirectional"), product(PARTS, (True, False)))
def test_sources_are_read_as_torch_reads_packed_sequences(cell: str, bidirectional: bool) -> None:
    model, units = made(cell=cell, bidirectional=bidirectional, attention="dot"), 4 if bidirectional else 8
    core: Any = CORES[cell](8, units, 2, batch_first=True, bidirectional=bidirectional, dtype=torch.float64)  # type: ignore[index]
    with torch.no_grad():
        for layer, directions in enumerate(model.encoder.layers):
            for suffix, own in zip(("", "_reverse"), directions, strict=False):  # type: ignore[arg-type]
                for name, weight in own.named_parameters():
                    core.get_parameter(name.replace("_l0", f"_l{layer}") + suffix).copy_(weight)
    packed = pack_padded_sequence(model.embed(sources()), LENGTHS, batch_first=True, enforce_sorted=False)
    encoder_out, last = core(packed)
    state = model.begin(sources(), LENGTHS)
    assert_near(state["encoder_out"], pad_packed_sequence(encoder_out, batch_first=True)[0])
    for part, final in zip(PARTS[cell], last if cell == "lstm" else (last,), strict=True):
        joined = final.view(2, -1, BATCH, units).permute(2, 0, 1, 3).reshape(BATCH, 16)
        assert_near(state[part].flatten(1), (joined @ model.decoder.bridge[part].weight.T).tanh())  # type: ignore[operator]


def shared(scores: list[Tensor], encoder_out: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax weights of one step, and the sum of the memory that they weigh."""
    weights = torch.stack(scores).softmax(0)
    return weights, sum((weight * vector for weight, vector in zip(weights, encoder_out, strict=True)), torch.zeros(8))


def by_hand(model: Any, cell: str, state: dict[str, Tensor], target: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden states (T, D) and attention maps (T, S) of one lane, in the papers' equations."""
    decoder: Any = model.decoder.steps
    fused = {"none": decoder, "dot": getattr(decoder, "recurrence", None)}.get(model.decoder.attention)
    carried: list[Parts] = [tuple(state[part][0, layer] for part in PARTS[cell]) for layer in range(2)]
    encoder_out = state["encoder_out"][0] if model.decoder.attention != "none" else torch.zeros(0, 8)
    hidden, maps, weights, context = [], [], torch.zeros(0), torch.zeros(0)
    for token in target:
        word = x = model.target_embed(token)
        if model.decoder.attention == "additive":
            query = decoder.query(carried[-1][0])
            weights, context = shared(
                [decoder.score @ (query + decoder.key(m)).tanh() for m in encoder_out], encoder_out
            )
            x = torch.cat([word, context])
        for layer in range(2):
            own = tuple(decoder.cells[layer].parameters()) if fused is None else weights_of(fused.core, layer)
            carried[layer] = CELLS[cell](x, carried[layer], own)
            x = carried[layer][0]
        if model.decoder.attention == "additive":
            x = decoder.readout(torch.cat([x, context, word])).tanh()
        elif model.decoder.attention == "dot":
            weights, context = shared([x @ decoder.query.weight.T @ m for m in encoder_out], encoder_out)
            x = decoder.readout(torch.cat([context, x])).tanh()
        hidden.append(x)
        maps.append(weights)
    return torch.stack(hidden), torch.stack(maps)


@pytest.mark.parametrize(("cell", "attention"), product(PARTS, ("none", "additive", "dot")))
def test_targets_are_read_by_the_papers_equations(cell: str, attention: str) -> None:
    model, targets = made(cell=cell, attention=attention), some_tokens(BATCH, TIME, seed=4)
    with recording() as maps:
        hidden, _ = model(targets, model.begin(sources(), LENGTHS))
    assert len(maps) == (attention != "none")
    for lane, length in enumerate(LENGTHS.tolist()):
        state = model.begin(sources()[lane : lane + 1, :length])
        expected, weights = by_hand(model, cell, state, targets[lane])
        assert_near(hidden[lane], expected)
        for name, found in maps:
            assert (name, found.shape) == ("cross", (BATCH, 1, TIME, SOURCE))
            assert_near(found[lane, 0, :, :length], weights)
            assert not found[lane, 0, :, length:].any()


@ATTENTIVE
def test_an_empty_source_gets_no_attention_and_leaves_the_state_of_nothing(attention: str) -> None:
    model, targets = made(attention=attention), some_tokens(BATCH, TIME, seed=4)
    empty = model.begin(sources()[:, :1], torch.zeros(BATCH, dtype=torch.long))
    assert_near(empty, model.initial(BATCH), 0)
    with recording() as maps:
        hidden = model(targets, empty)[0]
    hidden.sum().backward()
    assert hidden.isfinite().all()
    assert not maps[0].weights.any()
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.grad is not None)


def test_without_attention_the_latent_state_is_all_that_is_left_of_a_source() -> None:
    for cell, parts in PARTS.items():
        state = made(cell=cell, attention="none").begin(sources(), LENGTHS)
        assert {name: value.shape for name, value in state.items()} == dict.fromkeys(parts, (BATCH, 2, 8))


def test_source_and_target_have_front_ends_of_their_own() -> None:
    embeds = [TokenEmbedding(vocab_size=size, dim=8, specials=3) for size in (4, 50)]
    options: dict[str, Any] = {"encoder": "gru", "decoder": "gru", "dim": 8, "num_layers": 1, "dropout": 0.0}
    model = EncoderDecoder(embed=embeds[0], target_embed=embeds[1], attention="dot", **options)
    hidden = model(torch.tensor([[52, 41]]), model.begin(torch.tensor([[0, 6]])))[0]
    hidden.sum().backward()
    touched = [embed.weight.grad.abs().sum(-1).nonzero().flatten().tolist() for embed in embeds]  # type: ignore[union-attr]
    assert touched == [[0, 6], [41, 52]]
