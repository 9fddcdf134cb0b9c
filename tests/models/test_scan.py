"""Laws of the scan: what it makes of a recurrence is what its steps make, one after another."""

from __future__ import annotations

import torch
from torch import Tensor

from seqtrain.models.layers.scan import BLOCK, scan, steps_in_a_row

LENGTHS = (1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 5)


def parts(length: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """What is kept of 2 lanes of 3 numbers, what is added to it, and the state before."""
    draw = torch.Generator().manual_seed(length)
    keep = torch.rand(2, length, 3, generator=draw, dtype=torch.float64)
    add, start = (torch.randn(*shape, 3, generator=draw, dtype=torch.float64) for shape in ((2, length), (2,)))
    keep, add, start = (part.to(dtype).requires_grad_() for part in (keep, add, start))
    return keep, add, start


def one_by_one(keep: Tensor, add: Tensor, start: Tensor) -> Tensor:
    states = []
    for step in range(add.shape[1]):
        start = keep[:, step] * start + add[:, step]
        states.append(start)
    return torch.stack(states, 1)


def test_a_scan_and_its_gradients_are_those_of_its_steps_one_after_another() -> None:
    for length in LENGTHS:
        given = parts(length)
        out, expected = scan(*given), one_by_one(*given)
        torch.testing.assert_close(out, expected, rtol=1e-13, atol=1e-13)
        weights = torch.randn(2, length, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        gradients = (torch.autograd.grad((each * weights).sum(), given) for each in (out, expected))
        torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


def test_half_precision_is_rounded_once_at_the_end() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        keep, add, start = parts(4 * BLOCK, dtype)
        exact = one_by_one(keep.double(), add.double(), start.double())
        found = scan(keep, add, start)
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-5)
        gradients = torch.autograd.grad(found.float().sum(), (keep, add, start))
        assert {gradient.dtype for gradient in gradients} == {dtype}


def test_a_state_that_is_wider_than_what_is_read_keeps_its_precision() -> None:
    keep, add, start = parts(3, torch.bfloat16)
    wide = start.detach().float() + 1e-4  # bf16 does not hold it
    found = scan(torch.ones_like(keep), torch.zeros_like(add), wide)
    torch.testing.assert_close(found, wide.unsqueeze(1).expand(-1, 3, -1).bfloat16())
    (gradient,) = torch.autograd.grad(scan(keep, add, wide.requires_grad_()).float().sum(), wide)
    assert gradient.dtype == torch.float32


def test_so_many_steps_wait_for_each_other() -> None:
    assert [steps_in_a_row(length) for length in (1, 5, 16, 17, 64, 1024)] == [1, 5, 16, 17, 19, 79]
