"""Laws of adapters: at first a model is its parent, the parent's weights stay, and merging changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel
from seqtrain.training.adapters import LowRank, NewRows, adapt, merge
from seqtrain.training.optim.groups import parameter_groups
from tests.support.model_cases import VOCABULARY, Case, starting

MODELS = ("gpt", "bert", "lstm", "gru", "rnn", "min_gru", "encoder_decoder", "rnn_encoder_decoder")
TOKENS = torch.arange(24).remainder(VOCABULARY).view(2, 12)


def config(**given: Any) -> DictConfig:
    adapter = {"rank": 2, "alpha": 4.0, "targets": ["all"], "train": [], **given}
    return OmegaConf.create({"adapter": adapter, "seed": 1, "freeze": []})


@torch.no_grad()
def read(model: SequenceModel) -> torch.Tensor:
    return model(TOKENS, starting(model, 2))[0]


def adapted(name: str, **given: Any) -> SequenceModel:
    model = Case(name, ()).make()
    adapt(model, config(**given), {})
    return model


def scatter(model: SequenceModel) -> None:
    """Make every change a change."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, LowRank):
                module.up.normal_(std=0.3)


def test_at_first_it_is_its_parent_and_merged_it_is_what_it_learned() -> None:
    for name in MODELS:
        plain = Case(name, ()).make()
        model = adapted(name)
        # Not to the bit: torch's recurrent kernels round otherwise where a weight is a leaf that is trained.
        assert torch.allclose(read(model), read(plain), rtol=0, atol=1e-15), name
        scatter(model)
        learned = read(model)
        assert not torch.allclose(learned, read(plain), atol=1e-3), name
        merge(model)
        assert torch.allclose(read(model), learned, rtol=0, atol=1e-15), name
        assert model.state_dict().keys() == plain.state_dict().keys(), name


def test_the_state_dict_holds_what_is_trained_alone_and_loads_into_another() -> None:
    for name in MODELS:
        model, other = adapted(name), adapted(name)
        scatter(model)
        saved = model.state_dict()
        assert saved, name
        assert all(key.endswith((".up", ".down")) for key in saved), name
        other.load_state_dict(saved)
        assert torch.equal(read(other), read(model)), name


def test_every_adapter_learns_and_nothing_of_the_parent_does() -> None:
    for name in MODELS:
        model = adapted(name)
        scatter(model)
        model(TOKENS, starting(model, 2))[0].square().sum().backward()
        trained = {key: weight for key, weight in model.named_parameters() if weight.requires_grad}
        assert trained, name
        assert all(key.endswith((".up", ".down")) for key in trained), name
        for key, weight in trained.items():
            assert weight.grad is not None, (name, key)
            assert weight.grad.abs().sum() > 0, (name, key)


def test_no_optimizer_takes_an_adapter_for_a_map_and_each_is_of_the_layer_that_it_changes() -> None:
    model = adapted("gpt")
    groups = parameter_groups(model, torch.nn.Linear(4, 2).double(), layer_decay=0.5)
    assert {group["role"] for group in groups} == {"other", "vectors"}
    scales = {id(weight): group["lr_scale"] for group in groups for weight in group["params"]}
    for key, weight in model.named_parameters():
        if weight.requires_grad:
            assert scales[id(weight)] == 0.5 ** (2 - int(key.split(".")[1])), key


def test_new_rows_of_an_embedding_are_trained_and_the_others_stay() -> None:
    model = Case("lstm", ()).make()
    before: torch.Tensor = model.embed.weight.detach().clone()  # type: ignore[operator,union-attr,assignment]
    adapt(model, config(), {"embed.weight": 2})
    tokens = torch.cat([TOKENS, torch.tensor([[VOCABULARY + 1], [VOCABULARY + 2]])], 1)
    assert "embed.parametrizations.weight.0.rows" in model.state_dict()
    rows = next(module for module in model.modules() if isinstance(module, NewRows))
    with torch.no_grad():
        rows.rows.add_(1)
    model(tokens)[0].sum().backward()
    assert rows.rows.grad is not None
    assert rows.rows.grad.abs().sum() > 0
    after: torch.Tensor = model.embed.weight  # type: ignore[assignment]
    assert torch.equal(after[:-2], before[:-2])
    assert torch.equal(after[-2:], before[-2:] + 1)


def test_targets_are_whole_parts_of_names_and_a_part_may_be_trained_as_a_whole() -> None:
    keys = adapted("gpt", targets=["attention"], train=["norm"]).state_dict().keys()
    assert keys == {
        *(f"blocks.{n}.attention.{m}.parametrizations.weight.0.{w}"
          for n in (0, 1) for m in ("query_key_value", "out") for w in ("up", "down")),
        "norm.weight",
    }  # fmt: skip


def test_a_weight_that_the_parent_has_not_is_refused() -> None:
    with pytest.raises(UserError, match=r"init_from has no norm\.weight"):
        adapt(Case("gpt", ()).make(), config(), {"norm.weight": 8})
