"""Laws of pairs of two kinds: what of a source each decoder begins from, and what is said of an option of neither."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

from seqtrain.config import check
from seqtrain.models.layers.recorder import recording
from seqtrain.training import effects
from seqtrain.training.cost import HasParts
from tests.support.model_cases import Case, assert_near, some_tokens

BATCH, SOURCE, TIME = 3, 6, 4
LENGTHS = torch.tensor([6, 2, 4])


def made(encoder: str, decoder: str, **options: Any) -> Any:
    """Two layers of 8 on either side, in float64."""
    return Case("encoder_decoder", (("encoder", encoder), ("decoder", decoder))).make(**options)


@pytest.mark.parametrize("encoder", ["transformer", "cnn"])
@pytest.mark.parametrize("decoder", ["rnn", "gru", "lstm"])
def test_behind_an_encoder_without_states_a_recurrence_begins_from_the_mean_of_what_is_real(
    encoder: str, decoder: str
) -> None:
    model, source = made(encoder, decoder), some_tokens(BATCH, SOURCE)
    state = model.begin(source, LENGTHS)
    for lane, length in enumerate(LENGTHS.tolist()):
        alone = source[lane : lane + 1, :length]
        out = model.source_norm(model.encoder(model.embed(alone), None).out)[0]
        assert_near(state["encoder_out"][lane, :length], out)
        assert not state["encoder_out"][lane, length:].any()
        for name in model.decoder.state_names:
            first = (model.decoder.bridge[name].weight @ out.mean(0)).tanh()
            assert_near(state[name][lane].flatten(), first)


def test_a_cell_begins_from_the_hidden_states_of_an_encoder_that_has_none() -> None:
    model, source = made("gru", "lstm"), some_tokens(BATCH, SOURCE)
    last = model.encoder(model.embed(source), LENGTHS).last
    state = model.begin(source, LENGTHS)
    for name in ("hidden", "cell"):
        assert_near(state[name].flatten(1), (last["hidden"] @ model.decoder.bridge[name].weight.T).tanh())


@pytest.mark.parametrize(
    ("encoder", "decoder", "within", "names"),
    [
        ("transformer", "gru", 2, ["cross"]),
        ("gru", "transformer", 0, ["layer 1 self", "layer 1 cross", "layer 2 self", "layer 2 cross"]),
        ("cnn", "gru", 0, ["cross"]),
    ],
)
def test_whichever_side_attends_hands_out_its_maps(encoder: str, decoder: str, within: int, names: list[str]) -> None:
    model = made(encoder, decoder)
    with recording() as source_maps:
        state = model.begin(some_tokens(BATCH, SOURCE), LENGTHS)
    with recording() as maps:
        model(some_tokens(BATCH, TIME), state)
    assert [found.name for found in source_maps] == [f"layer {layer + 1} source self" for layer in range(within)]
    assert [found.name for found in maps] == names
    for name, weights in maps:
        if name.endswith("cross"):
            assert weights.shape[2:] == (TIME, SOURCE)
            assert not weights[1, ..., 2:].any()


def test_the_two_sides_are_all_of_a_model_but_its_front_ends() -> None:
    model = made("lstm", "transformer")
    sides = [
        weight for modules in cast(HasParts, model).parts().values() for part in modules for weight in part.parameters()
    ]
    fronts = {*model.embed.parameters(), *model.target_embed.parameters()}
    assert {*sides} | fronts == {*model.parameters()}
    assert len(sides) + len(fronts) == len([*model.parameters()])


def test_an_option_of_either_side_is_taken() -> None:
    overrides = ["task=translation", "model.encoder=cnn", "model.kernel_size=5", "model.decoder=gru"]
    overrides += ["model.attention=dot"]
    effects.check(check.compose(overrides).config, overrides)
