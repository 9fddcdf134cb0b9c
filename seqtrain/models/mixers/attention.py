"""Causal attention with rotary positions within a window, as a mixer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from seqtrain.models.layers.attention import CausalSelfAttention, newest, of_document, tokens_before, window_of
from seqtrain.models.layers.block_options import BlockOptions
from seqtrain.models.layers.positions import BASE, rotary_table
from seqtrain.models.mixers.base import Mixer
from seqtrain.models.stepper import State


class Attention(Mixer):
    """Each token attends to itself and exactly the `window` tokens before it, however time is cut."""

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        window: int,
        num_kv_heads: int | None = None,
        qk_norm: bool = False,
        rotary_base: float = BASE,
    ) -> None:
        """Make the weights.

        Args:
            dim: D, the width of the stream.
            num_heads: H.
            window: M, the number of earlier tokens that a token attends to.
            num_kv_heads: Number of heads of keys and values, each shared by several query heads. None: H.
            qk_norm: True if queries and keys are normalised.
            rotary_base: Ratio of the longest wavelength of the positions to the shortest.
        """
        super().__init__()
        if dim % num_heads or dim // num_heads % 2:
            raise ValueError(f"num_heads={num_heads}: dim={dim} must be an even multiple of it")
        options = BlockOptions(
            dim=dim,
            num_heads=num_heads,
            dropout=0.0,
            norm="pre",
            bias=False,
            num_kv_heads=num_kv_heads,
            qk_norm=qk_norm,
        )
        self.window, self.rotary_base = window, rotary_base
        self.attention = CausalSelfAttention(options, "self")

    def initial(self, batch: int, slots: int | None = None) -> State:
        """Return the state before anything was read, with `slots` places for keys; None: as many as the window.

        With 0 places the cache is empty. Reading adds places, up to the size of the window.
        """
        weight, slots = self.attention.out.weight, self.window if slots is None else slots
        empty = weight.new_zeros(batch, self.attention.num_kv_heads, slots, self.attention.head_width)
        return {"key": empty, "value": empty.clone(), "filled": weight.new_zeros(batch, dtype=torch.long)}

    def forward(
        self, x: Float[Tensor, "B T D"], state: State, starts: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        length, slots = x.shape[1], state["key"].shape[2]
        num_before = tokens_before(state["filled"], starts)
        mask = None
        if slots or starts is not None or length > self.window + 1:
            mask = window_of(num_before, length, slots, self.window)
        table = rotary_table(slots + length, self.attention.head_width, x.device, base=self.rotary_base)
        mixed, cached = self.attention(x, (state["key"], state["value"]), mask, table.to(x.dtype))
        count = min(self.window, slots + length)
        key, value = (newest(each, None, slots, count).to(state["key"].dtype) for each in cached)
        filled = state["filled"] + length
        if starts is not None:
            filled = num_before[:, -1] + length
            key, value = of_document(key, filled), of_document(value, filled)
        return mixed, {"key": key.contiguous(), "value": value.contiguous(), "filled": filled}

    def widen(self, state: State) -> State:
        """Return the same state with as many places as the window; places that were not read yet hold zeros."""
        missing = self.window - state["key"].shape[2]
        # Zeros are never attended to: `filled` says which places were read.
        return {name: F.pad(value, (0, 0, missing, 0)) if value.dim() > 1 else value for name, value in state.items()}

    def steps(self, length: int) -> int:
        return 1
