"""Attention to a chunk and to an equally long window before it, without a mask over all of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

LEAST = 1024  # tokens; on a CPU, shorter chunks are read faster with a mask (docs/benchmarks.md)
MORE = 8  # columns that are added to the heads of cached keys; a GPU's kernel takes widths in multiples of 8
WIDEST = 256  # heads that a GPU's flash kernel takes
UNSEEN = -3e4  # product of a query with an empty position; float16 ends at -65,504

Part = Float[Tensor, "B H T K"]
LogSums = Float[Tensor, "B H T"]
Wide = Float[Tensor, "B H T K+8"]


@dataclass(frozen=True)
class Joined:
    """A chunk of T queries after T cached keys, of which query i sees those from the i-th on.

    In reverse order, query and key, that is causal attention. So the chunk and the cache are each read by torch's
    causal kernel, which makes no weights and skips what is not seen, and the two softmaxes are joined by their sums.

    Attributes:
        num_before: number of tokens that each lane has read before; only so many of the last cached keys are real.
        make_mask: makes the mask of all 2T keys, for weights with dropout and for what the kernel does not take.
        made: that mask, once it is made.
    """

    num_before: Int[Tensor, " B"]
    make_mask: Callable[[], Bool[Tensor, "B 1 T N"]]
    made: list[Bool[Tensor, "B 1 T N"]] = field(default_factory=list)

    def mask(self) -> Bool[Tensor, "B 1 T N"]:
        """Return the mask, which is made once for all layers."""
        if not self.made:  # compiled blocks cannot enter the lock of functools.cache
            self.made.append(self.make_mask())
        return self.made[0]

    def attend(
        self,
        read: Callable[..., Float[Tensor, "B T H*K"]],
        query: Part,
        key: Float[Tensor, "B G N K"],
        value: Float[Tensor, "B G N K"],
        dropout: float,
    ) -> Float[Tensor, "B T H*K"]:
        """Mix the values; `read` does it with a mask."""
        if dropout or not _is_taken(query):
            return read(query, key, value, self.mask())
        length, shared = query.shape[2], query.shape[1] // key.shape[1]
        if shared > 1:
            key, value = (part.repeat_interleave(shared, 1) for part in (key, value))
        place = torch.arange(length, device=query.device)
        empty = (place < length - self.num_before.unsqueeze(1)).to(query.dtype) * (UNSEEN / MORE)
        mixed: Part = _Join.apply(query, *key.split(length, 2), *value.split(length, 2), empty[:, None, :, None])
        return mixed.transpose(1, 2).flatten(2)


class _Join(torch.autograd.Function):
    """Softmax over two sets of keys, each read by itself.

    The gradient by each set is that of its own kernel, given the output and the sum of the exponents of both.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Part, old_key: Part, key: Part, old_value: Part, value: Part, empty: Float[Tensor, "B 1 T 1"]
    ) -> Part:
        width = query.shape[-1]
        mixed, sums, *rest = _causal(query, key, value, width)
        old, old_sums, *old_rest = _causal(*_reversed(query, old_key, old_value, empty), width)
        old, old_sums = old[..., :width].flip(2), old_sums.flip(2)
        both = torch.logaddexp(sums, old_sums)
        out = torch.lerp(mixed, old, (old_sums - both).exp().unsqueeze(-1).to(old.dtype))
        ctx.save_for_backward(query, old_key, key, old_value, value, empty, out, both)
        ctx.rest, ctx.old_rest = rest, old_rest
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Part) -> tuple[Part, Part, Part, Part, Part, None]:
        query, old_key, key, old_value, value, empty, out, both = ctx.saved_tensors
        width = query.shape[-1]
        by_query, by_key, by_value = _causal_backward(grad, query, key, value, out, both, ctx.rest, width)
        reverse = _reversed(query, old_key, old_value, empty)
        grad, out = (_wider_reversed(part, part.new_zeros(1)) for part in (grad, out))
        of_old = _causal_backward(grad, *reverse, out, both.flip(2), ctx.old_rest, width)
        old_by_query, old_by_key, old_by_value = (part[..., :width].flip(2) for part in of_old)
        return by_query + old_by_query, old_by_key, by_key, old_by_value, by_value, None


def _reversed(query: Part, key: Part, value: Part, empty: Float[Tensor, "B 1 T 1"]) -> tuple[Wide, Wide, Wide]:
    """Return all in reverse order, with columns that make a query's product with an empty position very negative."""
    ones, zeros = query.new_ones(1), query.new_zeros(1)
    return _wider_reversed(query, ones), _wider_reversed(key, empty), _wider_reversed(value, zeros)


def _wider_reversed(part: Part, more: Float[Tensor, "#B #1 #T 1"] | Float[Tensor, " 1"]) -> Wide:
    return torch.cat([part, more.expand(*part.shape[:-1], MORE)], -1).flip(2)


def _is_taken(query: Part) -> bool:
    """Return True if torch's flash kernel takes this device, precision and width of heads."""
    device = query.device
    if device.type == "cpu":
        return True
    if device.type not in ("cuda", "meta") or query.dtype not in (torch.bfloat16, torch.float16):
        return False
    is_old = device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0)
    return not is_old and query.shape[-1] % 8 == 0 and query.shape[-1] + MORE <= WIDEST


def _causal(query: Part, key: Part, value: Part, width: int) -> list[Any]:
    """Return output, logarithms of the sums of exponents, and what the backward pass on a GPU needs.

    `width`: K, by whose root products are divided.
    """
    aten, scale = torch.ops.aten, width**-0.5
    if query.device.type == "cpu":
        return list(aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, True, scale=scale))
    return list(aten._scaled_dot_product_flash_attention(query, key, value, 0.0, True, scale=scale))


def _causal_backward(
    grad: Part, query: Part, key: Part, value: Part, out: Part, sums: LogSums, rest: list[Any], width: int
) -> list[Part]:
    """Return the gradients of `_causal` by query, key and value."""
    aten, scale = torch.ops.aten, width**-0.5
    given = (grad, query, key, value, out, sums)
    if query.device.type == "cpu":
        kernel = aten._scaled_dot_product_flash_attention_for_cpu_backward
        return list(kernel(*given, 0.0, True, scale=scale))
    starts_query, starts_key, longest_query, longest_key, seed, offset = rest[:6]
    of_gpu = (starts_query, starts_key, longest_query, longest_key, 0.0, True, seed, offset)
    return list(aten._scaled_dot_product_flash_attention_backward(*given, *of_gpu, scale=scale))
