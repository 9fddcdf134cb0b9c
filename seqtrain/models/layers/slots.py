"""Keys and values of one layer while a sequence is written token by token: rotated once, and written in place.

A slot is the place of a token: 0 for the first one that is kept of what was read before, counted on from there. Lanes
that have read less stand right-aligned, so that all rows write into the same slot. Rotary attention knows distances
alone, so a slot serves as position, however much was read before.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from seqtrain.models.stepper import fold, unfold

KeysValues = tuple[Float[Tensor, "B H N K"], Float[Tensor, "B H N K"]]
"""Those of all N tokens that attention sees, old and new."""

SPARE = 32  # slots at least that are made at a time


class Seen:
    """Which slots the newest token of each row sees.

    Args:
        begin: the first slot that any row sees.
        mask: where not all rows see all slots from there on, which of them (of the prefix, where rows share it).
    """

    def __init__(self, begin: int, mask: Bool[Tensor, "B 1 1 N"] | None) -> None:
        self.begin = begin
        self.mask = mask


class Slots:
    """What one layer has read.

    Args:
        prefix: keys and values of what was read before, right-aligned, keys rotated by their slots.
        shared: whether rows of a lane share the prefix, so that it is not copied when they branch.
    """

    def __init__(self, prefix: KeysValues, shared: bool) -> None:
        self.prefix: KeysValues | None = prefix if shared else None
        self.first = prefix[0].shape[2] if shared else 0  # the slot of the first key in the buffers
        self.used = 0 if shared else prefix[0].shape[2]  # keys in the buffers
        empty = prefix[0][:, :, :0], prefix[1][:, :, :0]
        self.key, self.value = empty if shared else prefix

    def keep(self, rows: Int[Tensor, " N"], lanes: Int[Tensor, " B"] | None) -> None:
        """Goes on with some rows; with some lanes of the prefix, where not all go on."""
        if self.used:
            self.key, self.value = self.key[rows], self.value[rows]
        if self.prefix is not None and lanes is not None:
            self.prefix = self.prefix[0][lanes], self.prefix[1][lanes]

    def attend(
        self,
        query: Float[Tensor, "N H 1 K"],
        key: Float[Tensor, "N H 1 K"],
        value: Float[Tensor, "N H 1 K"],
        seen: Seen,
    ) -> Float[Tensor, "N 1 H*K"]:
        """Writes a key and a value, and mixes the values of all that is seen."""
        self._write(key, value, seen.begin)
        # From here on a row's own keys are those of the buffers from slot `begin` on.
        begin = max(seen.begin - self.first, 0)
        keys, values = self.key[:, :, begin : self.used], self.value[:, :, begin : self.used]
        if self.prefix is None or seen.begin >= self.first:
            self.prefix = None  # no later token sees it again
            mixed = F.scaled_dot_product_attention(query, keys, values, seen.mask)
            return mixed.transpose(1, 2).flatten(2)
        # Two softmaxes in one: over the prefix, at which all rows of a lane look together, and over each row's own.
        prefix_key, prefix_value = (part[:, :, seen.begin :].to(key.dtype) for part in self.prefix)
        lanes = len(prefix_key)
        scaled = query / math.sqrt(query.shape[-1])
        before = fold(scaled, lanes) @ prefix_key.transpose(2, 3)  # (B, H, W, S)
        if seen.mask is not None:
            before = before.masked_fill(~seen.mask, -torch.inf)
        scores = torch.cat([unfold(before), scaled @ keys.transpose(2, 3)], -1)
        weights = scores.softmax(-1)
        split = prefix_key.shape[2]
        mixed = unfold(fold(weights[..., :split], lanes) @ prefix_value) + weights[..., split:] @ values
        return mixed.transpose(1, 2).flatten(2)

    def _write(self, key: Float[Tensor, "N H 1 K"], value: Float[Tensor, "N H 1 K"], begin: int) -> None:
        """Puts a key and a value into the next slot; keys before slot `begin` are seen no more."""
        if self.used == self.key.shape[2]:
            # Room for as many again: so each key is moved a few times at most, however long the text becomes.
            first = max(begin, self.first)
            kept = self.used - (first - self.first)
            room = kept + max(kept, SPARE)
            self.key = _moved(self.key, self.used - kept, self.used, room, key)
            self.value = _moved(self.value, self.used - kept, self.used, room, value)
            self.first, self.used = first, kept
        self.key[:, :, self.used] = key[:, :, 0]
        self.value[:, :, self.used] = value[:, :, 0]
        self.used += 1


def _moved(
    buffer: Float[Tensor, "N H C K"], begin: int, end: int, room: int, like: Float[Tensor, "N H 1 K"]
) -> Float[Tensor, "N H {room} K"]:
    """A buffer with room for more, that begins with some of another."""
    larger = like.new_empty(len(like), buffer.shape[1], room, buffer.shape[3])
    larger[:, :, : end - begin] = buffer[:, :, begin:end]
    return larger
