"""Muon (Jordan et al. 2024) on the hidden matrices and AdamW on the rest, as one optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import AdamW, Optimizer
from torch.optim import Muon as MatrixMuon


class Muon(Optimizer):
    """Takes groups with a `role`; those with role `hidden` hold 2-D weights and get Muon's orthogonalised update.

    The update is scaled to the size of AdamW's (Liu et al. 2025, arXiv 2502.16982), so `lr` and `lr_rest` compare.
    """

    def __init__(
        self,
        params: list[dict[str, Any]],
        *,
        lr: float,
        lr_rest: float,
        momentum: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        # Each group says its learning rate: schedules and checkpoints of this optimizer look into groups alone.
        groups = []
        for group in params:
            groups.append({"lr": lr if group["role"] == "hidden" else lr_rest, **group})
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay})
        hidden, rest = self._groups_by_optimizer()
        self._optimizers: list[Optimizer] = []
        if hidden:
            self._optimizers.append(MatrixMuon(hidden, lr, weight_decay, momentum, adjust_lr_fn="match_rms_adamw"))
        if rest:
            self._optimizers.append(AdamW(rest, lr_rest, (betas[0], betas[1]), eps, weight_decay, fused=True))

    def _groups_by_optimizer(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The groups that Muon updates, and those that AdamW does."""
        hidden = [group for group in self.param_groups if group["role"] == "hidden"]
        return hidden, [group for group in self.param_groups if group["role"] != "hidden"]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # Loading a checkpoint replaces groups and state: both work on whatever this optimizer holds now.
        groups_of_each = filter(None, self._groups_by_optimizer())  # an optimizer without weights was not made
        for optimizer, groups in zip(self._optimizers, groups_of_each, strict=True):
            optimizer.param_groups, optimizer.state = groups, self.state
            optimizer.step()
        return loss
