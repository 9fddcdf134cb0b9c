"""Muon (Jordan et al. 2024) on the hidden matrices and AdamW on the rest, as one optimizer."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import AdamW, Optimizer
from torch.optim import Muon as MatrixMuon

SMALL = 2**16  # entries of a matrix that is orthogonalised in a batch; on a CPU larger ones are faster one by one
SCALE = 0.2  # root mean square of an update, about that of AdamW (Liu et al. 2025)


class Muon(Optimizer):
    """Muon for groups with role `hidden`, which hold 2-D weights, and AdamW for all other groups.

    The update is scaled to the size of AdamW's (Liu et al. 2025, arXiv 2502.16982), so that `lr` and `lr_rest` have
    the same scale.
    """

    # Read by trainer.precision=auto: with bf16 it learned less; on a GPU float32 is several times slower.
    float32_on_cpu = True

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
        # Each group has its own learning rate: schedules and checkpoints read only the groups.
        groups = []
        for group in params:
            groups.append({"lr": lr if group["role"] == "hidden" else lr_rest, **group})
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay})
        hidden, rest = self._groups_by_optimizer()
        self._optimizers: list[Optimizer] = []
        if hidden:
            self._optimizers.append(_BatchedMuon(hidden, lr, weight_decay, momentum))
        if rest:
            self._optimizers.append(AdamW(rest, lr_rest, (betas[0], betas[1]), eps, weight_decay, fused=True))

    def _groups_by_optimizer(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the groups that Muon updates, and those that AdamW updates."""
        hidden = [group for group in self.param_groups if group["role"] == "hidden"]
        return hidden, [group for group in self.param_groups if group["role"] != "hidden"]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # Loading a checkpoint replaces groups and state: both must use those of this optimizer.
        groups_of_each = filter(None, self._groups_by_optimizer())  # an optimizer without weights was not created
        for optimizer, groups in zip(self._optimizers, groups_of_each, strict=True):
            optimizer.param_groups, optimizer.state = groups, self.state
            optimizer.step()
        return loss


class _BatchedMuon(MatrixMuon):
    """torch's Muon with Nesterov's momentum, which orthogonalises matrices of one shape together.

    For a single matrix of 128 x 128, calls cost as much as products (docs/benchmarks.md); on a GPU, for any matrix.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    by_shape[weight.shape].append(weight)
            for shape, weights in by_shape.items():
                directions = self._directions(weights, group["momentum"])
                iteration = (group["ns_coefficients"], group["ns_steps"], group["eps"])
                if shape.numel() <= SMALL or weights[0].device.type != "cpu":
                    updates = list(orthogonal(torch.stack(directions), *iteration))
                else:
                    updates = [orthogonal(direction, *iteration) for direction in directions]
                size = group["lr"] * SCALE * math.sqrt(max(shape))
                torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(weights, updates, alpha=-size)

    def _directions(self, weights: list[Tensor], momentum: float) -> list[Tensor]:
        """Return gradients with Nesterov's momentum; update the momentum buffers."""
        gradients = [cast(Tensor, weight.grad) for weight in weights]
        buffers = []
        for weight in weights:
            state = self.state[weight]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(weight)
            buffers.append(state["momentum_buffer"])
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        return list(torch._foreach_lerp(gradients, buffers, momentum))


def orthogonal(
    matrices: Float[Tensor, "*N A B"], coefficients: tuple[float, float, float], steps: int, eps: float
) -> Float[Tensor, "*N A B"]:
    """Return approximately the nearest matrices with orthogonal rows or columns, by Newton-Schulz iteration.

    On a CPU it is computed in float32, where torch uses bf16. The iteration multiplies small singular values by up to
    500, and with them the rounding errors that bf16 makes in large ones (2^-9). In float32, CPUs with and without bf16
    units give the same weights. On a GPU bf16 is used, as in torch, because float32 would be several times slower.

    Args:
        matrices: One matrix, or several; each is scaled to a norm of 1 first, so that the iteration converges.
        coefficients: Coefficients of the first, third and fifth power.
        steps: Steps of the iteration.
        eps: Smallest norm to divide by.
    """
    tall = matrices.shape[-2] > matrices.shape[-1]
    precision = torch.bfloat16 if matrices.device.type == "cuda" else torch.float32
    x = matrices.to(precision)
    if tall:
        x = x.mT
    x = x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp(min=eps)
    # Squares of singular values keep half of the digits: enough in float32 (1e-4 at the end), but not in bf16.
    oblong = x.shape[-1] >= 2 * x.shape[-2] and precision == torch.float32
    x = _by_squares(x, coefficients, steps) if oblong else _by_matrices(x, coefficients, steps)
    return x.mT if tall else x


def _by_matrices(
    x: Float[Tensor, "*N A B"], coefficients: tuple[float, float, float], steps: int
) -> Float[Tensor, "*N A B"]:
    """Iterate on the matrix itself: each step multiplies it by p(X X^T)."""
    first, third, fifth = coefficients
    for _ in range(steps):
        gram = x @ x.mT
        x = _add_product(x, _add_product(gram, gram, gram, beta=third, alpha=fifth), x, beta=first)
    return x


def _by_squares(
    x: Float[Tensor, "*N A B"], coefficients: tuple[float, float, float], steps: int
) -> Float[Tensor, "*N A B"]:
    """Iterate on X X^T alone, whose products are smaller, and multiply the matrix once by all of the polynomials."""
    first, third, fifth = coefficients
    gram = x @ x.mT
    product = None  # of the polynomials so far; they commute, since all are polynomials of the first gram
    for step in range(steps):
        polynomial = _add_product(gram, gram, gram, beta=third, alpha=fifth)
        polynomial.diagonal(dim1=-2, dim2=-1).add_(first)
        product = polynomial if product is None else polynomial @ product
        if step + 1 < steps:
            gram = polynomial @ gram @ polynomial
    return x if product is None else product @ x


def _add_product(
    added: Float[Tensor, "*N A B"],
    one: Float[Tensor, "*N A C"],
    other: Float[Tensor, "*N C B"],
    *,
    beta: float,
    alpha: float = 1.0,
) -> Float[Tensor, "*N A B"]:
    """Return beta * added + alpha * (one @ other), for one matrix or a batch."""
    add = torch.addmm if added.dim() == 2 else torch.baddbmm
    return add(added, one, other, beta=beta, alpha=alpha)
