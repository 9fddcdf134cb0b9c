"""Laws of bf16 precision: a weight's bf16 copy is made once a step, and hides no gradient."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from seqtrain.training.precision import CachedPrecision


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
