"""Transformer blocks that go on token by token: what a GPT and the decoder of a pair have in common."""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqtrain.models.layers.slots import KeysValues, Seen, Slots
from seqtrain.models.stepper import Stepper


class BlockStepper(Stepper):
    """Keeps the slots of every layer, and which of them each row sees.

    Args:
        prefixes: of each layer, keys and values of what was read before, right-aligned, keys rotated by their slots.
        filled: tokens that each lane has read before.
        attention_window: how many tokens before itself a token sees; None: all.
        branches: whether rows of a lane will come to be several, which then share what was read before.
    """

    def __init__(
        self, prefixes: list[KeysValues], filled: Int[Tensor, " B"], *, attention_window: int | None, branches: bool
    ) -> None:
        self.layers = [Slots(prefix, shared=branches) for prefix in prefixes]
        self.width = 1  # rows of each lane
        self.window = attention_window
        self.num_before = filled  # of each row
        self.branches = branches
        self.prefix_length = self.slot = prefixes[0][0].shape[2]
        # Of each lane, where what it has read begins; before that its slots are of no token.
        self.real = (self.slot - filled).clamp(min=0)
        self.last_begin = int(self.real.max())  # from this slot on every lane has tokens

    @abstractmethod
    def step(self, tokens: Int[Tensor, "N 1"], seen: Seen) -> Float[Tensor, "N 1 D"]:
        """Return the hidden states of one more token of each row."""

    def read(self, tokens: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
        begin = 0
        if self.window is not None:
            begin = max(self.slot - self.window, 0)
        hidden = self.step(tokens.unsqueeze(1), self._seen(begin))
        self.slot += 1
        self.num_before = self.num_before + 1
        return hidden[:, 0]

    def _seen(self, begin: int) -> Seen:
        """Return the slots that each row sees from slot `begin` on."""
        if begin >= self.last_begin:
            return Seen(begin, None)
        end = self.prefix_length if self.branches else self.slot + 1
        slots = torch.arange(begin, end, device=self.real.device)
        return Seen(begin, (slots >= self.real.unsqueeze(1))[:, None, None])

    def keep(self, rows: Int[Tensor, "B W"]) -> None:
        old_lanes = len(self.num_before) // self.width
        lanes = None
        # Lanes stay in order, so as many as before are all of them.
        if len(rows) < old_lanes:
            lanes = rows[:, 0] // self.width
            self.real = self.real[lanes]
        self.keep_lanes(lanes)
        flat = rows.flatten()
        for slots in self.layers:
            slots.keep(flat, lanes)
        self.num_before = self.num_before[flat]
        self.width = rows.shape[1]

    def keep_lanes(self, lanes: Int[Tensor, " B"] | None) -> None:
        """Keep the given lanes of any per-lane values that a subclass holds; None keeps all."""
