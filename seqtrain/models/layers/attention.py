"""Multi-head attention (Vaswani et al. 2017): causal with a key-value cache, in both directions, and to a source."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seqtrain.models.layers.block_options import BlockOptions
from seqtrain.models.layers.joined import LEAST, Joined
from seqtrain.models.layers.lengths import padding_of
from seqtrain.models.layers.positions import halves, neighbours, rotate, turn, turns_of
from seqtrain.models.layers.recorder import active, record
from seqtrain.models.layers.slots import KeysValues, Seen, Slots, by_keys
from seqtrain.models.stepper import fold, unfold

Cache = tuple[Float[Tensor, "B G M K"], Float[Tensor, "B G M K"]]
"""Keys and values of M tokens from earlier chunks."""

SourceKeysValues = tuple[Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]
"""Keys and values of the S tokens of a source."""

HeadsOfThree = tuple[Float[Tensor, "B H T K"], Float[Tensor, "B G T K"], Float[Tensor, "B G T K"]]
"""Queries, keys and values."""

MOST_KEYS_BY_HAND = 512  # in bf16 on a CPU; with more keys, writing the weights takes longer than the fused kernel


def tokens_before(
    num_before: Int[Tensor, " B"], starts: Bool[Tensor, "B T"] | None
) -> Int[Tensor, " B"] | Int[Tensor, "B T"]:
    """Count the tokens of each token's document before the chunk; negative if the document begins within the chunk.

    Args:
        num_before: number of tokens of its document that each lane has read before the chunk.
        starts: True where a document begins; None: nowhere.
    """
    if starts is None:
        return num_before
    time = torch.arange(starts.shape[1], device=starts.device)
    return -torch.where(starts, time, -num_before.unsqueeze(1)).cummax(1).values


def window_mask(
    num_before: Int[Tensor, " B"] | Int[Tensor, "B {length}"], length: int, cached: int, attention_window: int | None
) -> Bool[Tensor, "B 1 {length} {cached+length}"]:
    """Return a mask of the M cached and T new keys that each of T queries sees: its own key and earlier ones.

    Args:
        num_before: number of tokens that each lane has read before, or `tokens_before`. The cache is right-aligned: as
        many of its last keys are real, up to its size.
        length: T.
        cached: M; key j is M - j tokens before the first query.
        attention_window: number of earlier tokens that a query sees; None for all.
    """
    key = torch.arange(cached + length, device=num_before.device)
    query = cached + torch.arange(length, device=num_before.device)
    behind = query.unsqueeze(1) - key  # (T, M+T): 0 is the query itself
    window = behind >= 0
    if attention_window is not None:
        window &= behind <= attention_window
    # Otherwise a lane that was reset, or that has read fewer tokens than the cache holds, would attend to keys of
    # zeros.
    before = num_before if num_before.dim() == 2 else num_before.unsqueeze(1)
    real = key >= (cached - before).unsqueeze(-1)  # (B, 1, M+T), or (B, T, M+T)
    return (window & real).unsqueeze(1)


BLOCK = 128  # minimum number of queries per block if a window is shorter than the chunk


@dataclass(frozen=True)
class Blocks:
    """A window over a chunk cut into n blocks of b queries. Each block has its own keys and the M keys before them.

    Attributes:
        mask: the keys that each query of a block sees, of N = M + b.
        length: T; the last block may extend beyond it.
        missing: number of zeros before the first key, so that M keys precede the chunk.
    """

    mask: Bool[Tensor, "B n b N"]
    length: int
    missing: int

    def attend(
        self,
        read: Callable[..., Float[Tensor, "Bn b H*K"]],
        query: Float[Tensor, "B H T K"],
        key: Float[Tensor, "B G N K"],
        value: Float[Tensor, "B G N K"],
    ) -> Float[Tensor, "B T H*K"]:
        """Mix the values block by block: `read` gets the blocks of all lanes as lanes."""
        _, count, size, seen = self.mask.shape
        beyond = count * size - self.length
        queries = F.pad(query, (0, 0, 0, beyond)).unflatten(2, (count, size)).transpose(1, 2).flatten(0, 1)
        padded = (F.pad(part, (0, 0, self.missing, beyond)) for part in (key, value))
        keys, values = (part.unfold(2, seen, size).permute(0, 2, 1, 4, 3).flatten(0, 1) for part in padded)
        mixed = read(queries, keys, values, self.mask.flatten(0, 1).unsqueeze(1))
        return mixed.unflatten(0, (-1, count)).flatten(1, 2)[:, : self.length]


def window_of(
    num_before: Int[Tensor, " B"] | Int[Tensor, "B {length}"], length: int, cached: int, window: int
) -> Bool[Tensor, "B 1 {length} {cached+length}"] | Blocks | Joined:
    """Return `window_mask`, or what needs no mask of T x N: `Joined` if T = M, `Blocks` if M is much less than T."""
    size = max(BLOCK, window // 2)
    mask = partial(window_mask, num_before, length, cached, window)
    device = num_before.device
    if active():  # a plot of the weights shows all keys of the chunk
        return mask()
    if length == cached == window and num_before.dim() == 1 and (device.type != "cpu" or length >= LEAST):
        return Joined(num_before, mask)
    if length < 2 * size + window:
        return mask()
    count = -(-length // size)
    key, query = torch.arange(window + size, device=device), torch.arange(size, device=device)
    behind = window + query.unsqueeze(1) - key  # (b, M+b): 0 is the query itself
    before = num_before.view(-1, 1, 1, 1)
    if num_before.dim() == 2:
        before = F.pad(num_before, (0, count * size - length)).view(-1, count, size, 1)
    place = (
        size * torch.arange(count, device=device).view(-1, 1, 1) + key
    )  # (n, 1, M+b): position of each key in the padded row
    mask = (behind >= 0) & (behind <= window) & (place >= window - before)
    return Blocks(mask, length, window - cached)


def newest(
    keys: Float[Tensor, "B G N K"], lengths: Int[Tensor, " B"] | None, cached: int, count: int
) -> Float[Tensor, "B G {count} K"]:
    """Return the last `count` of `cached` old and T new keys: before the end, or before each lane's length."""
    if lengths is None:
        return keys[:, :, keys.shape[2] - count :]
    # Missing keys are zeros on the left, masked by the count of tokens.
    keys = F.pad(keys, (0, 0, count - cached, 0))
    # The `count` positions that end at a lane's length begin `lengths` positions into the array.
    index = lengths.unsqueeze(1) + torch.arange(count, device=keys.device)  # (B, M)
    return keys.gather(2, index[:, None, :, None].expand(-1, keys.shape[1], -1, keys.shape[3]))


def of_document(keys: Float[Tensor, "B G N K"], num_read: Int[Tensor, " B"]) -> Float[Tensor, "B G N K"]:
    """Return the newest keys of each lane, with zeros for all but the last `num_read`, which belong to its document."""
    age = torch.arange(keys.shape[2], 0, -1, device=keys.device)
    return keys.masked_fill((age > num_read.unsqueeze(1))[:, None, :, None], 0.0)


def padding_mask(lengths: Int[Tensor, " B"], width: int) -> Bool[Tensor, "B 1 1 {width}"]:
    """Return a mask of the `width` right-padded keys a lane attends to: its real ones, or all if it has none."""
    # A softmax over no key at all is NaN, and NaN would reach the gradient of every weight.
    real = ~padding_of(lengths, width)
    return (real | (lengths == 0).unsqueeze(1))[:, None, None]


def attend(
    query: Float[Tensor, "B H T K"],
    key: Float[Tensor, "B G N K"],
    value: Float[Tensor, "B G N K"],
    *,
    mask: Bool[Tensor, "B 1 #T N"] | None,
    causal: bool,
    dropout: float,
    name: str,
) -> Float[Tensor, "B T H*K"]:
    """Mix the values of all heads by scaled dot products. An active recorder gets the weights under `name`.

    Each of G heads of keys and values serves H/G heads of queries. `causal`: with T = N, each query sees the keys up
    to its own; `mask` is then None.
    """
    if key.shape[1] < query.shape[1]:
        key, value = (part.repeat_interleave(query.shape[1] // part.shape[1], 1) for part in (key, value))
    if not active() and not _faster_by_hand(query, key):
        # torch's fused kernel never stores the weights, T x N numbers per head.
        mixed = F.scaled_dot_product_attention(query, key, value, mask, dropout, causal)
        return mixed.transpose(1, 2).flatten(2)
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)
    if scores.dtype == torch.bfloat16 and _has_slow_softmax(scores.shape[-1]):
        scores = scores.float()
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores + torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(~mask, -torch.inf)
    weights = scores.softmax(-1)
    record(name, weights)
    return (F.dropout(weights, dropout).to(value.dtype) @ value).transpose(1, 2).flatten(2)


def _faster_by_hand(query: Float[Tensor, "B H T K"], key: Float[Tensor, "B H N K"]) -> bool:
    """Return True if plain products take less time than torch's fused kernel.

    This is the case in bf16 on a CPU with few keys: the backward pass of the fused kernel is then 2 to 5 times slower
    than in float32 (docs/benchmarks.md).
    """
    return query.dtype == torch.bfloat16 and query.device.type == "cpu" and key.shape[2] <= MOST_KEYS_BY_HAND


def _has_slow_softmax(keys: int) -> bool:
    """Return True if torch's softmax over `keys` numbers in bf16, with its gradient, is slower than in float32.

    The numbers of a row after the last whole vector of 32 are processed one by one, which takes up to five times as
    long.
    """
    return keys < 64 and keys % 32 >= 8


def split_heads(
    packed: Float[Tensor, "B T E"], count: int, num_heads: int
) -> Float[Tensor, "{count} B {num_heads} T E//({count}*{num_heads})"]:
    """Split the output of one linear map into `count` tensors, such as query and key, each cut into heads."""
    # (B, T, E) to (B, T, count, H, K) to (count, B, H, T, K)
    return packed.unflatten(-1, (count, num_heads, -1)).permute(2, 0, 3, 1, 4)


def normed(heads: Float[Tensor, "B H T K"], norm: nn.RMSNorm) -> Float[Tensor, "B H T K"]:
    """Normalise queries or keys in the precision of the norm's weights: torch's fused kernel accepts no other."""
    return norm(heads.to(norm.weight.dtype)).to(heads.dtype)


class QueryKeyValue(nn.Linear):
    """One map to queries, keys and values."""

    def forward(
        self, x: Float[Tensor, "B T D"], num_heads: int | None = None, turns: Complex[Tensor, "T P"] | None = None
    ) -> Float[Tensor, "B T E"] | HeadsOfThree:
        """Return all three concatenated or, with a number of heads, each of them split into heads.

        With `turns`, queries and keys are rotated by their positions. Their numbers are then ordered differently than
        in the weights, equally in both, so that their product is the same as with `rotate`.
        """
        if num_heads is None:
            return super().forward(x)
        return _Heads.apply(x, self.weight, self.bias, num_heads, turns)  # type: ignore[no-any-return]


class _Heads(torch.autograd.Function):
    """A linear map, `split_heads` and the rotation of queries and keys.

    The rows of the weights are reordered instead of each token's numbers, because there are fewer of them. Then a
    rotation is one pass in place, where `rotate` takes four passes over rows of half a head. The gradient is
    concatenated in one pass instead of two.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "B T D"],
        weight: Float[Tensor, "E D"],
        bias: Float[Tensor, " E"] | None,
        num_heads: int,
        turns: Complex[Tensor, "T P"] | None,
    ) -> tuple[Tensor, ...]:
        placed, placed_bias = weight, bias
        if turns is not None:
            placed = neighbours(weight, num_heads)
            placed_bias = None if bias is None else neighbours(bias, num_heads)
        packed = F.linear(x, placed, placed_bias)
        # Under autocast the product uses lower precision, and its operands are saved, as autograd does.
        ctx.save_for_backward(x.to(packed.dtype), weight, turns)
        ctx.num_heads = num_heads
        heads = split_heads(packed, 3, num_heads)
        if turns is not None:
            turn(heads[:2], turns)
        return heads.unbind()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, *grads: Float[Tensor, "B H T K"]
    ) -> tuple[Float[Tensor, "B T D"] | None, Float[Tensor, "E D"] | None, Float[Tensor, " E"] | None, None, None]:
        x, weight, turns = ctx.saved_tensors
        joined = torch.stack([grad.transpose(1, 2) for grad in grads], 2)  # (B, T, 3, H, K)
        if turns is not None:
            turn(joined[:, :, :2].transpose(1, 3), turns.conj())  # (B, H, 2, T, K)
            weight = neighbours(weight, ctx.num_heads)
        joined = joined.flatten(2)
        rows = joined.flatten(0, 1)
        grad_x = joined @ weight.to(joined.dtype) if ctx.needs_input_grad[0] else None
        grad_weight = rows.T @ x.flatten(0, 1) if ctx.needs_input_grad[1] else None
        grad_bias = rows.sum(0) if ctx.needs_input_grad[2] else None
        if turns is not None:
            grad_weight, grad_bias = (
                None if grad is None else halves(grad, ctx.num_heads) for grad in (grad_weight, grad_bias)
            )
        return grad_x, grad_weight, grad_bias, None, None


class Attention(nn.Module):
    """Sizes and norms shared by all kinds of attention: H heads of queries, and G of keys and values, of width K."""

    def __init__(self, options: BlockOptions, name: str) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_width = options.num_heads, options.kv_heads, options.head_width
        self.dropout = options.dropout
        self.name = name
        self.query_norm = self.key_norm = None
        if options.qk_norm:
            self.query_norm = nn.RMSNorm(self.head_width, eps=options.norm_eps)
            self.key_norm = nn.RMSNorm(self.head_width, eps=options.norm_eps)

    def attend(
        self,
        query: Float[Tensor, "B H T K"],
        key: Float[Tensor, "B G N K"],
        value: Float[Tensor, "B G N K"],
        mask: Bool[Tensor, "B 1 #T N"] | None,
        *,
        causal: bool,
    ) -> Float[Tensor, "B T H*K"]:
        """Mix the values with `attend`, with dropout of the weights in training."""
        dropout = self.dropout if self.training else 0.0
        return attend(query, key, value, mask=mask, causal=causal, dropout=dropout, name=self.name)


class SelfAttention(Attention):
    """The weights of attention within one sequence: one map to queries, keys and values, and `out`."""

    def __init__(self, options: BlockOptions, name: str) -> None:
        super().__init__(options, name)
        rows = (self.num_heads + 2 * self.num_kv_heads) * self.head_width
        self.query_key_value = QueryKeyValue(options.dim, rows, bias=options.bias)
        self.out = nn.Linear(self.num_heads * self.head_width, options.dim, bias=options.bias)

    def heads(self, x: Float[Tensor, "B T D"], rotary: Float[Tensor, "2 T K"] | None) -> HeadsOfThree:
        """Return queries and keys, rotated by their positions, and values."""
        # Compiled code cannot multiply complex numbers, and the single pass needs equally many heads of each.
        if torch.compiler.is_compiling() or self.query_norm is not None or self.num_kv_heads < self.num_heads:
            return self.split(x, rotary)
        return self.query_key_value(x, self.num_heads, None if rotary is None else turns_of(rotary))

    def split(self, x: Float[Tensor, "B T D"], rotary: Float[Tensor, "2 T K"] | None) -> HeadsOfThree:
        """Return the same as `heads`, using only torch's own functions."""
        packed = self.query_key_value(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2)  # (B, H + 2G, T, K)
        both, value = packed[:, : -self.num_kv_heads], packed[:, -self.num_kv_heads :]
        if self.query_norm is not None and self.key_norm is not None:
            query, key = both[:, : self.num_heads], both[:, self.num_heads :]
            both = torch.cat([normed(query, self.query_norm), normed(key, self.key_norm)], 1)
        if rotary is not None:
            both = rotate(both, rotary)  # both at once: for a single token the calls dominate the cost
        return both[:, : self.num_heads], both[:, self.num_heads :], value


class CausalSelfAttention(SelfAttention):
    """Attention of each token to itself and the tokens before it."""

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        cache: Cache | None,
        mask: Bool[Tensor, "B 1 T N"] | Blocks | Joined | None,
        rotary: Float[Tensor, "2 N K"] | None,
    ) -> tuple[Float[Tensor, "B T D"], KeysValues]:
        """Return the mixed values, and all keys and values (cached and new), unrotated.

        Without a mask each token sees every token before it.
        """
        query, key, value = self.heads(x, None)
        if cache is not None:
            # The state keeps the parameters' precision; under autocast it is concatenated with keys of a lower
            # precision.
            key = torch.cat([cache[0].to(key.dtype), key], 2)
            value = torch.cat([cache[1].to(value.dtype), value], 2)
        elif torch.compiler.is_compiling():
            # Compiled code that returns views of its own results fails when torch loads it from its cache on disk.
            key, value = key.clone(), value.clone()
        # Keys are cached unrotated, because their positions relative to the window change with every chunk.
        turned = key
        if rotary is not None:
            query, turned = rotate(query, rotary[:, -x.shape[1] :]), rotate(key, rotary)
        if isinstance(mask, Blocks):
            mixed = mask.attend(partial(self.attend, causal=False), query, turned, value)
        elif isinstance(mask, Joined):
            dropout = self.dropout if self.training else 0.0
            mixed = mask.attend(partial(self.attend, causal=False), query, turned, value, dropout)
        else:
            mixed = self.attend(query, turned, value, mask, causal=mask is None)
        return self.out(mixed), (key, value)

    def alone(self, x: Float[Tensor, "B T D"], rotary: Float[Tensor, "2 T K"] | None) -> Float[Tensor, "B T D"]:
        """Return the same mixed values as `forward` without cache and mask, faster because nothing is cached."""
        return self.out(self.attend(*self.heads(x, rotary), None, causal=True))

    def step(
        self, x: Float[Tensor, "N 1 D"], slots: Slots, seen: Seen, rotary: Float[Tensor, "2 1 K"] | None
    ) -> Float[Tensor, "N 1 D"]:
        """Return the mixed values of one more token, and add its key and value to `slots`."""
        query, key, value = self.split(x, rotary)
        return self.out(slots.attend(query, key, value, seen))


class BidirectionalSelfAttention(SelfAttention):
    """Attention of each token to every token."""

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B 1 1 T"] | None,
        rotary: Float[Tensor, "2 T K"] | None,
    ) -> Float[Tensor, "B T D"]:
        """Return the mixed values; without a mask every token is real."""
        return self.out(self.attend(*self.heads(x, rotary), mask, causal=False))


class CrossAttention(Attention):
    """Attention of each token to the tokens of a source, whose keys and values are computed once."""

    def __init__(self, options: BlockOptions, name: str) -> None:
        super().__init__(options, name)
        dim, width = options.dim, self.head_width
        self.query = nn.Linear(dim, self.num_heads * width, bias=options.bias)
        self.key_value = nn.Linear(dim, 2 * self.num_kv_heads * width, bias=options.bias)
        self.out = nn.Linear(self.num_heads * width, dim, bias=options.bias)

    def read(self, source: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"]) -> SourceKeysValues:
        """Return keys and values of a right-padded source.

        They are zero at padding, so attention to an empty source returns zeros.
        """
        padding = padding_of(lengths, source.shape[1]).unsqueeze(-1)
        key, value = split_heads(self.key_value(source).masked_fill(padding, 0.0), 2, self.num_kv_heads)
        return (key if self.key_norm is None else normed(key, self.key_norm)), value

    def _query(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T K"]:
        (query,) = split_heads(self.query(x), 1, self.num_heads)
        return query if self.query_norm is None else normed(query, self.query_norm)

    def forward(
        self, x: Float[Tensor, "B T D"], source: SourceKeysValues, mask: Bool[Tensor, "B 1 1 S"] | None
    ) -> Float[Tensor, "B T D"]:
        """Return the mixed values of a source that was `read`; without a mask all of it is real."""
        query = self._query(x)
        key, value = source[0].to(query.dtype), source[1].to(query.dtype)  # under autocast the query's is lower
        return self.out(self.attend(query, key, value, mask, causal=False))

    def step(
        self, x: Float[Tensor, "N 1 D"], source: SourceKeysValues, mask: Bool[Tensor, "B 1 1 S"]
    ) -> Float[Tensor, "N 1 D"]:
        """Return the mixed values of one token for each row; several rows of a lane share one source."""
        query = by_keys(self._query(x), self.num_kv_heads)
        key, value = source[0].to(query.dtype), source[1].to(query.dtype)
        mixed = unfold(F.scaled_dot_product_attention(fold(query, len(key)), key, value, mask), query.shape[2])
        return self.out(mixed.flatten(1).unsqueeze(1))
