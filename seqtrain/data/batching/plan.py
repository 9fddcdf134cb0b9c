"""The plan of stream batches: a pure function of corpus, number of lanes, truncation (TBPTT), seed and epoch.

The world size matters only in `deal`: ranks and micro-batches are slices of lanes, never of time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from seqtrain.data.batching.splitmix64 import permuted
from seqtrain.errors import UserError

MAX_DRAWN = 1_000_000  # maximum number of windows whose order is drawn at once; else it is computed piece by piece
PERMUTED_AT_A_TIME = 1 << 10  # size of such a piece


@dataclass(frozen=True, kw_only=True)
class TBPTT:
    """Options of truncated back-propagation through time (Williams & Peng 1990)."""

    k2: int  # tokens that the gradient is propagated back
    k1: int  # tokens between two updates, which are the targets of one update; k1 = k2 unless chunks overlap
    carry: bool  # True to carry the state from chunk to chunk
    reset: Literal["never", "document"]  # document: reset the state where a document begins, anywhere in a chunk
    jitter: Literal["none", "awd"] = "none"  # awd: draw chunk lengths at random (AWD-LSTM: Merity et al. 2017)
    recompute: int | None = None  # tokens per piece that the backward pass computes again; None: no recomputation

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
            yield f"tbptt.k1={k1}: tbptt.k2={k2} is not a multiple of it; use a divisor of {k2}, such as {near}"
        if self.recompute is not None and not 1 <= self.recompute <= k2:
            yield f"tbptt.recompute={self.recompute}: expected a number of tokens from 1 to tbptt.k2={k2}"
        if self.jitter != "none":
            # All lanes share one list of drawn lengths, from the beginning of the text to its end.
            needed = {"k1": k2, "reset": "never", "carry": True}
            for key, value in needed.items():
                if getattr(self, key) != value:
                    words = f"needs tbptt.{key}={str(value).lower()}, not {str(getattr(self, key)).lower()}"
                    yield f"tbptt.jitter={self.jitter}: {words}; or use tbptt.jitter=none"

    @property
    def evaluation(self) -> TBPTT:
        """Options for evaluation: if state is carried, each token is read once, because cuts do not change results."""
        return replace(self, k1=self.k2 if self.carry else self.k1, jitter="none")

    @property
    def warmup_chunks(self) -> tuple[int, ...]:
        """Lengths of the chunks that a full window of k2 tokens reads before its last `k1` tokens, the targets."""
        older = self.k2 - self.k1
        first = older
        if self.carry:  # cut after the first k1 tokens: the next window begins there and needs the state
            first = min(self.k1, older)
        return tuple(filter(None, (first, older - first)))


class Chunk(NamedTuple):
    """The tokens that each lane reads in one step; a lane's targets are tokens begin to begin + count - 1."""

    begin: Int[np.ndarray, " B"]
    count: Int[np.ndarray, " B"]  # 0 if the lane has no tokens left
    reset_lanes: Bool[np.ndarray, " B"]  # True if the lane's state is reset before the chunk
    # Earlier tokens of the same window, oldest first: read again, so that the gradient is propagated back k2 tokens.
    warmup_chunks: tuple[Chunk, ...] = ()
    # Number of forward passes of this step (its warm-up chunks, then itself) before the position where the next window
    # begins; 0 while the window has fewer than k2 tokens, else 1.
    advance: int = 1
    by_document: bool = False  # True if the state is also reset where a document begins

    @property
    def lanes(self) -> int:
        """B, the size that ranks and micro-batches share."""
        return len(self.begin)


class ExampleChunk(NamedTuple):
    """The examples of one step."""

    examples: Int[np.ndarray, " B"]
    epoch: int  # seeds what is drawn anew in every epoch, such as masks

    @property
    def lanes(self) -> int:
        """B, the size that ranks and micro-batches share."""
        return len(self.examples)


def deal(lanes: int, count: int, index: int) -> slice:
    """Return slice `index` of `count` slices of the lanes: contiguous, with sizes that differ by at most one.

    Args:
        lanes: Number of lanes.
        count: Number of slices: ranks x micro-batches.
        index: Index of the slice.
    """
    return slice(lanes * index // count, lanes * (index + 1) // count)


class StreamPlan:
    """Divides a corpus into lanes and steps such that every token is a target exactly once per epoch.

    The position of a chunk is computed from its number; only drawn lengths (`tbptt.jitter`) are stored.
    """

    def __init__(
        self, *, documents: Int[np.ndarray, " offsets"], lanes: int, tbptt: TBPTT, seed: int, shuffle: bool
    ) -> None:
        """Cut the corpus.

        Args:
            documents: Beginning (offsets,) of each document, and the end of the last one.
            lanes: Number of lanes.
            tbptt: Options of truncated back-propagation through time.
            seed: Seed of all random choices, together with the epoch.
            shuffle: True to draw the order of independent windows; ignored if state is carried.
        """
        self.num_tokens = int(documents[-1])
        self.lanes = lanes
        self.seed = seed
        self.shuffle = shuffle and not tbptt.carry  # carried state requires consecutive chunks
        self.carry = tbptt.carry
        self.tbptt = tbptt
        self._cuts = _LaneCuts(documents, lanes, tbptt, seed)
        self.steps = self._cuts.steps
        # Cached for an epoch or some of its steps: drawing the order of a million windows takes as long as some steps.
        self._cached_order: tuple[tuple[int, int], Int[np.ndarray, " n"]] | None = None

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens of a step; with jitter, of a step of the first epoch."""
        return self._cuts.most

    @property
    def padding(self) -> float:
        """Fraction of positions that are padding."""
        return 1 - self.num_tokens / (self._cuts.width * self.lanes)

    def chunk(self, epoch: int, step: int) -> Chunk:
        """Return the tokens that each lane reads in this step of this epoch."""
        newest = step
        if self.shuffle:
            newest = self._window(epoch, step)
        depth = self.tbptt.k2 // self.tbptt.k1  # chunks per full window
        oldest = max(newest + 1 - depth, 0)
        begin, count, resets = self._cuts.read(epoch, np.arange(oldest, newest + 1))  # each (B, chunks of the window)
        resets[:, 0] |= oldest == 0 or not self.carry
        advance = int(begin.shape[1] == depth)  # 0: the window still grows, and the next one begins at the same token
        # Forward passes end where the next window begins, because its state is carried, and before the newest chunk.
        edges = {0, newest - oldest}
        if self.carry:
            edges.add(min(advance, newest - oldest))
        first = sorted(edges)  # first chunk of each forward pass
        count = np.add.reduceat(count, first, axis=1)
        by_document = self.tbptt.reset == "document"
        readings = [
            Chunk(begin[:, edge], count[:, n], resets[:, edge], by_document=by_document) for n, edge in enumerate(first)
        ]
        return readings[-1]._replace(warmup_chunks=tuple(readings[:-1]), advance=advance)

    def tokens_before(self, step: int) -> int:
        """Return the number of targets before `step`, counted across epochs, in the order of an unshuffled epoch."""
        epoch, within = divmod(step, self.steps)
        return epoch * self.num_tokens + self._cuts.tokens_before(epoch, within)

    def pace(self, step: int) -> float:
        """Return the length of this step's chunk in units of k2; `step` is counted across epochs."""
        epoch, within = divmod(step, self.steps)
        before, after = self._cuts.time(epoch, np.array([within, within + 1])).tolist()
        return (after - before) / self.tbptt.k2

    def _window(self, epoch: int, step: int) -> int:
        """Return the index, in unshuffled order, of the independent window that this step of an epoch reads."""
        first = 0
        if self.steps > MAX_DRAWN:
            first = step // PERMUTED_AT_A_TIME * PERMUTED_AT_A_TIME
        if self._cached_order is None or self._cached_order[0] != (epoch, first):
            self._cached_order = (epoch, first), self._order(epoch, first)
        return int(self._cached_order[1][step - first])

    def _order(self, epoch: int, first: int) -> Int[np.ndarray, " n"]:
        """Return the windows (n,) that an epoch reads from step `first` on: all, or a piece if there are very many."""
        if self.steps > MAX_DRAWN:
            places = np.arange(first, min(first + PERMUTED_AT_A_TIME, self.steps))
            return permuted(places, self.steps, self.seed, epoch)
        return np.random.default_rng((self.seed, epoch)).permutation(np.arange(self.steps))


class _LaneCuts:
    """A corpus in lanes of equal length, all cut at the same offsets from their beginning."""

    def __init__(self, documents: Int[np.ndarray, " offsets"], lanes: int, tbptt: TBPTT, seed: int) -> None:
        num_tokens = int(documents[-1])
        if num_tokens < lanes:
            raise UserError(
                f"data.batch_size={lanes}: the split has only {num_tokens} tokens; use fewer lanes or more text"
            )
        self.k1 = tbptt.k1
        self.seed = seed
        self._edges = np.array([num_tokens * lane // lanes for lane in range(lanes + 1)])
        if tbptt.reset == "document":
            # Documents shorter than a chunk are not divided: a lane ends at the end of its last document.
            ends = documents[np.searchsorted(documents, self._edges)]
            self._edges = np.where(ends - self._edges < self.k1, ends, self._edges)
        self._sizes = np.diff(self._edges)
        self.width = int(self._sizes.max())  # positions per lane in an epoch, including padding
        self._drawn: Int[np.ndarray, " chunks"] | None = None
        self._cached: tuple[int, Int[np.ndarray, " edges"]] | None = None  # an epoch, and where its drawn chunks begin
        self.steps = -(-self.width // self.k1)
        if tbptt.jitter != "none":
            self._drawn = awd_lengths(self.width, tbptt.k2, seed)
            self.steps = len(self._drawn)

    @property
    def most(self) -> int:
        """Maximum number of targets of a step in the first epoch."""
        if self._drawn is None:
            return self.tokens_before(0, 1)
        # Lanes differ by one token, so only the end of the epoch has fewer.
        time = self.time(0, np.arange(self.steps + 1))
        longer = int((self._sizes == self.width).sum())
        counts = longer * time + (len(self._sizes) - longer) * np.minimum(time, self.width - 1)
        return int(np.diff(counts).max())

    def time(self, epoch: int, index: Int[np.ndarray, " m"]) -> Int[np.ndarray, " m"]:
        """Return the offset (m,) of each chunk from the beginning of its lane; after the last chunk, the lane's end."""
        if self._drawn is None:
            return np.minimum(index * self.k1, self.width)
        if self._cached is None or self._cached[0] != epoch:
            # Every epoch uses the same lengths in a different order.
            drawn = np.random.default_rng((self.seed, epoch)).permutation(self._drawn)
            self._cached = epoch, np.append(0, drawn.cumsum())
        return self._cached[1][index]

    def read(
        self, epoch: int, index: Int[np.ndarray, " m"]
    ) -> tuple[Int[np.ndarray, "B m"], Int[np.ndarray, "B m"], Bool[np.ndarray, "B m"]]:
        """Return begin and number of tokens of these chunks in each lane, and a mask of lanes to reset."""
        time = self.time(epoch, np.append(index, index[-1] + 1))
        places = np.minimum(self._edges[:-1, None] + time, self._edges[1:, None])  # (B, m + 1)
        begin = places[:, :-1]
        # The position of a finished lane is the beginning of the next lane.
        resets = (index == 0) | (begin == self._edges[1:, None])
        return begin, np.diff(places), resets

    def tokens_before(self, epoch: int, step: int) -> int:
        """Return the number of targets before this step of an epoch."""
        time = self.time(epoch, np.array([step]))
        return int(np.minimum(time, self._sizes).sum())


def awd_lengths(total: int, base: int, seed: int) -> Int[np.ndarray, " chunks"]:
    """Return random lengths with the sum `total`: `base`, or with probability .05 half of it, plus normal noise.

    The noise has a standard deviation of 5 tokens, as in AWD-LSTM (Merity et al. 2017). All lengths except the last are
    at least 5 tokens, or at least `base` if that is smaller.
    """
    least = min(5, base)
    size = -(-total // least)  # enough even if all have the minimum length
    rng = np.random.default_rng(seed)
    bases = np.where(rng.random(size) < 0.95, base, base / 2)
    drawn = np.maximum(rng.normal(bases, 5).astype(np.int64), least)
    ends = drawn.cumsum()
    last = int(np.searchsorted(ends, total))
    return np.append(drawn[:last], total - (ends[last] - drawn[last]))
