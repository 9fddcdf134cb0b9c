"""Linear filters over the last inputs of each channel, with those inputs as the state."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, cat
from torch.nn import functional as F

from seqtrain.models.layers.lengths import last_inputs


def filtered(
    x: Float[Tensor, "B T D"],
    before: Float[Tensor, "B P D"],
    filters: Float[Tensor, "K D"],
    lengths: Int[Tensor, " B"] | None,
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B P D"]]:
    """Sum, at each position, the last K inputs of each channel, weighted by the channel's filter.

    Args:
        x: Inputs, padded on the right.
        before: The P = K - 1 inputs before them; zeros where there were none.
        filters: The weights, that of the newest input last.
        lengths: Real inputs of each lane; None where all are.

    Returns:
        The sums, and the last K - 1 inputs of each lane.
    """
    inputs = cat([before.to(x.dtype), x], 1)
    # One filter a channel: as many groups as channels. A convolution of torch takes (B, D, T) and does not turn the
    # filter around.
    sums = F.conv1d(inputs.transpose(1, 2), filters.t().unsqueeze(1), groups=x.shape[2])
    after = last_inputs(inputs, lengths, len(filters) - 1)
    return sums.transpose(1, 2), after.to(before.dtype)


def filtered_last(x: Float[Tensor, "B T D"], filters: Float[Tensor, "K D"]) -> Float[Tensor, "B 1 D"]:
    """Return `filtered` at the last of T inputs, T <= K, preceded by zeros: one weighted sum."""
    return (x * filters[len(filters) - x.shape[1] :]).sum(1, keepdim=True)
