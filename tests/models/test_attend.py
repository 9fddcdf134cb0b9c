"""Which way attention is computed: torch's fused kernel, or by hand where that is faster; both give the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from seqtrain.models.layers import attention
from seqtrain.models.layers.block_options import BlockOptions
from seqtrain.models.layers.joined import Joined
from seqtrain.models.layers.positions import rotary_table

BF16_ERROR = 0.01  # of a sum of products whose factors have 8 bits, relative to its norm


class Ran(TorchDispatchMode):
    """Collects the names of torch's operations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.precisions: dict[str, torch.dtype] = {}  # of the first argument, by name

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        if args and isinstance(args[0], Tensor):
            self.precisions[str(func)] = args[0].dtype
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", ["causal", "padding", "window", "all"])
def test_bf16_on_a_cpu_is_attended_by_hand_and_no_further_from_float64_than_bf16_is(kind: str) -> None:
    torch.manual_seed(0)
    length = 48
    mask = None
    if kind == "padding":
        mask = attention.padding_mask(torch.tensor([length, 20]), length)
    if kind == "window":
        mask = attention.window_mask(torch.tensor([0, 5]), length, 0, 7)
    inputs = torch.randn(3, 2, 4, length, 16).bfloat16()
    by_output = torch.randn(2, length, 64)

    def mixed(dtype: torch.dtype) -> tuple[Tensor, Tensor, list[str]]:
        """Output and gradient by the inputs, and the names of what torch ran."""
        given = inputs.to(dtype).requires_grad_()
        with torch.autocast("cpu", enabled=dtype == torch.bfloat16), Ran() as ran:
            found = attention.attend(*given, mask=mask, causal=kind == "causal", dropout=0.0, name="any")
        (gradient,) = torch.autograd.grad(found, given, by_output.to(found.dtype))
        return found.detach().double(), gradient.double(), ran.names

    *right, fused = mixed(torch.float64)
    *found, by_hand = mixed(torch.bfloat16)
    assert any("flash" in name for name in fused)
    assert not any("attention" in name for name in by_hand)
    for one, other in zip(found, right, strict=True):
        assert float((one - other).norm()) < BF16_ERROR * float(other.norm())


def test_with_many_keys_the_fused_kernel_attends_and_no_weights_are_made() -> None:
    query, key = torch.zeros(1, 1, 2, 8).bfloat16(), torch.zeros(1, 1, attention.MOST_KEYS_BY_HAND + 1, 8).bfloat16()
    with Ran() as ran:
        attention.attend(query, key, key, mask=None, causal=False, dropout=0.0, name="any")
    assert any("flash" in name for name in ran.names)
    assert not any("softmax" in name for name in ran.names)


@pytest.mark.parametrize(("keys", "precision"), [(18, torch.float32), (32, torch.bfloat16), (64, torch.bfloat16)])
def test_only_rows_that_bf16_takes_number_by_number_are_softmaxed_in_float32(keys: int, precision: torch.dtype) -> None:
    query, key = torch.zeros(1, 1, 2, 8).bfloat16(), torch.zeros(1, 1, keys, 8).bfloat16()
    with Ran() as ran:
        mixed = attention.attend(query, key, key, mask=None, causal=False, dropout=0.0, name="any")
    assert ran.precisions["aten._softmax.default"] == precision
    assert mixed.dtype == torch.bfloat16


@pytest.mark.parametrize("starts", [False, True])
@pytest.mark.parametrize(("length", "cached", "window"), [(41, 9, 9), (64, 3, 9), (50, 0, 9), (33, 1, 1), (40, 0, 0)])
def test_a_window_in_blocks_is_that_with_a_mask_over_all_keys_and_takes_no_product_of_length_and_length(
    monkeypatch: pytest.MonkeyPatch, length: int, cached: int, window: int, starts: bool
) -> None:
    torch.manual_seed(0)
    options = BlockOptions(dim=8, num_heads=4, dropout=0.0, norm="pre", bias=False, num_kv_heads=2)
    layer = attention.CausalSelfAttention(options, "self").double()
    x = torch.randn(3, length, 8, dtype=torch.float64)
    cache = [torch.randn(3, 2, cached, 2, dtype=torch.float64) for _ in range(2)]
    before: Tensor = torch.tensor([0, 1, 70]).clamp(max=cached if cached < window else 70)
    if starts:
        before = attention.tokens_before(before, torch.rand(3, length) < 0.1)
    rotary = rotary_table(cached + length, 2, x.device).double()

    def read(block: int) -> list[Tensor]:
        monkeypatch.setattr(attention, "BLOCK", block)
        mask = attention.window_of(before, length, cached, window)
        assert isinstance(mask, Tensor) == (block > length)
        given = [x.clone().requires_grad_(), *(part.clone().requires_grad_() for part in cache)]
        found, _ = layer(given[0], (given[1], given[2]), mask, rotary)
        return [found, *torch.autograd.grad((found * x).sum(), [*given, *layer.parameters()])]

    for one, other in zip(read(block=length + 1), read(block=7), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)
    mask = attention.window_of(before, length, cached, window)
    assert isinstance(mask, attention.Blocks)
    assert mask.mask[0, 0].numel() == 7 * (7 + window)


@pytest.mark.parametrize("shared", [1, 2])
def test_a_chunk_joined_with_the_window_before_it_is_that_with_a_mask(
    monkeypatch: pytest.MonkeyPatch, shared: int
) -> None:
    torch.manual_seed(0)
    length = 21
    query, by_output = torch.randn(4, 4, length, 8).double(), torch.randn(4, length, 32).double()
    keys = torch.randn(2, 4, 4 // shared, 2 * length, 8).double()
    before = torch.tensor([0, 3, length, 5 * length])  # of a lane that was reset, its first chunk, and later ones
    for lane, count in enumerate(before.tolist()):
        keys[:, lane, :, : max(length - count, 0)] = 0

    def mixed(least: int) -> tuple[Any, list[Tensor]]:
        monkeypatch.setattr(attention, "LEAST", least)
        mask = attention.window_of(before, length, length, length)
        given = query.clone().requires_grad_(), keys.clone().requires_grad_()
        if isinstance(mask, Tensor):
            found = attention.attend(given[0], *given[1], mask=mask, causal=False, dropout=0.0, name="any")
        else:
            found = mask.attend(None, given[0], *given[1], dropout=0.0)  # type: ignore[arg-type]
        return mask, [found, *torch.autograd.grad(found, given, by_output)]

    (joined, found), (mask, right) = mixed(least=length), mixed(least=length + 1)
    assert isinstance(joined, Joined)
    assert isinstance(mask, Tensor)
    for one, other in zip(found, right, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)


def test_on_a_gpu_no_mask_over_chunk_and_window_is_made() -> None:
    query = torch.zeros(2, 4, 16, 64, dtype=torch.bfloat16, device="meta", requires_grad=True)
    keys = torch.zeros(2, 2, 2, 32, 64, dtype=torch.bfloat16, device="meta", requires_grad=True)
    with Ran() as ran:
        window = attention.window_of(torch.zeros(2, dtype=torch.long, device="meta"), 16, 16, 16)
        assert isinstance(window, Joined)
        window.attend(None, query, *keys, dropout=0.0).sum().backward()  # type: ignore[arg-type]
    assert query.grad is not None
    assert keys.grad is not None
    for kernel in ("aten._scaled_dot_product_flash_attention", "aten._scaled_dot_product_flash_attention_backward"):
        assert ran.names.count(f"{kernel}.default") == 2


@pytest.mark.parametrize(
    ("device", "precision", "width", "dropout"),
    [
        ("cpu", torch.float32, 8, 0.1),  # the weights themselves are needed
        ("meta", torch.float32, 64, 0.0),  # a GPU's flash kernel has half precision only
        ("meta", torch.bfloat16, 20, 0.0),  # and widths that are multiples of 8
        ("meta", torch.bfloat16, 256, 0.0),  # up to 256, of which we add 8
    ],
)
def test_what_the_kernel_does_not_take_is_read_with_a_mask(
    device: str, precision: torch.dtype, width: int, dropout: float
) -> None:
    length, made = 8, []
    window = Joined(torch.zeros(1, dtype=torch.long), lambda: torch.ones(1, 1, length, 2 * length, dtype=torch.bool))
    query, keys = (torch.zeros(1, 1, rows, width, dtype=precision, device=device) for rows in (length, 2 * length))
    window.attend(lambda *given: made.append(given[3]), query, keys, keys, dropout)
    assert made[0].shape == (1, 1, length, 2 * length)


def test_layers_that_need_the_mask_share_one() -> None:
    window = attention.window_of(torch.zeros(1, dtype=torch.long), attention.LEAST, attention.LEAST, attention.LEAST)
    assert isinstance(window, Joined)
    assert window.mask() is window.mask()
