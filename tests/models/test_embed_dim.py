"""Laws of an embedding narrower than its model: one table in two factors, on the way in and in a tied head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from seqtrain.errors import UserError
from seqtrain.hub import leave
from seqtrain.models.base import SequenceModel
from seqtrain.tasks.bidirectional_lm import BidirectionalLM
from seqtrain.tasks.next_token import NextToken
from seqtrain.training.cost import count
from tests.support.model_cases import VOCABULARY, Case, assert_near, some_tokens, starting

NARROW = 3
NAMES = ["bert", "cbow", "cnn", "elmo", "encoder_decoder", "gpt", "gru", "lstm", "min_gru", "mlp", "rnn", "stack"]


def with_product(name: str) -> tuple[SequenceModel, SequenceModel]:
    """A model with a table in two factors, and the same with their product as its table."""
    narrow, wide = Case(name, ()).make(embed_dim=NARROW), Case(name, ()).make()
    given = dict(narrow.state_dict())
    for front in ("embed", "target_embed"):
        projection = given.pop(f"{front}.projection", None)
        if projection is not None:
            given[f"{front}.weight"] = given[f"{front}.weight"] @ projection.T
    wide.load_state_dict(given)
    return narrow, wide


def head(model: SequenceModel, embed_dim: int | None = None) -> Any:
    if model.embed is not None and hasattr(model, "directions"):
        return BidirectionalLM(tied=True, dim=model.dim, vocab_size=VOCABULARY, embed_dim=embed_dim).double()
    return NextToken(tied=True, dim=model.dim, vocab_size=VOCABULARY, embed_dim=embed_dim).double()


def test_a_table_in_two_factors_is_read_and_scored_with_as_their_product() -> None:
    tokens = some_tokens(2, 5)
    for name in NAMES:
        narrow, wide = with_product(name)
        one, two = (model(tokens, starting(model, 2))[0] for model in (narrow, wide))
        assert_near(one, two)
        if name != "elmo":  # whose head reads each direction by itself
            assert_near(head(narrow).logits(narrow, one), head(wide).logits(wide, two))
        fronts = 1 if narrow.embed is getattr(narrow, "target_embed", narrow.embed) else 2
        rows = len(wide.embed.weight)  # type: ignore[arg-type]
        assert count(wide) - count(narrow) == fronts * (rows * (wide.dim - NARROW) - wide.dim * NARROW), name


def test_the_operations_of_a_narrow_tied_head_are_those_that_torch_counts() -> None:
    model = Case("gpt", ()).make(embed_dim=NARROW)
    task = head(model, NARROW)
    with FlopCounterMode(display=False) as counter:
        task.logits(model, torch.zeros(1, model.dim, dtype=torch.double))
    assert counter.get_total_flops() == task.head_flops()


def test_a_model_that_says_its_operations_counts_the_map_behind_the_table() -> None:
    model = Case("encoder_decoder", ()).make(embed_dim=NARROW)
    assert model.flops_per_token(7, False) == pytest.approx(SequenceModel.flops_per_token(model, 7, False), rel=1e-12)


def test_gradients_reach_both_factors_through_a_tied_head_and_the_way_in() -> None:
    model = Case("gru", ()).make(embed_dim=NARROW)
    tokens = some_tokens(2, 5, specials=0)
    head(model).output(model, model(tokens)[0]).loss(tokens).backward()
    for name in ("weight", "projection"):
        grad = getattr(model.embed, name).grad
        assert grad is not None
        assert grad.any()


def test_no_published_family_has_a_narrow_table(tmp_path: Path) -> None:
    model: Any = nn.Identity()
    with pytest.raises(UserError, match=r"--format hub: model.embed_dim=3: published families have embeddings as wide"):
        leave.save(model, None, None, {"embed_dim": NARROW}, lambda lines: "", tmp_path / "out")  # type: ignore[arg-type]
