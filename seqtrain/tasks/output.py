"""Cross entropy of a large vocabulary in bounded memory: logits are computed for some rows at a time and never kept.

If kept for the backward pass, the logits of N rows over V outputs, their softmax and its gradient take 12 N V bytes:
1.2 GB for 2,048 rows and 50,000 outputs, more than the model. But the gradient with respect to the logits is known as
soon as they are (softmax minus one at the target). So each block of rows is turned into its share of the gradients of
hidden states and weights while it is still in the processor's cache, and then discarded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from seqtrain.data.batching.stream import IGNORED
from seqtrain.models.base import Capability, SequenceModel, name_of

BLOCK = 2**20  # logits computed at a time: few enough to stay in the processor's cache
GPU_BLOCK = 2**27  # a GPU is efficient only with large products
WITHOUT_GRADIENTS = ContextVar("without_gradients", default=False)
COMPILED = ContextVar("compiled", default=False)
FEWEST_ROWS = 128  # per block: each block adds to the gradient of all weights, which takes as long as a few rows


def without_gradients() -> AbstractContextManager[None]:
    """Skip the gradients of summed losses, for a forward pass that will be recomputed."""
    return _switched_on(WITHOUT_GRADIENTS)


def compiled_loss() -> AbstractContextManager[None]:
    """Let torch compile the step from logits to gradients: one kernel instead of one pass for each operation."""
    return _switched_on(COMPILED)


@contextmanager
def _switched_on(switch: ContextVar[bool]) -> Iterator[None]:
    token = switch.set(True)
    try:
        yield
    finally:
        switch.reset(token)


class Output(NamedTuple):
    """Logits that are computed on demand: hidden states, and the linear map from them to the scores of V outputs."""

    hidden: Float[Tensor, "... D"]
    weight: Float[Tensor, "W D"]  # its first V rows: an embedding also has vectors of tokens that are not outputs
    bias: Float[Tensor, " V"] | None
    num_outputs: int  # V

    def logits(self) -> Float[Tensor, "... V"]:
        """Compute the logits of all rows."""
        return F.linear(self.hidden, self.weight[: self.num_outputs], self.bias)

    def loss(self, targets: Int[Tensor, "..."], label_smoothing: float = 0.0) -> Float[Tensor, ""]:
        """Compute the summed cross entropy, with gradients; rows whose target is `IGNORED` are left out.

        Args:
            targets: one target for each row of `hidden`.
            label_smoothing: share of each target spread over all outputs (Szegedy et al. 2016).

        Returns:
            Loss in nats, in at least float32. Its gradient can be computed only once.
        """
        rows = self.hidden.flatten(0, -2)
        flat = targets.flatten()
        size = self._rows_of_a_block()
        if len(rows) <= size and not COMPILED.get():  # torch's own function computes one block
            logits = self.logits().flatten(0, -2)
            return F.cross_entropy(logits, flat, ignore_index=IGNORED, label_smoothing=label_smoothing, reduction="sum")
        return _SummedLoss.apply(rows, self.weight, self.bias, flat, self.num_outputs, size, label_smoothing)

    @classmethod
    def of(cls, head: nn.Linear, hidden: Float[Tensor, "... D"]) -> Output:
        """Return the output of a head with its own weights."""
        return cls(hidden, head.weight, head.bias, head.out_features)

    @classmethod
    def tied(
        cls,
        embed: nn.Module,
        hidden: Float[Tensor, "... D"],
        *,
        bias: Float[Tensor, " V"] | None = None,
        end: bool = False,
    ) -> Output:
        """Return the output of a head that shares the embedding's vectors of text (Press & Wolf 2017).

        Args:
            embed: the front end of the predicted tokens. If its vectors are narrower than the model, hidden states are
            multiplied by the transpose of the map that widens them.
            hidden: hidden states, as wide as the output of `embed`.
            bias: one value for each output.
            end: True for one more output, the end, which shares the start's vector.
        """
        projection = getattr(embed, "projection", None)
        if projection is not None:
            hidden = hidden @ projection
        # The start is the first special token, after all tokens of text, and no task predicts the others.
        return cls(hidden, embed.weight, bias, embed.vocab_size + end)  # type: ignore[arg-type,operator]

    @torch.no_grad()
    def measure(
        self, targets: Int[Tensor, "..."], *, double: bool = False
    ) -> tuple[Float[Tensor, " N"], Int[Tensor, " N"]]:
        """Compute losses and guesses for evaluation, without gradients.

        Args:
            targets: one target for each row of `hidden`.
            double: True to compute the nats in float64.

        Returns:
            Nats of each row, 0 where its target is `IGNORED`, and the likeliest output of each row.
        """
        losses, guesses = [], []
        size = self._rows_of_a_block()
        blocks = self.hidden.flatten(0, -2).split(size)
        for rows, wanted in zip(blocks, targets.flatten().split(size), strict=True):
            logits = self._replace(hidden=rows).logits()
            guesses.append(logits.argmax(-1))
            few = self._rows_of_a_block(fewest=1)  # fast products need many rows; the next lines copy them twice
            for some, targets_of_some in zip(logits.split(few), wanted.split(few), strict=True):
                scores = some.double() if double else some
                losses.append(F.cross_entropy(scores, targets_of_some, ignore_index=IGNORED, reduction="none"))
        return torch.cat(losses), torch.cat(guesses)

    def _rows_of_a_block(self, fewest: int | None = None) -> int:
        most = BLOCK if self.hidden.device.type == "cpu" else GPU_BLOCK
        return max(FEWEST_ROWS if fewest is None else fewest, most // self.num_outputs)


def head_products(dim: int, num_outputs: int, embed_dim: int | None) -> int:
    """Return the multiply-adds of a head, for each target.

    Args:
        dim: D.
        num_outputs: V.
        embed_dim: Width of a tied head's vectors if narrower than the model. None: D.
    """
    return dim * num_outputs if embed_dim is None else (dim + num_outputs) * embed_dim


class _SummedLoss(torch.autograd.Function):
    """The summed loss. The forward pass computes its gradients block by block; the backward pass only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Float[Tensor, "N D"],
        weight: Float[Tensor, "W D"],
        bias: Float[Tensor, " V"] | None,
        targets: Int[Tensor, " N"],
        num_outputs: int,
        size: int,
        label_smoothing: float,
    ) -> Float[Tensor, ""]:
        device = hidden.device.type
        products = hidden.dtype  # precision of the matrix products; sums use at least float32
        if torch.is_autocast_enabled(device):
            products = torch.get_autocast_dtype(device)
        sums = torch.promote_types(weight.dtype, torch.float32)
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        by_hidden = torch.empty_like(hidden) if needs_hidden else None
        by_weight = torch.zeros_like(weight, dtype=sums) if needs_weight else None
        by_bias = torch.zeros(num_outputs, dtype=sums, device=hidden.device) if needs_bias else None
        losses = torch.empty(len(hidden), dtype=sums, device=hidden.device)
        with torch.autocast(device, enabled=False):
            matrix = weight[:num_outputs].to(products)
            offset = None if bias is None else bias.to(sums)
            turn = _compiled_turn() if COMPILED.get() else _turn_into_gradient
            # One buffer for all blocks: allocating each block takes time and fragments the memory.
            buffer = torch.empty(size, num_outputs, dtype=products, device=hidden.device)
            for begin in range(0, len(hidden), size):
                block = slice(begin, begin + size)
                rows = hidden[block].to(products)
                scores = torch.mm(rows, matrix.T, out=buffer[: len(rows)])
                losses[block], summed = turn(scores, offset, targets[block], label_smoothing, sums)
                if WITHOUT_GRADIENTS.get():
                    continue
                if by_bias is not None and summed is not None:
                    by_bias += summed
                if by_hidden is not None:
                    by_hidden[block] = scores @ matrix
                if by_weight is not None:
                    _add_product(by_weight[:num_outputs], scores.T, rows)
        ctx.save_for_backward(by_hidden, by_weight, by_bias)
        ctx.precision = weight.dtype
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, scale: Float[Tensor, ""]
    ) -> tuple[
        Float[Tensor, "N D"] | None, Float[Tensor, "W D"] | None, Float[Tensor, " V"] | None, None, None, None, None
    ]:
        by_hidden, by_weight, by_bias = ctx.saved_tensors
        # In place, because a copy would be as large as the weights; torch refuses to compute such a gradient twice.
        if by_hidden is not None:
            by_hidden.mul_(scale)
        if by_weight is not None:
            by_weight = by_weight.mul_(scale).to(ctx.precision)
        if by_bias is not None:
            by_bias = by_bias.mul_(scale).to(ctx.precision)
        return by_hidden, by_weight, by_bias, None, None, None, None


@functools.cache
def _compiled_turn() -> Callable[..., tuple[Float[Tensor, " N"], Float[Tensor, " V"] | None]]:
    return torch.compile(_turn_into_gradient)


def _turn_into_gradient(
    scores: Float[Tensor, "N V"],
    offset: Float[Tensor, " V"] | None,
    targets: Int[Tensor, " N"],
    label_smoothing: float,
    sums: torch.dtype,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " V"] | None]:
    """Return nats of each row and the gradient of the offset, and overwrite `scores` with their gradients.

    Args:
        scores: Logits without the offset.
        offset: Added to the scores of each row.
        targets: Target of each row, or `IGNORED`.
        label_smoothing: As in `Output.loss`.
        sums: Precision of everything but the products.
    """
    logits = scores.to(sums)  # shares memory if the precision is the same
    if offset is not None:
        logits += offset
    losses = _loss_and_gradient(logits, targets, label_smoothing)
    scores.copy_(logits)
    return losses, None if offset is None else logits.sum(0)


def _loss_and_gradient(
    logits: Float[Tensor, "N V"], targets: Int[Tensor, " N"], label_smoothing: float
) -> Float[Tensor, " N"]:
    """Return nats of each row, and overwrite `logits` with the gradients of the logits."""
    counts = targets != IGNORED
    # Rows without a target may use any index: they are zeroed below.
    wanted = targets.clamp(min=0).unsqueeze(1)
    logits -= logits.amax(1, keepdim=True)  # so that no exponential overflows
    score = logits.gather(1, wanted)
    if label_smoothing:
        score = score * (1 - label_smoothing) + logits.mean(1, keepdim=True) * label_smoothing
    total = logits.exp_().sum(1, keepdim=True)
    losses = (total.log() - score).squeeze(1)
    logits /= total  # the probabilities; minus those of the target, they are the gradient
    if torch.compiler.is_compiling():  # a scatter would split the rest into a separate kernel
        logits += (label_smoothing - 1) * (torch.arange(logits.shape[1], device=logits.device) == wanted)
    else:
        logits.scatter_add_(1, wanted, torch.full_like(total, label_smoothing - 1))
    if label_smoothing:
        logits -= label_smoothing / logits.shape[1]
    # Filled, not multiplied by 0: a row without a target may contain nan or inf.
    if logits.device.type == "cpu" and not torch.compiler.is_compiling():
        logits.index_fill_(0, (~counts).nonzero().squeeze(1), 0)  # few rows, often none
    else:  # a list of rows would wait for the GPU
        logits.masked_fill_(~counts.unsqueeze(1), 0)
    return losses.where(counts, 0)


def _add_product(total: Float[Tensor, "V D"], left: Float[Tensor, "V N"], right: Float[Tensor, "N D"]) -> None:
    """Add left @ right in place, in the precision of `total`."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right


Pool = Literal["last", "mean", "max", "cls"]
TextPool = Literal["mean", "mean_all", "last", "cls"]
"""Pooling of single texts: `mean` averages the text's own positions, `mean_all` also the special tokens."""


def first_position_incompatibility(model: SequenceModel, how: str, others: str) -> str | None:
    """Return why pooling by the first position carries no information, or None; `others`: alternatives to name."""
    if how == "cls" and Capability.CAUSAL in model.capabilities:
        return f"task.pool=cls: the first position of model={name_of(model)} sees no later token; use {others}"
    return None


def pool(hidden: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"], how: Pool) -> Float[Tensor, "B D"]:
    """Reduce each lane's real positions to one vector: the last, the first (cls), their mean or their maximum."""
    if how == "cls":
        return hidden[:, 0]
    if how == "last":
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), lengths - 1]
    if how == "max":
        return hidden.masked_fill(padding(hidden, lengths), -math.inf).amax(1)
    return hidden.masked_fill(padding(hidden, lengths), 0.0).sum(1) / lengths.unsqueeze(1).to(hidden.dtype)


def pool_text(
    hidden: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"], how: TextPool, before: int, after: int
) -> Float[Tensor, "B D"]:
    """Pool hidden states of texts; the first `before` and the last `after` positions of a lane are special tokens."""
    if how == "mean_all":
        return pool(hidden, lengths, "mean")
    if how != "mean":
        return pool(hidden, lengths, how)
    ends = (lengths - after).unsqueeze(1)
    time = torch.arange(hidden.shape[1], device=hidden.device)
    text = ((time >= before) & (time < ends)).unsqueeze(-1)
    # Masked, not multiplied by 0: hidden states at padding are arbitrary, and may be nan.
    return hidden.masked_fill(~text, 0.0).sum(1) / (ends - before).clamp(min=1).to(hidden.dtype)


def padding(hidden: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]) -> Bool[Tensor, "B T 1"]:
    """Return a mask that is True at padding, on the right of shorter lanes."""
    return (torch.arange(hidden.shape[1], device=hidden.device) >= lengths.unsqueeze(1)).unsqueeze(-1)
