"""Laws of the learner's own step."""

from __future__ import annotations

import torch

from seqtrain.training.learner import Learner


def test_the_learner_s_gradients_are_forgotten_as_torch_forgets_them() -> None:
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    layer(torch.ones(1, 2)).sum().backward()
    Learner.optimizer_zero_grad(object.__new__(Learner), 0, 0, optimizer)
    assert all(weight.grad is None for weight in layer.parameters())
