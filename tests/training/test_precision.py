"""Laws of bf16 precision: a weight's bf16 copy is made once a step, and hides no gradient; narrow cells have none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from seqtrain.distributed.strategies import CachedPrecision
from seqtrain.models.layers.recurrence import CORES, Cell, run_fused
from tests.conftest import Seqtrain
from tests.support.tiny import GPT, OPTIONS, corpus, records


class Casts(TorchDispatchMode):
    """Counts copies of a matrix of this shape."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.shape, self.count = shape, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.ops.aten._to_copy.default and args[0].shape == self.shape:
            self.count += 1
        return func(*args, **(kwargs or {}))


def test_a_recurrence_casts_its_weights_once_a_step_and_not_at_each_token() -> None:
    gru = nn.GRU(4, 5, batch_first=True)
    with CachedPrecision("bf16-mixed", "cpu").forward_context(), Casts(gru.weight_hh_l0.shape) as casts:
        gru(torch.randn(2, 7, 4))
    assert casts.count == 1


def test_a_weight_that_was_read_without_gradient_first_still_gets_its_gradient() -> None:
    gru, x = nn.GRU(4, 5, batch_first=True), torch.randn(2, 7, 4)
    gradients = []
    for prefix in (False, True):
        gru.zero_grad()
        with CachedPrecision("bf16-mixed", "cpu").forward_context():
            if prefix:  # as a long text is read, whose end alone has gradients
                with torch.no_grad():
                    gru(x)
            loss = gru(x)[0].sum()
        loss.backward()
        gradients.append([weight.grad.clone() for weight in gru.parameters() if weight.grad is not None])
    assert len(gradients[1]) == 4
    assert all(map(torch.equal, *gradients))


@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_a_narrow_recurrence_is_computed_in_float32_where_bf16_would_be_slower(cell: Cell) -> None:
    core = CORES[cell](8, 64, batch_first=True)
    x, state = torch.randn(2, 7, 8), [torch.zeros(2, 1, 64)]
    with CachedPrecision("bf16-mixed", "cpu").forward_context():
        mixed = run_fused(core, x, state)[0]
    assert torch.equal(mixed, run_fused(core, x, state)[0])


@pytest.mark.long
def test_a_validation_in_the_precision_of_training_is_that_of_evaluate_and_not_that_of_float32(
    seqtrain: Seqtrain, tmp_path: Path
) -> None:
    corpus(tmp_path)
    losses = {}
    for precision in ("full", "training"):
        words = ("trainer.precision=bf16-mixed", f"trainer.eval_precision={precision}", f"run_dir={precision}")
        trained = seqtrain("train", *OPTIONS, *GPT, *words, "trainer.max_steps=3", cwd=tmp_path)
        assert trained.rc == 0, trained.err
        losses[precision] = [
            line["validation/loss"] for line in records(tmp_path / precision) if "validation/loss" in line
        ]
        evaluated = json.loads(seqtrain("evaluate", precision, "--json", cwd=tmp_path).out)
        assert evaluated["metrics"]["loss"] == losses[precision][-1]
    assert 0 < abs(losses["full"][-1] - losses["training"][-1]) < 0.01
