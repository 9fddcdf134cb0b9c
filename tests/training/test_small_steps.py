"""What Lightning is spared at each step leaves out nothing that does something."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from seqtrain.training.learner import Learner
from seqtrain.training.small_steps import HOOKS_OF_A_STEP, NoProfiler, leave_out_empty_hooks


class Module(LightningModule):
    """One weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        return self.layer(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def called(hook: str, *, after: Any) -> list[str]:
    """The hooks that a callback with this one alone hears of in two steps; `after` sees the callbacks before them."""
    heard: list[str] = []
    listening = type("Listening", (Callback,), {hook: lambda self, *args: heard.append(hook)})()
    callbacks = [Callback(), listening]
    after(callbacks)
    trainer = Trainer(
        accelerator="cpu",
        max_steps=2,
        callbacks=callbacks,
        profiler=NoProfiler(),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(2, 1)))  # pyright: ignore[reportArgumentType]
    return heard


@pytest.mark.parametrize("hook", HOOKS_OF_A_STEP)
def test_a_callback_with_a_hook_of_its_own_hears_of_each_step(hook: str) -> None:
    assert called(hook, after=leave_out_empty_hooks) == called(hook, after=lambda callbacks: None) == [hook, hook]


def test_lightning_calls_no_hook_of_a_callback_that_has_none() -> None:
    callback = Callback()
    leave_out_empty_hooks([callback])
    assert not any(callable(getattr(callback, name)) for name in HOOKS_OF_A_STEP)
    assert callable(callback.on_fit_start)


def test_the_learner_s_gradients_are_forgotten_as_torch_forgets_them() -> None:
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    layer(torch.ones(1, 2)).sum().backward()
    Learner.optimizer_zero_grad(object.__new__(Learner), 0, 0, optimizer)
    assert all(weight.grad is None for weight in layer.parameters())
