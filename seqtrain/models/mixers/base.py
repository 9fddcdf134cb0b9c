"""The interface of a mixer, the part of a block that exchanges information between tokens, and the block around it.

Letters: `B` lanes, `T` time, `D` width, `H` heads, `K` key width, `V` value width, `C` channels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.layers.block_options import BlockOptions
from seqtrain.models.layers.blocks import FeedForward, ResidualNorm
from seqtrain.models.layers.convolution import convolve
from seqtrain.models.stepper import State


class Mixer(nn.Module, ABC):
    """Maps a sequence, and the state that earlier tokens left, to a sequence of the same width.

    A constructor takes the width of the stream as `dim`; everything else is an option of its file in conf/mixer.
    """

    @abstractmethod
    def initial(self, batch: int) -> State:
        """Return the state before anything was read: all zeros, batch first."""

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "B T D"], state: State, starts: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Return the mixed sequence, and the state after its last token.

        Args:
            x: The sequence.
            state: State before its first token; it is not modified.
            starts: True where a document begins: the state is reset to zeros before such a token. None: nowhere.
        """

    def flops(self, length: int) -> float:
        """Return the operations per token for products between tokens and with the memory, in theory.

        Linear maps, convolutions and attention are not included; they are counted elsewhere.

        Args:
            length: Number of tokens that are read at a time.
        """
        return 0.0

    def steps(self, length: int) -> int:
        """Return the number of sequential operations for `length` tokens."""
        return length


class MixerBlock(nn.Module):
    """A mixer and a feed-forward part, each added to the residual stream and applied after a norm."""

    def __init__(self, mixer: Mixer, options: BlockOptions) -> None:
        super().__init__()
        self.mixer, self.feed_forward = mixer, FeedForward(options)
        self.norm1, self.norm2 = ResidualNorm(options), ResidualNorm(options)

    def forward(
        self, x: Float[Tensor, "B T D"], state: State, starts: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Return the stream after this block, and the state of its mixer."""
        mixed, state = self.mixer(self.norm1.before(x), state, starts)
        x = self.norm1.after(x, mixed)
        return self.norm2.after(x, self.feed_forward(self.norm2.before(x))), state


class ShortConvolution(nn.Module):
    """A causal convolution of each channel over its last `width` values, then silu; with width 0 it is the identity."""

    def __init__(self, channels: int, width: int, *, bias: bool = False) -> None:
        super().__init__()
        self.channels, self.width = channels, width
        if width:
            self.weight = nn.Parameter(torch.empty(channels, 1, width).uniform_(-(width**-0.5), width**-0.5))
            self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def initial(self, batch: int) -> State:
        """Return zeros for the values before the first token; empty without a convolution."""
        return {"conv": self.weight.new_zeros(batch, self.width - 1, self.channels)} if self.width else {}

    def forward(
        self, x: Float[Tensor, "B T C"], state: State, starts: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T C"], State]:
        """Return the convolved values, and the last `width - 1` values that were read."""
        if not self.width:
            return x, {}
        values, length = torch.cat([state["conv"].to(x.dtype), x], 1), x.shape[1]
        newest = values[:, length:]
        if starts is None:
            mixed = convolve(values.transpose(1, 2), self.weight, self.bias, groups=self.channels).transpose(1, 2)
        else:
            document = F.pad(starts.cumsum(1), (self.width - 1, 0)).unsqueeze(-1)
            own = document[:, self.width - 1 :]
            mixed = torch.zeros_like(x) if self.bias is None else self.bias.expand_as(x)
            for tap in range(self.width):
                here = slice(tap, tap + length)
                mixed = mixed + torch.where(document[:, here] == own, values[:, here], 0.0) * self.weight[:, 0, tap]
            newest = torch.where(document[:, length:] == own[:, -1:], newest, 0.0)
        # A copy: a view would keep all values in memory.
        return F.silu(mixed), {"conv": newest.to(state["conv"].dtype).contiguous()}


def heads(x: Float[Tensor, "B T C"], num_heads: int) -> Float[Tensor, "B {num_heads} T C//{num_heads}"]:
    """Cut channels into heads."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def joined(x: Float[Tensor, "B H T V"]) -> Float[Tensor, "B T H*V"]:
    """Undo `heads`."""
    return x.transpose(1, 2).flatten(2)


def exact(x: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Return numbers in at least float32, because recurrences need its precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def full_precision(device: torch.device) -> torch.autocast:
    """Return a context without autocast."""
    # Autocast does not support the meta device, on which operations are counted.
    return torch.autocast("cpu" if device.type == "meta" else device.type, enabled=False)
