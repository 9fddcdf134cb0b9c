"""The plan of batches: a pure function of the corpus, the lanes, the cut of time, seed and epoch.

The world size enters only `deal`: ranks and micro-batches are slices of lanes, never of time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from seqtrain.faults import Fault


@dataclass(frozen=True, kw_only=True)
class TBPTT:
    """How time is cut: truncated back-propagation through time (Williams & Peng 1990)."""

    k2: int  # tokens that the gradient reaches back
    k1: int  # tokens between updates
    carry: bool  # whether the state goes on from chunk to chunk
    reset: Literal["never", "document"]  # whether a document begins at a chunk start with a fresh state


class Chunk(NamedTuple):
    """What each lane reads in one step; a lane's targets are tokens begin to begin + count - 1."""

    begin: np.ndarray  # (B,) int64
    count: np.ndarray  # (B,) int64, 0 where the lane has nothing left
    starts: np.ndarray  # (B,) bool, whether the lane starts from nothing

    @property
    def lanes(self) -> int:
        """B, what ranks and micro-batches share out."""
        return len(self.begin)


class Picked(NamedTuple):
    """The examples of one step."""

    examples: np.ndarray  # (B,) int64
    epoch: int  # what is drawn anew in every epoch, such as masks, depends on it

    @property
    def lanes(self) -> int:
        """B, what ranks and micro-batches share out."""
        return len(self.examples)


def deal(lanes: int, shares: int, share: int) -> slice:
    """The lanes of one share out of `shares` (ranks x micro-batches): contiguous, sizes differ by at most one."""
    return slice(lanes * share // shares, lanes * (share + 1) // shares)


def most_lanes(documents: np.ndarray, tbptt: TBPTT) -> int:
    """As many lanes as can each have something to read: tokens, or chunks where documents begin at chunk starts."""
    chunks = -(-np.diff(documents) // tbptt.k1)
    return int(chunks.sum()) if tbptt.reset == "document" else int(documents[-1])


class StreamPlan:
    """Cuts a corpus into lanes and steps such that every token is a target exactly once an epoch."""

    def __init__(self, *, documents: np.ndarray, lanes: int, tbptt: TBPTT, seed: int, shuffle: bool) -> None:
        """`documents`: offsets, and the end of the last one; `shuffle`: the order of independent windows."""
        self.num_tokens = int(documents[-1])
        self.lanes = lanes
        self.seed = seed
        self.shuffle = shuffle and not tbptt.carry
        self.carry = tbptt.carry
        self._begin, self._count, self._fresh, edges = _pieces(documents, lanes, tbptt)
        self._first, self._last = edges[:-1], edges[1:]
        self.steps = int((self._last - self._first).max())
        lane = np.repeat(np.arange(lanes), self._last - self._first)
        step = np.arange(len(self._count)) - self._first[lane]
        self.targets = np.bincount(step, self._count, self.steps).astype(np.int64)  # of each step, in reading order
        width = np.zeros(self.steps, dtype=np.int64)
        np.maximum.at(width, step, self._count)
        self.padding = 1 - self.num_tokens / int(width.sum() * lanes)

    def chunk(self, epoch: int, step: int) -> Chunk:
        """What each lane reads in this step of this epoch."""
        return self._row(self._order(epoch)[step] if self.shuffle else step)

    def tokens_before(self, step: int) -> int:
        """Targets of all steps before `step`, counted over epochs, in an unshuffled epoch's order."""
        epoch, within = divmod(step, self.steps)
        return epoch * self.num_tokens + int(self.targets[:within].sum())

    def _order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng((self.seed, epoch)).permutation(self.steps)

    def _row(self, step: int) -> Chunk:
        piece = self._first + step
        live = piece < self._last
        piece = np.minimum(piece, len(self._begin) - 1)
        fresh = self._fresh[piece] | (step == 0) | (not self.carry)
        return Chunk(self._begin[piece], np.where(live, self._count[piece], 0), fresh)


class ExamplePlan:
    """Groups examples of like length into steps such that each is read exactly once an epoch.

    Only examples of equal lengths change places from epoch to epoch, so every epoch has the same steps, in a new order.
    """

    def __init__(
        self, *, lengths: np.ndarray, batch_tokens: int | None, batch_size: int | None, seed: int, shuffle: bool
    ) -> None:
        """`lengths` (n, k): tokens of each example on each side that is padded by itself, as source and target are.

        A step holds at most `batch_tokens` tokens, padding included, and `batch_size` examples, but always one.
        """
        self.lengths = lengths
        self.seed = seed
        self.shuffle = shuffle
        self._newest: tuple[int, np.ndarray, np.ndarray] | None = None  # the order of one epoch, kept for its steps
        ordered = lengths[self._by_length(None)]
        self._edges = _cut(ordered, batch_tokens or 2**62, batch_size or len(lengths))
        self.steps = len(self._edges) - 1
        first, sizes = self._edges[:-1], np.diff(self._edges)
        self.targets = np.add.reduceat(ordered.sum(1), first)  # tokens of each step, in order of length
        self.num_tokens = int(lengths.sum())
        widest = np.stack([np.maximum.reduceat(side, first) for side in ordered.T]).sum(0)
        self.padding = 1 - self.num_tokens / int((widest * sizes).sum())

    @property
    def lanes(self) -> int:
        """The most examples in a step."""
        return int(np.diff(self._edges).max())

    def chunk(self, epoch: int, step: int) -> Picked:
        """The examples of this step of this epoch."""
        if self._newest is None or self._newest[0] != epoch:
            rng = np.random.default_rng((self.seed, epoch)) if self.shuffle else None
            order = self._by_length(rng)
            self._newest = epoch, order, np.arange(self.steps) if rng is None else rng.permutation(self.steps)
        _, order, steps = self._newest
        place = steps[step]
        return Picked(order[self._edges[place] : self._edges[place + 1]], epoch)

    def tokens_before(self, step: int) -> int:
        """Tokens of all steps before `step`, counted over epochs; within an epoch as if all steps were alike."""
        epoch, within = divmod(step, self.steps)
        return epoch * self.num_tokens + self.num_tokens * within // self.steps

    def _by_length(self, rng: np.random.Generator | None) -> np.ndarray:
        """The examples by length, the first side first; equals in a random order, or in their own."""
        ties = np.arange(len(self.lengths)) if rng is None else rng.permutation(len(self.lengths))
        return np.lexsort((ties, *self.lengths.T[::-1]))


def _cut(ordered: np.ndarray, batch_tokens: int, batch_size: int) -> np.ndarray:
    """Where steps begin among examples (n, k) in order of length, and the end: each takes as many as it may hold."""
    edges, begin = [0], 0
    widest = [0] * ordered.shape[1]
    for place, sides in enumerate(ordered.tolist()):
        wider = list(map(max, widest, sides))
        count = place - begin + 1
        if place > begin and (count > batch_size or count * sum(wider) > batch_tokens):
            edges.append(place)
            begin, wider = place, sides
        widest = wider
    return np.array([*edges, len(ordered)])


def _pieces(documents: np.ndarray, lanes: int, tbptt: TBPTT) -> tuple[np.ndarray, ...]:
    """Begin, count and freshness of every chunk of the corpus in order, and the edges between lanes, in chunks."""
    if tbptt.reset == "document":
        stretches = documents
    else:
        num_tokens = int(documents[-1])
        if num_tokens < lanes:
            raise Fault(f"data.lanes={lanes}: the split has only {num_tokens} tokens; use fewer lanes or more text")
        stretches = num_tokens * np.arange(lanes + 1) // lanes
    pieces = -(-np.diff(stretches) // tbptt.k1)  # chunks of each stretch, the last one short
    edges = np.concatenate([[0], np.cumsum(pieces)])
    stretch = np.repeat(np.arange(len(pieces)), pieces)
    within = np.arange(edges[-1]) - edges[stretch]
    begin = stretches[stretch] + within * tbptt.k1
    count = np.minimum(tbptt.k1, stretches[stretch + 1] - begin)
    if tbptt.reset == "document":
        if edges[-1] < lanes:
            raise Fault(
                f"data.lanes={lanes}: the documents make only {edges[-1]} chunks; use fewer lanes or a smaller k1"
            )
        edges = edges[-1] * np.arange(lanes + 1) // lanes
    return begin, count, within == 0, edges
