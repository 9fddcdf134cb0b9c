"""First weights: of the scale that each model's file promises, so that a deep stack starts as even as a shallow one."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from seqtrain.models.base import SequenceModel
from seqtrain.models.layers.front_ends import TokenEmbedding
from seqtrain.tasks.output import Output
from seqtrain.training.model_and_task import make_model
from tests.support.model_cases import Case

VOCABULARY, WIDTH = 600, 64
LEARNED = {"positions": "learned", "max_length": 100}


def fresh(name: str, **options: Any) -> SequenceModel:
    return make_model(Case(name, ()).config(dim=WIDTH, **options), VOCABULARY)


def scales(model: SequenceModel) -> dict[str, float]:
    """The standard deviation of each matrix by name; of a shared one once."""
    return {name: float(weight.detach().std()) for name, weight in model.named_parameters() if weight.dim() == 2}


@pytest.mark.parametrize("num_layers", [2, 8])
def test_a_decoders_matrices_are_gpt_2s_and_those_that_end_a_residual_path_shrink_with_depth(num_layers: int) -> None:
    found = scales(fresh("gpt", num_layers=num_layers, bias=True, **LEARNED))
    ends = [name for name in found if name.endswith("out.weight")]
    assert len(ends) == 2 * num_layers
    assert {name.split(".")[0] for name in found} == {"embed", "table", "blocks"}
    for name, scale in found.items():
        assert scale == pytest.approx(0.02 / math.sqrt(2 * num_layers) if name in ends else 0.02, rel=0.05), name


def test_an_encoder_decoders_matrices_keep_the_scale_of_what_they_read_both_ways() -> None:
    model = fresh("encoder_decoder", **LEARNED)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            glorot = math.sqrt(2 / (module.in_features + module.out_features))
            assert float(module.weight.detach().std()) == pytest.approx(glorot, rel=0.05)
    found = scales(model)
    for name in ("embed.weight", "encoder.front.table.weight", "decoder.front.table.weight"):
        assert found[name] == pytest.approx(WIDTH**-0.5, rel=0.05), name


def test_additive_attention_begins_with_scores_that_differ() -> None:
    score: Any = fresh("rnn_encoder_decoder", attention="additive").decoder.steps.score  # type: ignore[union-attr]
    assert float(score.detach().abs().max()) == pytest.approx(WIDTH**-0.5, rel=0.2)
    assert float(score.detach().std()) == pytest.approx((3 * WIDTH) ** -0.5, rel=0.3)


@pytest.mark.parametrize("name", ["gpt", "bert", "encoder_decoder"])
def test_biases_begin_at_0_and_gains_at_1(name: str) -> None:
    model = fresh(name, **({"bias": True} if name != "encoder_decoder" else {}))
    for module in model.modules():
        if isinstance(module, nn.Linear):
            assert module.bias is not None
            assert not module.bias.any()
        if isinstance(module, nn.LayerNorm):
            assert not module.bias.any()
            assert (module.weight == 1).all()


@pytest.mark.parametrize("dim", [16, 256])
def test_a_tied_head_gives_a_hidden_state_of_unit_scale_scores_of_unit_variance(dim: int) -> None:
    torch.manual_seed(0)
    embed = TokenEmbedding(vocab_size=2000, dim=dim, specials=3)
    scores = Output.tied(embed, torch.randn(50, dim)).logits()
    assert scores.shape == (50, 2000)
    assert float(scores.detach().std()) == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_forget_gates_begin_open_by_as_much_as_is_asked_and_nothing_else_changes(bidirectional: bool) -> None:
    options = {"num_layers": 2, "bidirectional": bidirectional}
    plain, opened = (dict(fresh("lstm", **options, forget_bias=bias).named_parameters()) for bias in (0.0, 2.0))
    units = WIDTH // 2 if bidirectional else WIDTH
    changed = 0
    for name, weight in opened.items():
        difference = (weight - plain[name]).detach()
        if "bias_ih" not in name:
            assert difference.abs().max() == 0, name
            continue
        changed += 1
        torch.testing.assert_close(difference[units : 2 * units], torch.full((units,), 2.0))
        assert difference[:units].abs().max() == difference[2 * units :].abs().max() == 0
    assert changed == (4 if bidirectional else 2)
