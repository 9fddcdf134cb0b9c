"""Linear recurrences with decay, read in chunks: matrix products within a chunk, one step from chunk to chunk."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

CHUNK = 32  # tokens; on a CPU 16 to 64 take about as long
BLOCK = 16  # tokens whose log decays of at least -5 multiply without overflow in float32


def chunked(x: Shaped[Tensor, "B H T *F"], size: int) -> Shaped[Tensor, "B H N {size} *F"]:
    """Split time into chunks; the last one is padded with zeros."""
    missing = -x.shape[2] % size
    if missing:
        x = F.pad(x, (0, 0) * (x.dim() - 3) + (0, missing))
    return x.unflatten(2, (-1, size))


def numbered(starts: Bool[Tensor, "B T"] | None, size: int) -> Int[Tensor, "B 1 N {size}"] | None:
    """Count the documents that have begun in each chunk, up to each token. None if `starts` is None."""
    return None if starts is None else chunked(starts.unsqueeze(1), size).cumsum(-1)


def summed(x: Float[Tensor, "*B"], document: Int[Tensor, "*#B"] | None, dim: int) -> Float[Tensor, "*B"]:
    """Return cumulative sums that restart at each document.

    The reach of sums is doubled (Hillis & Steele 1986), so that numbers of another document are never added and
    then subtracted.
    """
    if document is None:
        return x.cumsum(dim)
    reach, size = 1, x.shape[dim]
    while reach < size:
        rest = size - reach
        same = document.narrow(dim, reach, rest) == document.narrow(dim, 0, rest)
        more = torch.where(same, x.narrow(dim, 0, rest), 0.0)
        x = torch.cat([x.narrow(dim, 0, reach), x.narrow(dim, reach, rest) + more], dim)
        reach *= 2
    return x


class Decay:
    """Products of decays within the chunks, one decay per head.

    Between two documents they are 0, by a mask: a decay of -inf would give differences that are NaN.

    Logarithms are summed in float64: for sums over a chunk, float32 has too few digits for differences.

    Attributes:
        begin: (B, H, N, C, 1), decay from before the chunk to after each token.
        end: (B, H, N, C, 1), decay from after each token to the end of the chunk.
        whole: (B, H, N, 1, 1), decay over the chunk.
    """

    def __init__(self, log_decay: Float[Tensor, "B H N C"], document: Int[Tensor, "B 1 N C"] | None = None) -> None:
        total = summed(log_decay.double(), document, -1).unsqueeze(-1)
        to_begin, to_end, unseen = total, total[..., -1:, :] - total, later(total, document)
        if document is not None:
            number = document.unsqueeze(-1)
            to_begin = to_begin.masked_fill(number > 0, -torch.inf)
            to_end = to_end.masked_fill(number < number[..., -1:, :], -torch.inf)
        self.begin = to_begin.exp().to(log_decay.dtype)
        self.end = to_end.exp().to(log_decay.dtype)
        self.whole = self.begin[..., -1:, :]
        # Masked before the exponential: for a later token the difference is positive and may overflow.
        difference = (total - total.transpose(-1, -2)).to(log_decay.dtype).masked_fill(unseen, -torch.inf)
        self.between = difference.exp()

    def products(self, x: Float[Tensor, "B _ N C K"], y: Float[Tensor, "B _ N C K"]) -> Float[Tensor, "B H N C C"]:
        """Return x_i . y_j, decayed from token j to token i; 0 where j is later than i."""
        return x @ y.transpose(-1, -2) * self.between


class ChannelDecay:
    """Like `Decay`, with one decay per channel of the keys, whose logarithm must be at least -5.

    Attributes:
        begin: (B, H, N, C, K), decay from before the chunk to after each token.
        end: (B, H, N, C, K), decay from after each token to the end of the chunk.
        whole: (B, H, N, K, 1), decay over the chunk.
    """

    def __init__(self, log_decay: Float[Tensor, "B H N C K"], document: Int[Tensor, "B 1 N C"] | None = None) -> None:
        number = None if document is None else document.unsqueeze(-1)
        total, dtype = summed(log_decay.double(), number, -2), log_decay.dtype
        self.size, self.unseen = total.shape[-2], later(total, document)
        # Factors are relative to the first row of each block, so that no later token contributes to an earlier one.
        # Factors from before the block are at most 1; within it at most e^75, which fits in float32.
        self.left, self.right, begin = [], [], []
        for first in range(0, self.size, BLOCK):
            last = min(first + BLOCK, self.size)
            anchor = total[..., first : first + 1, :].expand(*total.shape[:-2], last, -1)
            if document is not None and number is not None:
                # A document that begins in the block uses its own first row, and one that began earlier none.
                index = torch.searchsorted(document, document[..., :last].contiguous()).clamp(min=first)
                anchor = total.gather(-2, index.unsqueeze(-1).expand_as(anchor))
                anchor = anchor.masked_fill(number[..., :last, :] < number[..., first : first + 1, :], -torch.inf)
            here = anchor[..., first:, :]
            self.left.append((total[..., first:last, :] - here).exp().to(dtype))
            self.right.append((anchor - total[..., :last, :]).exp().to(dtype))
            begin.append(self.left[-1] * here.exp().to(dtype))
        self.begin, to_end = torch.cat(begin, -2), total[..., -1:, :] - anchor
        if number is not None:
            self.begin = self.begin.masked_fill(number > 0, 0.0)
            to_end = to_end.masked_fill(number < number[..., -1:, :], -torch.inf)
        self.end = self.right[-1] * to_end.exp().to(dtype)
        self.whole = self.begin[..., -1, :].unsqueeze(-1)

    def products(self, x: Float[Tensor, "B H N C K"], y: Float[Tensor, "B H N C K"]) -> Float[Tensor, "B H N C C"]:
        """Return x_i . y_j, decayed from token j to token i; 0 where j is later than i."""
        rows = []
        for left, right, part in zip(self.left, self.right, x.split(BLOCK, -2), strict=True):
            last = right.shape[-2]
            found = (part * left) @ (y[..., :last, :] * right).transpose(-1, -2)
            rows.append(F.pad(found, (0, self.size - last)))
        return torch.cat(rows, -2).masked_fill(self.unseen, 0.0)


def later(
    like: Float[Tensor, "*B C _"], document: Int[Tensor, "B 1 N C"] | None = None
) -> Bool[Tensor, "C C"] | Bool[Tensor, "B 1 N C C"]:
    """Return a mask of the pairs (i, j) of a chunk's tokens in which j is later than i, or of another document."""
    size = like.shape[-2]
    mask = torch.ones(size, size, dtype=torch.bool, device=like.device).triu(1)
    return mask if document is None else mask | (document.unsqueeze(-1) != document.unsqueeze(-2))


def memories(
    whole: Float[Tensor, "B H N _ _"], written: Float[Tensor, "B H N K V"], memory: Float[Tensor, "B H K V"]
) -> tuple[Float[Tensor, "B H N K V"], Float[Tensor, "B H K V"]]:
    """Iterate over chunks: M <- whole M + written. Return the memory before each chunk, and after the last."""
    before = []
    # `unbind`, not one index per chunk: the gradient of each index is as large as the whole text.
    for keep, new in zip(whole.unbind(2), written.unbind(2), strict=True):
        before.append(memory)
        memory = keep * memory + new
    return torch.stack(before, 2), memory


def steps_in_chunks(length: int) -> int:
    """Return the number of operations in sequence: one in all chunks at once, then one per chunk."""
    return 1 + math.ceil(length / CHUNK)


def decayed_sum(
    query: Float[Tensor, "B _ T K"],
    writes: Sequence[tuple[Float[Tensor, "B _ T K"], Float[Tensor, "B H T V"]]],
    log_decay: Float[Tensor, "B H T"],
    memory: Float[Tensor, "B H K V"],
    starts: Bool[Tensor, "B T"] | None = None,
) -> tuple[Float[Tensor, "B H T V"], Float[Tensor, "B H K V"]]:
    """Compute S_t = e^{g_t} S_{t-1} + k_t v_t^T and o_t = q_t^T S_t (Dao & Gu 2024, arXiv 2405.21060).

    Args:
        query: Query q to the memory after each token; one for all heads, or one per head.
        writes: Keys k and values v that each token writes; a token writes all given pairs.
        log_decay: g, at most 0.
        memory: S before the first token.
        starts: True where S_{t-1} is reset to zeros. None: nowhere.

    Returns:
        The answers o, and S after the last token.
    """
    length = query.shape[2]
    size = min(CHUNK, length)  # the result does not depend on it
    decay, query = Decay(chunked(log_decay, size), numbered(starts, size)), chunked(query, size)
    reads, written = [], []
    for key, value in ((chunked(key, size), chunked(value, size)) for key, value in writes):
        reads.append(decay.products(query, key) @ value)
        written.append((key * decay.end).transpose(-1, -2) @ value)  # (B, H, N, K, V)
    before, memory = memories(decay.whole, sum(written[1:], written[0]), memory)
    read = sum(reads, (query * decay.begin) @ before)
    return read.flatten(2, 3)[:, :, :length], memory


def delta_flops(length: int, keys: int, values: int) -> float:
    """Count the operations of `gated_delta_rule` per written key, for a head with K keys and V values."""
    size = min(CHUNK, length)
    # Products of a chunk with itself, its triangular system, and three with the memory.
    return 2 * (2 * size * keys + size * values + size * (keys + values) / 2 + 3 * keys * values)


def gated_delta_rule(
    query: Float[Tensor, "B H T K"],
    key: Float[Tensor, "B H T K"],
    value: Float[Tensor, "B H T V"],
    beta: Float[Tensor, "B H T"],
    log_decay: Float[Tensor, "B H T"] | Float[Tensor, "B H T K"],
    memory: Float[Tensor, "B H K V"],
    starts: Bool[Tensor, "B T"] | None = None,
) -> tuple[Float[Tensor, "B H T V"], Float[Tensor, "B H K V"]]:
    """Compute S_t = S' + beta_t k_t (v_t - S'^T k_t)^T with S' = e^{g_t} S_{t-1}, and o_t = q_t^T S_t.

    The memory decays, then a share of the key's old value is removed, then the new one is written (Yang et al. 2024,
    arXiv 2412.06464).

    Args:
        query: Query q to the memory after each token.
        key: Key k of each token, of length 1.
        value: Value v of each token.
        beta: Share of the key's old value that is replaced: 0 to 2.
        log_decay: g, at most 0: one per head, or one per channel of the keys, then at least -5.
        memory: S before the first token.
        starts: True where S_{t-1} is reset to zeros. None: nowhere.

    Returns:
        The answers o, and S after the last token.
    """
    length = query.shape[2]
    size = min(CHUNK, length)  # the result does not depend on it
    parts = (query, key, value, beta, log_decay)
    query, key, value, beta, log_decay = (chunked(part, size) for part in parts)
    decay = (Decay if log_decay.dim() == 4 else ChannelDecay)(log_decay, numbered(starts, size))
    # A token's write depends on the writes of earlier tokens of the chunk: a triangular system.
    weighed = key * beta.unsqueeze(-1)
    system = decay.products(weighed, key)  # its diagonal is not read; it counts as 1
    given = torch.cat([value * beta.unsqueeze(-1), weighed * decay.begin], -1)
    solved = torch.linalg.solve_triangular(system, given, upper=False, unitriangular=True)
    writes, erases = solved.split([value.shape[-1], key.shape[-1]], -1)
    kept = (key * decay.end).transpose(-1, -2)
    before, changes = [], []
    parts = (part.unbind(2) for part in (writes, erases, decay.whole, kept))
    for write, erase, whole, keep in zip(*parts, strict=True):
        before.append(memory)
        changes.append(write - erase @ memory)
        memory = whole * memory + keep @ changes[-1]
    read = (query * decay.begin) @ torch.stack(before, 2) + decay.products(query, key) @ torch.stack(changes, 2)
    return read.flatten(2, 3)[:, :, :length], memory
