"""Convolutions along time that read their channels where they stand."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


def convolve(
    x: Float[Tensor, "B C N"],
    weight: Float[Tensor, "D _ K"],
    bias: Float[Tensor, " D"] | None = None,
    *,
    dilation: int = 1,
    groups: int = 1,
) -> Float[Tensor, "B D T"]:
    """Compute what `F.conv1d` does, faster where x is a transposed (B, N, C).

    Args:
        x: The channels of each lane.
        weight: K taps for each output and each of the C / G channels of its group.
        bias: Added to each output.
        dilation: Positions from tap to tap.
        groups: G, groups of channels that do not meet.

    Returns:
        The T = N - dilation (K - 1) outputs of D channels, in the layout of x.
    """
    # An image of one row: torch keeps an image's channels last if they are, and would copy those of a sequence.
    image = F.conv2d(x.unsqueeze(2), weight.unsqueeze(2), bias, dilation=(1, dilation), groups=groups)
    return image.squeeze(2)


class TimeConvolution(nn.Conv1d):
    """torch's Conv1d without stride and padding, computed by `convolve`."""

    def forward(self, input: Float[Tensor, "B C N"]) -> Float[Tensor, "B D T"]:
        return convolve(input, self.weight, self.bias, dilation=self.dilation[0], groups=self.groups)
