"""A linear recurrence of single numbers, read in blocks: many of its steps run at a time."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

# Tokens of a block. With 8 or 32 a pass takes about as long (docs/benchmarks.md).
BLOCK = 16


def scan(
    keep: Float[Tensor, "B T D"], add: Float[Tensor, "B T D"], start: Float[Tensor, "B D"]
) -> Float[Tensor, "B T D"]:
    """Compute h_t = keep_t h_{t-1} + add_t for all t, from h_0 = `start`.

    The steps of a block are sequential, in all blocks at once; then each block gets the final state of the block
    before. This takes 16 + T / 16 sequential steps and three operations per number. Doubling the reach of each position
    (Hillis & Steele 1986) would take log2 T passes over all numbers, and store the result of each pass.

    Args:
        keep: The share of the state that each step keeps.
        add: What each step adds to it.
        start: The state before the first step.

    Returns:
        The state after each step, in the precision of `add`; bf16 and fp16 are summed in float32.
    """
    return _Scan.apply(keep, add, start)


def steps_in_a_row(length: int) -> int:
    """Return the number of sequential operations of `scan` for `length` tokens."""
    return min(length, BLOCK) + math.ceil(length / BLOCK) - 1


class _Scan(torch.autograd.Function):
    """The recurrence; its gradient is the same recurrence, from the last token to the first."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, keep: Float[Tensor, "B T D"], add: Float[Tensor, "B T D"], start: Float[Tensor, "B D"]
    ) -> Float[Tensor, "B T D"]:
        hidden = _scan(keep, add, start, from_the_end=False)
        ctx.save_for_backward(keep, hidden, start)
        return hidden

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, grad: Float[Tensor, "B T D"]
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"], Float[Tensor, "B D"]]:
        keep, hidden, start = ctx.saved_tensors
        # The gradient of a state: its own gradient, plus the share that the next step keeps of its state's gradient.
        kept_behind = torch.cat([keep[:, 1:], torch.zeros_like(keep[:, :1])], 1)
        worth = _scan(kept_behind, grad, torch.zeros_like(start), from_the_end=True)
        before = torch.cat([start.to(hidden.dtype).unsqueeze(1), hidden[:, :-1]], 1)
        return worth * before, worth, (worth[:, 0] * keep[:, 0]).to(start.dtype)


def _scan(
    keep: Float[Tensor, "B T D"], add: Float[Tensor, "B T D"], start: Float[Tensor, "B D"], *, from_the_end: bool
) -> Float[Tensor, "B T D"]:
    """Run the recurrence without its own gradient. `from_the_end`: h_t = keep_t h_{t+1} + add_t."""
    batch, length, dim = add.shape
    given = add.dtype
    computed = torch.promote_types(given, torch.float32)
    keep, add, state = keep.to(computed), add.to(computed), start.to(computed)
    missing = -length % BLOCK if length > BLOCK else 0
    if missing:  # steps that do not change the state
        keep = functional.pad(keep, (0, 0, 0, missing), value=1.0)
        add = functional.pad(add, (0, 0, 0, missing))
    size = min(length, BLOCK)
    keep, add = (part.reshape(batch, -1, size, dim) for part in (keep, add))
    num_blocks = keep.shape[1]
    steps, blocks = list(range(size)), list(range(num_blocks))
    if from_the_end:
        steps.reverse()
        blocks.reverse()
    hidden = torch.empty_like(add)
    # A single block starts with the state, several start with zeros; the state's contribution is added last.
    now = state.unsqueeze(1) if num_blocks == 1 else torch.zeros_like(add[:, :, 0])
    for step in steps:
        torch.addcmul(add[:, :, step], keep[:, :, step], now, out=hidden[:, :, step])
        now = hidden[:, :, step]
    if num_blocks > 1:
        kept = torch.empty_like(keep)  # of the state before the block
        share = torch.ones_like(keep[:, :, 0])
        for step in steps:
            torch.mul(keep[:, :, step], share, out=kept[:, :, step])
            share = kept[:, :, step]
        before = torch.empty_like(share)
        for block in blocks:
            before[:, block] = state
            state = torch.addcmul(now[:, block], share[:, block], state)
        hidden.addcmul_(kept, before.unsqueeze(2))
    return hidden.reshape(batch, -1, dim)[:, :length].to(given)
