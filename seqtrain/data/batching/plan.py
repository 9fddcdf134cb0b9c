"""The plan of batches: a pure function of the corpus, the lanes, the cut of time, seed and epoch.

The world size enters only `deal`: ranks and micro-batches are slices of lanes, never of time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from seqtrain.errors import UserError


@dataclass(frozen=True, kw_only=True)
class TBPTT:
    """How time is cut: truncated back-propagation through time (Williams & Peng 1990)."""

    k2: int  # tokens that the gradient reaches back
    k1: int  # tokens between updates, each scored by the one that follows it
    carry: bool  # whether the state goes on from chunk to chunk
    reset: Literal["never", "document"]  # whether a document begins at a chunk start with a fresh state
    jitter: Literal["none", "awd"] = "none"  # whether chunk lengths are drawn (AWD-LSTM: Merity et al. 2017)

    def __post_init__(self) -> None:
        lines = list(self._faults())
        if lines:
            raise UserError(*lines)

    def _faults(self) -> Iterator[str]:
        k1, k2, above = self.k1, self.k2, "expected a number of tokens above 0"
        if k2 < 1:
            yield f"tbptt.k2={k2}: {above}"
        elif k1 < 1:
            yield f"tbptt.k1={k1}: {above}"
        elif k1 > k2:
            yield f"tbptt.k1={k1}: the gradient must reach all tokens of an update; use at most tbptt.k2={k2}"
        elif k2 % k1:
            near = min((k for k in range(1, k2 + 1) if k2 % k == 0), key=lambda k: abs(k - k1))
            yield f"tbptt.k1={k1}: tbptt.k2={k2} is no multiple of it; use one that divides {k2}, such as {near}"
        if self.jitter != "none":
            asked = {"k1": (k1, k2), "reset": (self.reset, "never"), "carry": (self.carry, True)}
            for key, (value, needed) in asked.items():
                if value != needed:
                    words = f"needs tbptt.{key}={str(needed).lower()}, not {str(value).lower()}"
                    yield f"tbptt.jitter={self.jitter}: {words}; or use tbptt.jitter=none"

    @property
    def evaluation(self) -> TBPTT:
        """The cut by which evaluation reads: where state is carried, each token once, since its cuts change nothing."""
        return replace(self, k1=self.k2 if self.carry else self.k1, jitter="none")

    @property
    def warmup_chunks(self) -> tuple[int, ...]:
        """Tokens of each reading that comes before the newest `k1` of a window that is full."""
        older = self.k2 - self.k1
        first = min(self.k1, older) if self.carry else older  # where state is carried it is kept after the first k1
        return tuple(filter(None, (first, older - first)))


class Chunk(NamedTuple):
    """What each lane reads in one step; a lane's targets are tokens begin to begin + count - 1."""

    begin: np.ndarray  # (B,) int64
    count: np.ndarray  # (B,) int64, 0 where the lane has nothing left
    starts: np.ndarray  # (B,) bool, whether the lane starts from nothing
    warmup_chunks: tuple[Chunk, ...] = ()  # what is read just before, for the gradient to reach it; oldest first
    advance: int = 1  # how many readings (those of the history, then its own) the next step no longer reads: 0 or 1

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
        self.tbptt = tbptt
        self._stretches = _stretches(documents, lanes, tbptt)
        longest = int(np.diff(self._stretches).max())
        drawn = tbptt.jitter != "none"
        self._lengths = awd_lengths(longest, tbptt.k2, seed) if drawn else np.full(-(-longest // tbptt.k1), tbptt.k1)
        self._newest: tuple[int, ChunkTable] | None = None  # of one epoch, kept for its steps
        table = self._table(0)
        self.steps = len(table.targets)
        self.targets = table.targets  # of each step, in reading order; jitter: of the first epoch
        self.padding = 1 - self.num_tokens / int(table.widths.sum() * lanes)

    def chunk(self, epoch: int, step: int) -> Chunk:
        """What each lane reads in this step of this epoch."""
        table, depth = self._table(epoch), self.tbptt.k2 // self.tbptt.k1
        newest = int(self._order(epoch)[step]) if self.shuffle else step
        oldest = max(newest + 1 - depth, 0)
        index = table.edges[:-1, None] + np.arange(oldest, newest + 1)  # (B, chunks of the window)
        live = index < table.edges[1:, None]
        index = np.minimum(index, len(table.begin) - 1)
        begin, count, fresh = table.begin[index], np.where(live, table.count[index], 0), table.fresh[index]
        fresh[:, 0] |= oldest == 0 or not self.carry
        advance = int(index.shape[1] == depth)  # a window that still grows begins where it did
        # One reading goes on to where a lane starts anew, or the next window begins; the newest chunk is one by itself.
        anew = np.flatnonzero((fresh & live).any(0))
        edges = sorted({0, min(advance, newest - oldest) if self.carry else 0, *anew.tolist(), newest - oldest})
        count = np.add.reduceat(count, edges, axis=1)
        *warmup_chunks, last = (Chunk(begin[:, edge], count[:, n], fresh[:, edge]) for n, edge in enumerate(edges))
        return last._replace(warmup_chunks=tuple(warmup_chunks), advance=advance)

    def tokens_before(self, step: int) -> int:
        """Targets of all steps before `step`, counted over epochs, in an unshuffled epoch's order."""
        epoch, within = divmod(step, self.steps)
        return epoch * self.num_tokens + int(self._table(epoch).targets[:within].sum())

    def most_read(self, step: int) -> int:
        """The most tokens that a lane has read in the epoch of the last of `step` steps, padding included."""
        epoch, within = divmod(max(step - 1, 0), self.steps)
        return int(self._table(epoch).widths[: within + 1].sum())

    def pace(self, step: int) -> float:
        """The length of the chunk of this step, counted over epochs, in units of k2."""
        epoch, within = divmod(step, self.steps)
        return float(self._table(epoch).lengths[within] / self.tbptt.k2)

    def _table(self, epoch: int) -> ChunkTable:
        """The chunks of an epoch; with jitter their lengths are those of the others, in another order."""
        epoch = 0 if self.tbptt.jitter == "none" else epoch
        if self._newest is None or self._newest[0] != epoch:
            lengths = self._lengths if self.tbptt.jitter == "none" else self._permuted(epoch, self._lengths)
            self._newest = epoch, _table(self._stretches, lengths, self.lanes, self.tbptt)
        return self._newest[1]

    def _order(self, epoch: int) -> np.ndarray:
        return self._permuted(epoch, np.arange(self.steps))

    def _permuted(self, epoch: int, values: np.ndarray) -> np.ndarray:
        return np.random.default_rng((self.seed, epoch)).permutation(values)


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
        order, steps = self._shuffled(epoch)
        place = steps[step]
        return Picked(order[self._edges[place] : self._edges[place + 1]], epoch)

    def tokens_before(self, step: int) -> int:
        """Tokens of all steps before `step`, counted over epochs."""
        epoch, within = divmod(step, self.steps)
        return epoch * self.num_tokens + int(self.targets[self._shuffled(epoch)[1][:within]].sum())

    def _shuffled(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The examples by length, and which step, in order of length, each step of this epoch is."""
        if self._newest is None or self._newest[0] != epoch:
            rng = np.random.default_rng((self.seed, epoch)) if self.shuffle else None
            order = self._by_length(rng)
            self._newest = epoch, order, np.arange(self.steps) if rng is None else rng.permutation(self.steps)
        return self._newest[1:]

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


class ChunkTable(NamedTuple):
    """The chunks of an epoch, those of a lane side by side, and what they make step by step."""

    lengths: np.ndarray  # of each chunk of the longest stretch, the end of a lane or a document apart
    begin: np.ndarray  # (n,)
    count: np.ndarray  # (n,)
    fresh: np.ndarray  # (n,) bool, whether it begins a lane or, where asked, a document
    edges: np.ndarray  # (B + 1,) where the chunks of each lane begin, and the end
    targets: np.ndarray  # (steps,)
    widths: np.ndarray  # (steps,) of the longest chunk


def awd_lengths(total: int, base: int, seed: int) -> np.ndarray:
    """Random lengths that add up to `total`: `base`, or with probability .05 half of it, and normal noise of 5 tokens.

    AWD-LSTM (Merity et al. 2017); none is shorter than 5 tokens, or than `base`, but for the last one.
    """
    least = min(5, base)
    size = -(-total // least)  # enough if all are short
    rng = np.random.default_rng(seed)
    bases = np.where(rng.random(size) < 0.95, base, base / 2)
    drawn = np.maximum(rng.normal(bases, 5).astype(np.int64), least)
    ends = drawn.cumsum()
    last = int(np.searchsorted(ends, total))
    return np.append(drawn[:last], total - (ends[last] - drawn[last]))


def _stretches(documents: np.ndarray, lanes: int, tbptt: TBPTT) -> np.ndarray:
    """Where reading may begin anew, with the end: documents, or lanes of the whole corpus."""
    if tbptt.reset == "document":
        chunks = most_lanes(documents, tbptt)
        if chunks < lanes:
            raise UserError(
                f"data.batch_size={lanes}: the documents make only {chunks} chunks; use fewer lanes or a smaller k1"
            )
        return documents
    num_tokens = int(documents[-1])
    if num_tokens < lanes:
        raise UserError(
            f"data.batch_size={lanes}: the split has only {num_tokens} tokens; use fewer lanes or more text"
        )
    return num_tokens * np.arange(lanes + 1) // lanes


def _table(stretches: np.ndarray, lengths: np.ndarray, lanes: int, tbptt: TBPTT) -> ChunkTable:
    """Each stretch cut into chunks of these lengths, the last one short; documents are dealt to lanes by the chunk."""
    time = np.concatenate([[0], np.cumsum(lengths)])
    sizes = np.diff(stretches)
    table = np.searchsorted(time, sizes)  # chunks of each stretch
    edges = np.concatenate([[0], np.cumsum(table)])
    stretch = np.repeat(np.arange(len(table)), table)
    within = np.arange(edges[-1]) - edges[stretch]
    begin = stretches[stretch] + time[within]
    count = np.minimum(time[within + 1], sizes[stretch]) - time[within]
    if tbptt.reset == "document":
        edges = edges[-1] * np.arange(lanes + 1) // lanes
    chunks = np.diff(edges)
    step = np.arange(edges[-1]) - np.repeat(edges[:-1], chunks)
    targets = np.bincount(step, count).astype(np.int64)
    widths = np.zeros_like(targets)
    np.maximum.at(widths, step, count)
    return ChunkTable(lengths, begin, count, within == 0, edges, targets, widths)
