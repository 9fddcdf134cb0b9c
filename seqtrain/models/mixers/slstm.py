"""The scalar memory of xLSTM (Beck et al. 2024, arXiv 2405.04517): gates that see the last hidden state."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.mixers.base import Mixer, ShortConvolution, exact, full_precision, heads, joined
from seqtrain.models.stepper import State

NAMES = ("hidden", "cell", "normaliser", "scale")


class SLSTM(Mixer):
    """Cells with exponential input gates and a normaliser, mixed within heads from token to token."""

    def __init__(self, *, dim: int, num_heads: int, conv: int = 4) -> None:
        """Make the weights.

        Args:
            dim: D, the width of the stream.
            num_heads: H; a hidden unit reads only units of its own head.
            conv: Width of the short convolution of the input, in tokens; 0 for none.
        """
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"num_heads={num_heads}: dim={dim} must be a multiple of it")
        self.num_heads, width = num_heads, dim // num_heads
        self.conv = ShortConvolution(dim, conv, bias=True)
        self.wide = nn.Linear(dim, 4 * dim)  # input gate, forget gate, candidate, output gate; each by head
        self.recurrent = nn.Parameter(torch.zeros(num_heads, width, 4 * width))
        with torch.no_grad():
            # Forget gates from short to long: the first units of a head forget within a few tokens.
            place = torch.arange(width) / max(width - 1, 1)
            self.wide.bias.view(num_heads, 4, width).zero_()[:, 1] = 12 * place**0.3 - 5
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.out = nn.Linear(dim, dim, bias=False)

    def initial(self, batch: int) -> State:
        shape = (batch, self.num_heads, self.recurrent.shape[1])
        state = {name: self.out.weight.new_zeros(shape) for name in NAMES}
        return {**state, **self.conv.initial(batch)}

    def forward(
        self, x: Float[Tensor, "B T D"], state: State, starts: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        x, after = self.conv(x, state, starts)
        given = heads(exact(self.wide(x)), self.num_heads)  # (B, H, T, 4K)
        hidden, cell, normaliser, scale = (exact(state[name]) for name in NAMES)
        read = []
        with full_precision(x.device):
            for t, token in enumerate(given.unbind(2)):
                if starts is not None:
                    fresh = starts[:, t, None, None]
                    hidden, cell, normaliser, scale = (
                        torch.where(fresh, 0.0, value) for value in (hidden, cell, normaliser, scale)
                    )
                seen = torch.einsum("bhk,hko->bho", hidden, self.recurrent)
                log_input, forget, candidate, output = (token + seen).chunk(4, -1)
                faded = F.logsigmoid(forget) + scale
                # Per number, because new and continued lanes are in one batch.
                largest = torch.where(normaliser == 0, log_input, torch.maximum(faded, log_input))
                write, keep = (log_input - largest).exp(), (faded - largest).clamp(max=0).exp()
                cell = keep * cell + write * candidate.tanh()
                normaliser, scale = keep * normaliser + write, largest
                hidden = output.sigmoid() * cell / normaliser
                read.append(hidden)
        mixed = joined(self.norm(torch.stack(read, 2).to(self.norm.weight.dtype)))
        for name, value in zip(NAMES, (hidden, cell, normaliser, scale), strict=True):
            after[name] = value.to(state[name].dtype)
        return self.out(mixed), after
