"""Keys and values of one layer while a sequence is written token by token: rotated once, and written in place.

A slot is the index of a token: 0 for the first kept token of what was read before, then counting up. Lanes that have
read less are right-aligned, so that all rows write into the same slot. Rotary attention depends only on distances, so a
slot can serve as position, however much was read before.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from seqtrain.models.stepper import Stepper, fold, unfold

KeysValues = tuple[Float[Tensor, "B G N K"], Float[Tensor, "B G N K"]]
"""Keys and values of all N tokens that attention sees, old and new."""

SPARE = 32  # minimum number of slots allocated at a time


class Seen:
    """The slots that the newest token of each row sees.

    Args:
        begin: the first slot that any row sees.
        mask: the slots from `begin` on that each row sees (slots of the prefix, if rows share it); None for all.
    """

    def __init__(self, begin: int, mask: Bool[Tensor, "B 1 1 N"] | None) -> None:
        self.begin = begin
        self.mask = mask


class Slots:
    """The keys and values that one layer has read.

    Args:
        prefix: keys and values of earlier tokens, right-aligned, keys rotated by their slots.
        shared: True if rows of a lane share the prefix, which is then not copied when they branch.
    """

    def __init__(self, prefix: KeysValues, shared: bool) -> None:
        count = prefix[0].shape[2]
        self.prefix: KeysValues | None = prefix if shared else None
        self.first = count if shared else 0  # the slot of the first key in the buffers
        self.used = 0  # keys in the buffers
        self.key, self.value = prefix[0][:, :, :0], prefix[1][:, :, :0]
        if not shared:
            self.used = count
            self.key, self.value = _with_room(prefix[0], count, prefix[0]), _with_room(prefix[1], count, prefix[1])
        # The previous buffers: memory that can be reused.
        self.spares: list[Float[Tensor, "N H C K"] | None] = [None, None]

    def keep(self, rows: Int[Tensor, " N"], lanes: Int[Tensor, " B"] | None) -> None:
        """Keep the given rows and, unless `lanes` is None, the given lanes of the prefix."""
        if self.used:
            self.key, self.spares[0] = _picked(self.key, self.used, rows, self.spares[0]), self.key
            self.value, self.spares[1] = _picked(self.value, self.used, rows, self.spares[1]), self.value
        if self.prefix is not None and lanes is not None:
            self.prefix = self.prefix[0].index_select(0, lanes), self.prefix[1].index_select(0, lanes)

    def attend(
        self,
        query: Float[Tensor, "N H 1 K"],
        key: Float[Tensor, "N G 1 K"],
        value: Float[Tensor, "N G 1 K"],
        seen: Seen,
    ) -> Float[Tensor, "N 1 H*K"]:
        """Write a key and a value, and mix the values of all slots that are seen."""
        self._write(key, value, seen.begin)
        query = by_keys(query, key.shape[1])
        # From here on a row's own keys are those in the buffers from slot `begin` on.
        begin = max(seen.begin - self.first, 0)
        keys, values = self.key[:, :, begin : self.used], self.value[:, :, begin : self.used]
        if self.prefix is None or seen.begin >= self.first:
            self.prefix = None  # no later token sees it again
            return F.scaled_dot_product_attention(query, keys, values, seen.mask).flatten(1).unsqueeze(1)
        # Two softmaxes in one: over the prefix, which all rows of a lane attend to together, and over each row's own
        # keys.
        prefix_key, prefix_value = (part[:, :, seen.begin :].to(key.dtype) for part in self.prefix)
        lanes = len(prefix_key)
        scaled = query / math.sqrt(query.shape[-1])
        before = fold(scaled, lanes) @ prefix_key.transpose(2, 3)  # (B, G, W * R, S)
        if seen.mask is not None:
            before = before.masked_fill(~seen.mask, -torch.inf)
        scores = torch.cat([unfold(before, query.shape[2]), scaled @ keys.transpose(2, 3)], -1)
        weights = scores.softmax(-1)
        split = prefix_key.shape[2]
        mixed = unfold(fold(weights[..., :split], lanes) @ prefix_value, query.shape[2])
        return (mixed + weights[..., split:] @ values).flatten(1).unsqueeze(1)

    def _write(self, key: Float[Tensor, "N G 1 K"], value: Float[Tensor, "N G 1 K"], begin: int) -> None:
        """Write a key and a value into the next slot; keys before slot `begin` are not seen again."""
        if self.used == self.key.shape[2]:
            # Double the size, so that each key is moved only a few times, however long the text becomes.
            first = max(begin, self.first)
            begin = first - self.first
            self.key = _with_room(self.key[:, :, begin : self.used], self.used - begin, key)
            self.value = _with_room(self.value[:, :, begin : self.used], self.used - begin, value)
            self.first, self.used = first, self.used - begin
            self.spares = [None, None]
        self.key[:, :, self.used] = key[:, :, 0]
        self.value[:, :, self.used] = value[:, :, 0]
        self.used += 1


def by_keys(query: Float[Tensor, "N H 1 K"], num_kv_heads: int) -> Float[Tensor, "N {num_kv_heads} R K"]:
    """Arrange the R = H/G queries that share one head of keys as positions of one sequence."""
    return query.unflatten(1, (num_kv_heads, -1)).squeeze(3)


def _with_room(keys: Float[Tensor, "N H C K"], count: int, like: Float[Tensor, "M H T K"]) -> Float[Tensor, "M H _ K"]:
    """Create a buffer in the precision of `like`: first `count` keys, then room for at least as many more."""
    buffer = like.new_empty(len(like), keys.shape[1], count + max(count, SPARE), keys.shape[3])
    if count:
        buffer[:, :, :count] = keys
    return buffer


def _picked(
    buffer: Float[Tensor, "N H C K"], used: int, rows: Int[Tensor, " M"], spare: Float[Tensor, "R H C K"] | None
) -> Float[Tensor, "M H C K"]:
    """Copy the used part of some rows of a buffer, into the memory of a spare one if that is large enough."""
    # Allocating megabytes at each token would cost more than copying: the system provides new memory page by page.
    if spare is None or len(spare) < len(rows):
        spare = buffer.new_empty(len(rows), *buffer.shape[1:])
    picked = spare[: len(rows)]
    # Many times faster than indexing with [rows], which copies number by number.
    torch.index_select(buffer[:, :, :used], 0, rows, out=picked[:, :, :used])
    return picked


class BlockStepper(Stepper):
    """Keeps the slots of every layer, and which of them each row sees.

    Args:
        prefixes: for each layer, keys and values of earlier tokens, right-aligned, with keys rotated by their slots.
        filled: tokens that each lane has read before.
        attention_window: number of earlier tokens that a token sees; None: all.
        branches: True if lanes will have several rows, which then share the prefix.
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
        # For each lane, the slot where its tokens begin; earlier slots are empty.
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
        # Lanes stay in order, so if their number is unchanged, all lanes are kept.
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
