"""The plan of batches: a pure function of the corpus, the lanes, the cut of time, seed and epoch.

The world size enters only `deal`: ranks and micro-batches are slices of lanes, never of time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

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
            divisors = [k for k in range(1, k2 + 1) if k2 % k == 0]
            near = min(divisors, key=lambda divisor: abs(divisor - k1))
            yield f"tbptt.k1={k1}: tbptt.k2={k2} is no multiple of it; use one that divides {k2}, such as {near}"
        if self.jitter != "none":
            # Drawn lengths are one list for all lanes, from the beginning of the text to its end.
            needed = {"k1": k2, "reset": "never", "carry": True}
            for key, value in needed.items():
                if getattr(self, key) != value:
                    words = f"needs tbptt.{key}={str(value).lower()}, not {str(getattr(self, key)).lower()}"
                    yield f"tbptt.jitter={self.jitter}: {words}; or use tbptt.jitter=none"

    @property
    def evaluation(self) -> TBPTT:
        """The cut by which evaluation reads: where state is carried, each token once, since its cuts change nothing."""
        return replace(self, k1=self.k2 if self.carry else self.k1, jitter="none")

    @property
    def warmup_chunks(self) -> tuple[int, ...]:
        """Tokens of each reading that comes before the newest `k1` of a window that is full."""
        older = self.k2 - self.k1
        first = older
        if self.carry:  # the state after the first k1 is kept: the next window begins there
            first = min(self.k1, older)
        return tuple(filter(None, (first, older - first)))


class Chunk(NamedTuple):
    """What each lane reads in one step; a lane's targets are tokens begin to begin + count - 1."""

    begin: Int[np.ndarray, " B"]
    count: Int[np.ndarray, " B"]  # 0 where the lane has nothing left
    reset_lanes: Bool[np.ndarray, " B"]  # whether the lane's state is reset before anything is read
    warmup_chunks: tuple[Chunk, ...] = ()  # what is read just before, for the gradient to reach it; oldest first
    advance: int = 1  # how many readings (those of the history, then its own) the next step no longer reads: 0 or 1

    @property
    def lanes(self) -> int:
        """B, what ranks and micro-batches share out."""
        return len(self.begin)


class ExampleChunk(NamedTuple):
    """The examples of one step."""

    examples: Int[np.ndarray, " B"]
    epoch: int  # what is drawn anew in every epoch, such as masks, depends on it

    @property
    def lanes(self) -> int:
        """B, what ranks and micro-batches share out."""
        return len(self.examples)


def deal(lanes: int, count: int, index: int) -> slice:
    """The lanes of one of `count` slices (ranks x micro-batches): contiguous, sizes differ by at most one."""
    return slice(lanes * index // count, lanes * (index + 1) // count)


def most_lanes(documents: Int[np.ndarray, " offsets"], tbptt: TBPTT) -> int:
    """As many lanes as can each have something to read: tokens, or chunks where documents begin at chunk starts."""
    if tbptt.reset == "document":
        return int((-(-np.diff(documents) // tbptt.k1)).sum())
    return int(documents[-1])


class StreamPlan:
    """Cuts a corpus into lanes and steps such that every token is a target exactly once an epoch."""

    def __init__(
        self, *, documents: Int[np.ndarray, " offsets"], lanes: int, tbptt: TBPTT, seed: int, shuffle: bool
    ) -> None:
        """`documents`: offsets, and the end of the last one; `shuffle`: the order of independent windows."""
        self.num_tokens = int(documents[-1])
        self.lanes = lanes
        self.seed = seed
        self.shuffle = shuffle and not tbptt.carry  # a state goes on only to the chunk that follows
        self.carry = tbptt.carry
        self.tbptt = tbptt
        self._stretches = _stretches(documents, lanes, tbptt)
        longest = int(np.diff(self._stretches).max())
        self._lengths = np.full(-(-longest // tbptt.k1), tbptt.k1)
        if tbptt.jitter != "none":
            self._lengths = awd_lengths(longest, tbptt.k2, seed)
        # Of one epoch, kept for its steps: to draw the order of 1e9 tokens takes as long as a step.
        self._cached: tuple[int, ChunkTable] | None = None
        self._cached_order: tuple[int, Int[np.ndarray, " n"]] | None = None
        table = self._table(0)
        self.steps = len(table.targets)
        self.targets = table.targets  # of each step, in reading order; jitter: of the first epoch
        self.padding = 1 - self.num_tokens / int(table.widths.sum() * lanes)

    def chunk(self, epoch: int, step: int) -> Chunk:
        """What each lane reads in this step of this epoch."""
        table = self._table(epoch)
        newest = step
        if self.shuffle:
            newest = int(self._order(epoch)[step])
        depth = self.tbptt.k2 // self.tbptt.k1  # chunks of a whole window
        oldest = max(newest + 1 - depth, 0)
        index = table.edges[:-1, None] + np.arange(oldest, newest + 1)  # (B, chunks of the window)
        live = index < table.edges[1:, None]  # a shorter lane has no chunk left
        index = np.minimum(index, len(table.begin) - 1)
        begin = table.begin[index]
        count = np.where(live, table.count[index], 0)
        resets = table.resets[index]
        resets[:, 0] |= oldest == 0 or not self.carry
        advance = int(index.shape[1] == depth)  # a window that still grows begins where it did
        # One reading goes on to where a lane starts anew, or the next window begins; the newest chunk is one by itself.
        edges = {0, newest - oldest, *np.flatnonzero((resets & live).any(0)).tolist()}
        if self.carry:
            edges.add(min(advance, newest - oldest))
        first = sorted(edges)  # chunk of each reading
        count = np.add.reduceat(count, first, axis=1)
        readings = [Chunk(begin[:, edge], count[:, n], resets[:, edge]) for n, edge in enumerate(first)]
        return readings[-1]._replace(warmup_chunks=tuple(readings[:-1]), advance=advance)

    def tokens_before(self, step: int) -> int:
        """Targets of all steps before `step`, counted over epochs, in an unshuffled epoch's order."""
        epoch, within = divmod(step, self.steps)
        return epoch * self.num_tokens + int(self._table(epoch).targets[:within].sum())

    def most_read(self, step: int) -> int:
        """The most tokens that a lane has read in the epoch of the last of `step` steps, padding included."""
        epoch, within = divmod(max(step - 1, 0), self.steps)  # at an epoch's end that epoch, not the one to come
        return int(self._table(epoch).widths[: within + 1].sum())

    def pace(self, step: int) -> float:
        """The length of the chunk of this step, counted over epochs, in units of k2."""
        epoch, within = divmod(step, self.steps)
        return float(self._table(epoch).lengths[within] / self.tbptt.k2)

    def _table(self, epoch: int) -> ChunkTable:
        """The chunks of an epoch; with jitter their lengths are those of the others, in another order."""
        is_jittered = self.tbptt.jitter != "none"
        if not is_jittered:  # all epochs have one table
            epoch = 0
        if self._cached is None or self._cached[0] != epoch:
            lengths = self._lengths
            if is_jittered:
                lengths = self._permuted(epoch, lengths)
            self._cached = epoch, _table(self._stretches, lengths, self.lanes, self.tbptt)
        return self._cached[1]

    def _order(self, epoch: int) -> Int[np.ndarray, " n"]:
        """The chunks of an epoch in the order in which independent windows are read."""
        if self._cached_order is None or self._cached_order[0] != epoch:
            self._cached_order = epoch, self._permuted(epoch, np.arange(self.steps))
        return self._cached_order[1]

    def _permuted(self, epoch: int, values: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        return np.random.default_rng((self.seed, epoch)).permutation(values)


class ExamplePlan:
    """Groups examples of like length into steps such that each is read exactly once an epoch.

    Only examples of equal lengths change places from epoch to epoch, so every epoch has the same steps, in a new order.
    """

    def __init__(
        self,
        *,
        lengths: Int[np.ndarray, "n sides"],
        batch_tokens: int | None,
        batch_size: int | None,
        seed: int,
        shuffle: bool,
    ) -> None:
        """`lengths`: tokens of each example on each side that is padded by itself, as source and target are.

        A step holds at most `batch_tokens` tokens, padding included, and `batch_size` examples, but always one.
        """
        self.lengths = lengths
        self.seed = seed
        self.shuffle = shuffle
        self._cached: tuple[int, np.ndarray, np.ndarray] | None = None  # the order of one epoch, kept for its steps
        # Windows of a series are as many as its rows, and all alike: they are neither copied nor counted one by one.
        self._alike = len(lengths) > 0 and bool((lengths == lengths[0]).all())
        ordered = lengths if self._alike else lengths[self._by_length(None)]
        self._edges = _cut(ordered, batch_tokens or 2**62, batch_size or len(lengths))
        self.steps = len(self._edges) - 1
        first, sizes = self._edges[:-1], np.diff(self._edges)
        self.targets = np.add.reduceat(ordered.sum(1), first)  # tokens of each step, in order of length
        self.num_tokens = int(lengths.sum())
        # Each side is padded to its own longest, so that a step is as wide as these together.
        widest = np.stack([np.maximum.reduceat(side, first) for side in ordered.T]).sum(0)
        self.padding = 1 - self.num_tokens / int((widest * sizes).sum())

    @property
    def lanes(self) -> int:
        """The most examples in a step."""
        return int(np.diff(self._edges).max())

    def chunk(self, epoch: int, step: int) -> ExampleChunk:
        """The examples of this step of this epoch."""
        order, steps = self._shuffled(epoch)
        place = steps[step]
        return ExampleChunk(order[self._edges[place] : self._edges[place + 1]], epoch)

    def tokens_before(self, step: int) -> int:
        """Tokens of all steps before `step`, counted over epochs."""
        epoch, within = divmod(step, self.steps)
        return epoch * self.num_tokens + int(self.targets[self._shuffled(epoch)[1][:within]].sum())

    def _shuffled(self, epoch: int) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " steps"]]:
        """The examples by length, and which step, in order of length, each step of this epoch is."""
        if self._cached is None or self._cached[0] != epoch:
            if self.shuffle:
                rng = np.random.default_rng((self.seed, epoch))
                self._cached = epoch, self._by_length(rng), rng.permutation(self.steps)
            else:
                self._cached = epoch, self._by_length(None), np.arange(self.steps)
        return self._cached[1:]

    def _by_length(self, rng: np.random.Generator | None) -> Int[np.ndarray, " n"]:
        """The examples by length, the first side first; equals in a random order, or in their own."""
        ties = np.arange(len(self.lengths))
        if rng is not None:
            ties = rng.permutation(len(self.lengths))
        if self._alike:
            if rng is None:
                return ties
            order = np.empty_like(ties)
            order[ties] = np.arange(len(ties))  # what a sort gives of a permutation
            return order
        return np.lexsort((ties, *self.lengths.T[::-1]))  # its last key counts most


def _cut(ordered: Int[np.ndarray, "n sides"], batch_tokens: int, batch_size: int) -> Int[np.ndarray, " edges"]:
    """Where steps begin among examples in order of length, and the end: each takes as many as it may hold."""
    if len(ordered) and (ordered == ordered[0]).all():
        width = int(ordered[0].sum())
        most = max(min(batch_size, batch_tokens // width), 1) if width else batch_size
        return np.append(np.arange(0, len(ordered), most), len(ordered))
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

    lengths: Int[np.ndarray, " longest"]  # of each chunk of the longest stretch, the end of a lane or document apart
    begin: Int[np.ndarray, " n"]
    count: Int[np.ndarray, " n"]
    resets: Bool[np.ndarray, " n"]  # whether it begins a lane or, where asked, a document
    edges: Int[np.ndarray, " B+1"]  # where the chunks of each lane begin, and the end
    targets: Int[np.ndarray, " steps"]
    widths: Int[np.ndarray, " steps"]  # of the longest chunk


def awd_lengths(total: int, base: int, seed: int) -> Int[np.ndarray, " chunks"]:
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


def _stretches(documents: Int[np.ndarray, " offsets"], lanes: int, tbptt: TBPTT) -> Int[np.ndarray, " edges"]:
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


def _table(
    stretches: Int[np.ndarray, " edges"], lengths: Int[np.ndarray, " longest"], lanes: int, tbptt: TBPTT
) -> ChunkTable:
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
