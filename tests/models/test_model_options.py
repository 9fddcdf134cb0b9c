"""No option of a model is idle: another value gives other weights, or other hidden states from the same weights."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from seqtrain.config.options import FrontEndOptions
from seqtrain.config.targets import resolve
from seqtrain.models.base import idle_of, name_of
from seqtrain.tasks.least_squares import linear_order_of
from seqtrain.training.model_and_task import make_model
from tests.support.model_cases import TABLE, VOCABULARY, Case, cases, some_tokens, starting

NUMBERS = {"dim": 16, "num_layers": 3, "num_heads": 4, "attention_window": 2, "kernel_size": 5, "dim_feedforward": 24}
NUMBERS |= {"num_kv_heads": 1, "head_dim": 6}
PLAIN = [case for case in cases() if not case.options]
LEARNED = {"positions": "learned", "max_length": TABLE}


def others(name: str, kind: Any, value: Any) -> list[Any]:
    """What else an option can be."""
    if name in ("mixers", "options"):  # the options of each mixer are held to its own laws
        return [["lstm"]] if name == "mixers" else []
    if NoneType in get_args(kind):
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) is Literal:
        return [each for each in get_args(kind) if each != value]
    if kind is bool:
        return [not value]
    return [0.5] if kind is float else [NUMBERS.get(name, 2 * (value or 4))]


def changes(case: Case) -> Iterator[tuple[bool, dict[str, Any], dict[str, Any]]]:
    """Yield for each other value of an option whether it is called idle, what it needs, and that with the value."""
    node: Any = OmegaConf.to_container(case.config(), resolve=True)["model"]  # type: ignore[index,call-overload]
    target = resolve(node["_target_"])
    hints = get_type_hints(target.__init__)
    hints |= get_type_hints(FrontEndOptions)
    for key in (key for key in node if key[0] != "_"):
        base = LEARNED if key == "max_length" else {}
        for value in others(key, hints[key], {**node, **base}[key]):
            more = LEARNED if value == "learned" else {key: value}
            yield key in idle_of(target, node), base, {**base, **more}


def read(case: Case, options: dict[str, Any]) -> tuple[Any, Tensor]:
    """What a model's weights are, and what it gives in training where they are drawn from one seed."""
    model = make_model(case.config(**options), VOCABULARY).double().train()
    drawn = {name: (weight.shape, float(weight.detach().sum())) for name, weight in model.named_parameters()}
    torch.manual_seed(1)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.4)
    # Weights that a task sets before the first step are other ones, though they are drawn alike.
    weights = drawn, linear_order_of(model)
    return weights, model(some_tokens(3, 12, specials=3), starting(model, 3))[0]


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_each_option_of_a_model_changes_what_it_computes_unless_the_model_calls_it_idle(case: Case) -> None:
    wrong = []
    for idle, before, after in changes(case):
        (weights, one), (others, two) = read(case, before), read(case, after)
        same = weights == others and (torch.equal(one, two) if idle else torch.allclose(one, two, atol=1e-6))
        if same != idle:
            wrong.append(f"{before} -> {after}: called idle: {idle}, changes nothing: {same}")
    assert wrong == []


def test_the_feed_forward_part_is_as_wide_as_asked_or_four_times_the_model() -> None:
    for name, (asked, width) in product(("gpt", "bert", "encoder_decoder"), ((None, 32), (24, 24))):
        model = Case(name, ()).make(dim_feedforward=asked)
        found = {part.out_features for key, part in model.named_modules() if key.endswith(".wide")}  # type: ignore[union-attr]
        assert found == {width}, name


def test_a_shipped_model_is_called_as_it_is_typed() -> None:
    assert [name_of(case.make()) for case in PLAIN] == [case.name for case in PLAIN]
