"""Convolutions along time that do not copy inputs whose channels are last in memory."""

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
    """Compute the same as `F.conv1d`, faster if x is a transposed (B, N, C).

    Args:
        x: The channels of each lane.
        weight: K taps for each output and each of the C / G channels of its group.
        bias: Added to each output.
        dilation: Distance between taps, in positions.
        groups: G, the number of groups; outputs of a group depend only on its own channels.

    Returns:
        The T = N - dilation (K - 1) outputs of D channels, in the layout of x.
    """
    # Computed as an image of one row: torch keeps channels last in memory for images, but copies those of sequences.
    image = F.conv2d(x.unsqueeze(2), weight.unsqueeze(2), bias, dilation=(1, dilation), groups=groups)
    return image.squeeze(2)


class TimeConvolution(nn.Conv1d):
    """torch's Conv1d without stride and padding, computed by `convolve`."""

    def forward(self, input: Float[Tensor, "B C N"]) -> Float[Tensor, "B D T"]:
        return convolve(input, self.weight, self.bias, dilation=self.dilation[0], groups=self.groups)
