"""The loss of a large vocabulary: made block by block, equal to the plain one, and never holding all logits."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from seqtrain.data.batching.stream import IGNORED
from seqtrain.models.layers.front_ends import TokenEmbedding
from seqtrain.tasks import output as module
from seqtrain.tasks.output import Output, compiled_loss

ROWS, DIM, OUTPUTS = 50, 8, 13


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 7 rows, so that the last is shorter."""
    monkeypatch.setattr(module, "BLOCK", 7 * OUTPUTS)
    monkeypatch.setattr(module, "FEWEST_ROWS", 1)


@pytest.fixture
def depth() -> Iterator[None]:
    """Python's limit of depth, which torch's compiler raises, as it was before: other tests rest on it."""
    before = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(before)


def setting(dtype: torch.dtype = torch.float64, *, bias: bool = True, spare: int = 0) -> tuple[Output, Tensor]:
    """An output with gradients, and targets of which some are none."""
    torch.manual_seed(0)
    hidden = torch.randn(2, ROWS // 2, DIM, dtype=dtype, requires_grad=True)
    weight = torch.randn(OUTPUTS + spare, DIM, dtype=dtype, requires_grad=True)
    offset = torch.randn(OUTPUTS, dtype=dtype, requires_grad=True) if bias else None
    targets = torch.randint(OUTPUTS, (2, ROWS // 2))
    targets[0, 3:9] = IGNORED
    return Output(hidden, weight, offset, OUTPUTS), targets


def plain(output: Output, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    logits = F.linear(output.hidden, output.weight[:OUTPUTS], output.bias).flatten(0, -2)
    return F.cross_entropy(
        logits, targets.flatten(), ignore_index=IGNORED, label_smoothing=label_smoothing, reduction="sum"
    )


def gradients(loss: Tensor, output: Output) -> list[Tensor]:
    leaves = [each for each in (output.hidden, output.weight, output.bias) if each is not None]
    return list(torch.autograd.grad(loss / 3, leaves))


@pytest.mark.usefixtures("blocks")
def test_loss_and_gradients_are_those_of_all_rows_at_once() -> None:
    for (dtype, tolerance), (bias, spare), label_smoothing in product(
        ((torch.float64, 1e-13), (torch.float32, 3e-6)), ((True, 0), (False, 2)), (0.0, 0.1)
    ):
        output, targets = setting(dtype, bias=bias, spare=spare)
        ours = output.loss(targets, label_smoothing)
        theirs = plain(output, targets, label_smoothing)
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=0)
        for one, other in zip(gradients(ours, output), gradients(theirs, output), strict=True):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.long
@pytest.mark.parametrize(("precision", "bias", "label_smoothing"), [(None, True, 0.0), (torch.bfloat16, False, 0.1)])
@pytest.mark.usefixtures("blocks", "depth")
def test_a_compiled_loss_has_the_numbers_of_the_loss_as_written(
    precision: torch.dtype | None, bias: bool, label_smoothing: float
) -> None:
    output, targets = setting(torch.float32, bias=bias)
    tolerance = 1e-5 if precision is None else 1e-2
    with torch.autocast("cpu", dtype=precision or torch.bfloat16, enabled=precision is not None):
        written = output.loss(targets, label_smoothing)
        with compiled_loss():
            compiled = output.loss(targets, label_smoothing)
    torch.testing.assert_close(compiled, written, rtol=1e-5, atol=0)
    for one, other in zip(gradients(compiled, output), gradients(written, output), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("blocks")
def test_a_tied_head_takes_the_vectors_of_text_and_the_end() -> None:
    embed = TokenEmbedding(vocab_size=OUTPUTS - 1, dim=DIM, specials=3)
    hidden = torch.randn(ROWS, DIM)
    targets = torch.randint(OUTPUTS, (ROWS,))
    Output.tied(embed, hidden, end=True).loss(targets).backward()
    assert embed.weight.grad is not None
    assert embed.weight.grad[:OUTPUTS].any(1).all()
    assert not embed.weight.grad[OUTPUTS:].any(), "separator and mask are no output"


@pytest.mark.usefixtures("blocks")
def test_under_autocast_gradients_are_as_near_to_float64_as_those_of_all_rows_at_once() -> None:
    output, targets = setting(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, theirs = output.loss(targets), plain(output, targets)
    assert ours.dtype == torch.float32
    exact = Output(*(part.detach().double().requires_grad_() for part in output[:3]), OUTPUTS)  # type: ignore[union-attr]
    true = plain(exact, targets)
    assert abs(ours.item() - true.item()) < 0.01 * true.item()
    found = zip(gradients(ours, output), gradients(theirs, output), gradients(true, exact), strict=True)
    for one, other, right in found:
        assert one.dtype == torch.float32
        assert float((one - right).norm()) <= 1.1 * float((other - right).norm())


@pytest.mark.usefixtures("blocks")
def test_what_is_frozen_gets_no_gradient_and_the_others_keep_theirs() -> None:
    for frozen in range(3):
        output, targets = setting()
        parts = [part for part in output[:3] if part is not None]
        parts[frozen].requires_grad_(False)
        output.loss(targets).backward()
        ours = [part.grad for part in parts]
        for part in parts:
            part.grad = None
        plain(output, targets).backward()
        assert ours[frozen] is None, frozen
        for number in {0, 1, 2} - {frozen}:
            torch.testing.assert_close(ours[number], parts[number].grad)


@pytest.mark.usefixtures("blocks")
def test_a_row_without_a_target_adds_nothing_whatever_it_holds() -> None:
    output, targets = setting()
    with torch.no_grad():
        output.hidden[0, 4] = math.nan
    loss = output.loss(targets)
    assert loss.isfinite()
    by_hidden = gradients(loss, output)[0]
    assert not by_hidden[0, 4].any()
    assert by_hidden.isfinite().all()


@pytest.mark.usefixtures("blocks")
def test_a_gradient_that_was_scaled_in_place_is_refused_a_second_time() -> None:
    output, targets = setting()
    loss = output.loss(targets)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.usefixtures("blocks")
def test_evaluation_is_that_of_all_rows_at_once() -> None:
    output, targets = setting(torch.float32)
    logits = output.logits().detach().flatten(0, 1)
    for double in (False, True):
        losses, guesses = output.measure(targets, double=double)
        wanted = logits.double() if double else logits
        assert losses.dtype == wanted.dtype
        expected = F.cross_entropy(wanted, targets.flatten(), ignore_index=IGNORED, reduction="none")
        torch.testing.assert_close(losses, expected)
        assert torch.equal(guesses, logits.argmax(-1))


class Largest(TorchDispatchMode):
    """The largest number of elements of any tensor, or of any in a precision, that an operation made."""

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.dtype, self.elements = dtype, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in _tensors(made):
            if self.dtype in (None, each.dtype):
                self.elements = max(self.elements, each.numel())
        return made


def _tensors(made: Any) -> Iterator[Tensor]:
    if isinstance(made, Tensor):
        yield made
    elif isinstance(made, tuple | list):
        for each in made:
            yield from _tensors(each)


def test_nothing_is_made_that_is_larger_than_a_block_or_the_weights() -> None:
    outputs, rows = 2**14, 2**11
    most = max(module.BLOCK, module.FEWEST_ROWS * outputs)
    assert most < rows * outputs / 10
    targets = torch.randint(outputs, (rows,))
    output = Output.of(nn.Linear(4, outputs), torch.randn(rows, 4, requires_grad=True))
    for use in (lambda: output.loss(targets).backward(), lambda: output.measure(targets)):
        with Largest() as largest:
            use()
        assert largest.elements == most, "sixteen blocks, and none is larger"
    with Largest(torch.float64) as largest:
        output.measure(targets, double=True)
    assert largest.elements == module.BLOCK < most, "what is copied to double precision stays small"
