"""The plan of example batches: examples of similar length are batched together, each exactly once per epoch.

For many examples in a file, lengths are computed on request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from seqtrain.data.batching.documents import Stretches
from seqtrain.data.batching.plan import ExampleChunk, deal
from seqtrain.data.batching.splitmix64 import permuted
from seqtrain.data.cache import cached_json

AT_ONCE = 1 << 20  # examples read at a time
MAX_TABLE = 1 << 22  # maximum size of the table in which rows of lengths are counted; above it they are sorted


class Lengths(ABC):
    """Tokens of each example on each separately padded side; indexed like a numpy array (n, sides)."""

    key: str | None = None  # identifies all lengths, if a file determines them

    @abstractmethod
    def __len__(self) -> int:
        """Return n."""

    @abstractmethod
    def take(self, index: Int[np.ndarray, " k"]) -> Int[np.ndarray, "k sides"]:
        """Return the lengths (k, sides) of these examples."""

    def __getitem__(self, index: Any) -> Int[np.ndarray, "..."]:
        """Return the lengths of an array or a slice of examples; `[examples, side]` returns one side."""
        examples, *sides = index if isinstance(index, tuple) else (index,)
        if isinstance(examples, slice):
            examples = np.arange(*examples.indices(len(self)))
        found = self.take(examples)
        return found[(slice(None), *sides)]


class StretchLengths(Lengths):
    """Lengths of stretches, one side: the tokens of a stretch plus `special` special ones."""

    def __init__(self, stretches: Stretches, special: int) -> None:
        self.stretches = stretches
        self.special = special
        if stretches.key is not None:
            self.key = f"{stretches.key} {special}"

    def __len__(self) -> int:
        return len(self.stretches)

    def take(self, index: Int[np.ndarray, " k"]) -> Int[np.ndarray, "k 1"]:
        return self.stretches.find(index).count[:, None] + self.special


class Distinct(NamedTuple):
    """The distinct rows of lengths, in lexicographic order, and the number of examples with each."""

    rows: Int[np.ndarray, "r sides"]
    counts: Int[np.ndarray, " r"]

    @property
    def num_tokens(self) -> int:
        """Tokens of all examples."""
        return int(self.counts @ self.rows.sum(1))


def distinct(lengths: Int[np.ndarray, "n sides"]) -> Distinct:
    """Return the distinct rows of lengths, found by counting, which is faster than sorting."""
    return _merged(lengths, None)


def distinct_of_all(lengths: Int[np.ndarray, "n sides"] | Lengths) -> Distinct:
    """Return the distinct rows of any number of examples, read block by block; cached if a file determines them."""
    if not isinstance(lengths, Lengths) or lengths.key is None or len(lengths) <= AT_ONCE:
        return _over_blocks(lengths)

    def make() -> list[Any]:
        return [part.tolist() for part in _over_blocks(lengths)]

    rows, counts = cached_json(f"distinct lengths {lengths.key}", make)
    return Distinct(np.array(rows, dtype=np.int64), np.array(counts, dtype=np.int64))


def blocks(lengths: Int[np.ndarray, "n sides"] | Lengths) -> Iterator[Int[np.ndarray, "k sides"]]:
    """Yield all lengths, in order, AT_ONCE examples at a time."""
    for begin in range(0, len(lengths), AT_ONCE):
        yield lengths[begin : begin + AT_ONCE]


def _over_blocks(lengths: Int[np.ndarray, "n sides"] | Lengths) -> Distinct:
    found = None
    for block in blocks(lengths):
        more = distinct(block)
        if found is not None:
            more = _merged(np.concatenate([found.rows, more.rows]), np.concatenate([found.counts, more.counts]))
        found = more
    assert found is not None, "there are no examples"
    return found


def _merged(rows: Int[np.ndarray, "n sides"], weights: Int[np.ndarray, " n"] | None) -> Distinct:
    """Return the distinct rows and the sum of the weights of each; without weights, the count of each."""
    sizes = tuple(int(size) + 1 for size in rows.max(0))
    number = np.ravel_multi_index(tuple(rows.T), sizes)
    if np.prod(sizes, dtype=float) <= MAX_TABLE:
        table = np.bincount(number, weights)  # weights as floats, which are exact up to 2^53 examples
        numbers = np.flatnonzero(table)
        counts = table[numbers].astype(np.int64)
    else:
        numbers, which = np.unique(number, return_inverse=True)
        counts = np.bincount(which, weights).astype(np.int64)
    return Distinct(np.stack(np.unravel_index(numbers, sizes), 1), counts)


WINDOW = 1_000_000  # examples that are sorted by length together, and whose steps are shuffled together
BLOCK = 4_000  # consecutive examples of the data that always belong to the same window
UNBOUNDED = 2**62


class ExamplePlan:
    """Groups examples of similar length into steps such that each example is read exactly once per epoch.

    Up to `window` examples form one window. Between epochs, only examples of equal lengths are exchanged, so every
    epoch has steps of the same shapes in a new order. If there are more examples, blocks of them are assigned to
    several windows in an order that depends only on the seed; each epoch draws the order of the windows, and each
    window has its own plan. Memory is that of one window, and any step is found from a few numbers per window.
    """

    def __init__(
        self,
        *,
        lengths: Int[np.ndarray, "n sides"] | Lengths,
        batch_tokens: int | None,
        batch_size: int | None,
        seed: int,
        shuffle: bool,
        window: int = WINDOW,
        block: int = BLOCK,
    ) -> None:
        """Count the steps of each window, without computing their examples yet.

        Args:
            lengths: Tokens of each example on each side that is padded separately, such as source and target.
            batch_tokens: Maximum tokens per step, including padding; a single example may have more.
            batch_size: Maximum number of examples per step.
            seed: Seed of all random choices, together with the epoch.
            shuffle: False to disable shuffling; windows then follow the order of the data.
            window: Maximum number of examples per window.
            block: Number of consecutive examples that stay in the same window.
        """
        self.lengths = lengths
        self.seed = seed
        self.shuffle = shuffle
        self._limits = batch_tokens or UNBOUNDED, batch_size or UNBOUNDED
        self.window = window
        self.block = block if len(lengths) > window else len(lengths)
        self._num_blocks = -(-len(lengths) // self.block)
        self.num_windows = -(-self._num_blocks // max(window // self.block, 1))
        # Cached for one window, and for one epoch.
        self._cached_steps: tuple[int, WindowSteps] | None = None
        self._cached_window: tuple[tuple[int, int], _LaidOut] | None = None
        self._cached_order: tuple[int, _Windows] | None = None
        self._table = self._totals()
        self.steps, self.num_tokens, positions = self._table[:, :3].sum(0).tolist()
        self.lanes, self.max_tokens = self._table[:, 3:].max(0).tolist()  # maximum examples and tokens of a step
        self.padding = 1 - self.num_tokens / positions

    def chunk(self, epoch: int, step: int) -> ExampleChunk:
        """Return the examples of this step of this epoch."""
        window, within = self._windows(epoch).find(step)
        examples, edges, order, _ = self._laid_out(epoch, window)
        place = order[within]
        return ExampleChunk(examples[edges[place] : edges[place + 1]], epoch)

    def tokens_before(self, step: int) -> int:
        """Return the number of tokens before `step`, counted across epochs."""
        epoch, within = divmod(step, self.steps)
        windows = self._windows(epoch)
        window, within = windows.find(within)
        before = self._table[windows.before(window), 1].sum()
        _, _, order, tokens = self._laid_out(epoch, window)
        return epoch * self.num_tokens + int(before + tokens[order[:within]].sum())

    def _windows(self, epoch: int) -> _Windows:
        """Return the windows of an epoch in their order."""
        if self._cached_order is None or self._cached_order[0] != epoch:
            order = np.arange(self.num_windows)
            if self.shuffle and self.num_windows > 1:
                order = np.random.default_rng((self.seed, epoch)).permutation(order)
            self._cached_order = epoch, _Windows(order, np.append(0, self._table[order, 0].cumsum()))
        return self._cached_order[1]

    def _laid_out(self, epoch: int, window: int) -> _LaidOut:
        """Return a window's examples by length, and the order in which this epoch reads its steps."""
        if self._cached_window is None or self._cached_window[0] != (epoch, window):
            self._cached_window = None  # first, so that memory contains only one window
            self._cached_window = (epoch, window), self._lay_out(epoch, window)
        return self._cached_window[1]

    def _lay_out(self, epoch: int, window: int) -> _LaidOut:
        examples = self._members(window)
        lengths = self.lengths[examples]
        edges, tokens, _ = self._steps_of(window, lengths)
        drawn, order = np.arange(len(examples)), np.arange(len(tokens))
        if self.shuffle:
            key = (self.seed, epoch) if self.num_windows == 1 else (self.seed, epoch, 1 + window)
            rng = np.random.default_rng(key)
            drawn[rng.permutation(len(examples))] = np.arange(len(examples))
            order = rng.permutation(order)
        return _LaidOut(examples[order_by_length(lengths, drawn)], edges, order, tokens)

    def _members(self, window: int) -> Int[np.ndarray, " k"]:
        """Return the examples of a window (k,), block by block."""
        mine = deal(self._num_blocks, self.num_windows, window)
        places = np.arange(mine.start, mine.stop)
        if self.shuffle and self.num_windows > 1:
            # Whole blocks, because consecutive reads from a disk are fast.
            places = permuted(places, self._num_blocks, self.seed)
        examples = (places[:, None] * self.block + np.arange(self.block)).reshape(-1)
        return examples[examples < len(self.lengths)]

    def _steps_of(self, window: int, lengths: Int[np.ndarray, "k sides"] | None = None) -> WindowSteps:
        """Return the steps of a window, which are the same in all epochs."""
        if self._cached_steps is None or self._cached_steps[0] != window:
            if lengths is None:
                lengths = self.lengths[self._members(window)]
            self._cached_steps = window, cut(distinct(lengths), *self._limits)
        return self._cached_steps[1]

    def _totals(self) -> Int[np.ndarray, "windows 5"]:
        """Return for each window: steps, tokens, positions with padding, and maximum examples and tokens of a step."""

        def make() -> list[list[int]]:
            table = []
            for window in range(self.num_windows):
                edges, tokens, positions = self._steps_of(window)
                sizes = np.diff(edges)
                table.append([len(sizes), int(tokens.sum()), positions, int(sizes.max()), int(tokens.max())])
            return table

        key = self.lengths.key if isinstance(self.lengths, Lengths) else None
        if key is None or self.num_windows == 1:
            return np.array(make())
        order = (self.seed, self.shuffle, self.block, self.num_windows, *self._limits)
        return np.array(cached_json(f"windows {key} {order}", make))


class _LaidOut(NamedTuple):
    """One window in one epoch."""

    examples: Int[np.ndarray, " k"]  # in order of length
    edges: Int[np.ndarray, " edges"]  # offsets of the steps into `examples`
    order: Int[np.ndarray, " steps"]  # the order in which the epoch reads the steps
    tokens: Int[np.ndarray, " steps"]  # tokens of each step, in order of length


class _Windows(NamedTuple):
    """The windows of an epoch."""

    order: Int[np.ndarray, " windows"]
    first: Int[np.ndarray, " edges"]  # first step of each window, and the end

    def find(self, step: int) -> tuple[int, int]:
        """Return the window that contains a step, and the step's index within the window."""
        place = int(np.searchsorted(self.first, step, side="right")) - 1
        return int(self.order[place]), step - int(self.first[place])

    def before(self, window: int) -> Int[np.ndarray, " k"]:
        """Return the windows that are read before this one."""
        return self.order[: int(np.flatnonzero(self.order == window)[0])]


class WindowSteps(NamedTuple):
    """The steps of a window in order of length."""

    edges: Int[np.ndarray, " edges"]  # first example of each step, and the end
    tokens: Int[np.ndarray, " steps"]  # tokens of each step
    positions: int  # total, including padding


def cut(lengths: Distinct, batch_tokens: int, batch_size: int) -> WindowSteps:
    """Return the steps of examples in order of length; each step takes as many examples as fit.

    Args:
        lengths: The distinct lengths, and the number of examples of each.
        batch_tokens: Maximum tokens per step, including padding; a single example may have more.
        batch_size: Maximum number of examples per step.
    """
    taken: list[tuple[int, int, int]] = []  # examples per step, number of such steps, padded tokens per example
    held, widest = 0, [0] * lengths.rows.shape[1]  # examples and widths of the step that is being filled
    for sides, count in zip(lengths.rows.tolist(), lengths.counts.tolist(), strict=True):
        if held:
            wider = list(map(max, widest, sides))
            more = min(_most(wider, batch_tokens, batch_size) - held, count)
            if more > 0:
                held, count, widest = held + more, count - more, wider
            if not count:
                continue
            taken.append((held, 1, sum(widest)))
        # Examples of equal lengths fill whole steps, and the rest begins a new one.
        most = max(_most(sides, batch_tokens, batch_size), 1)
        full, held = divmod(count, most)
        taken.append((most, full, sum(sides)))
        widest = sides
    taken.append((held, int(held > 0), sum(widest)))
    sizes, times, width = np.array(taken).T
    edges = np.append(0, np.repeat(sizes, times).cumsum())
    return WindowSteps(edges, np.diff(_tokens_until(lengths, edges)), int((sizes * times * width).sum()))


def _most(sides: list[int], batch_tokens: int, batch_size: int) -> int:
    """Return the maximum number of examples of a step whose sides have these widths in tokens."""
    width = sum(sides)
    return min(batch_size, batch_tokens // width) if width else batch_size


def _tokens_until(lengths: Distinct, places: Int[np.ndarray, " k"]) -> Int[np.ndarray, " k"]:
    """Return the number of tokens (k,) before each of these positions, in order of length."""
    tokens = lengths.rows.sum(1)  # tokens per example, for each row
    ends = lengths.counts.cumsum()
    row = np.searchsorted(ends, places, side="left")
    after = (ends[row] - places) * tokens[row]  # tokens of the row's examples that come after the position
    return (lengths.counts * tokens).cumsum()[row] - after


def order_by_length(lengths: Int[np.ndarray, "n sides"], order: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Return the examples sorted by length, first by the first side; equal lengths keep the order of `order`."""
    for side in lengths.T[::-1]:  # the last sort has the highest priority
        for shift in range(0, max(int(side.max()).bit_length(), 1), 16):
            # Numpy sorts 16-bit integers by radix sort, ten times as fast as by comparison.
            digits = ((side >> shift) & 0xFFFF).astype(np.uint16)
            order = order[np.argsort(digits[order], kind="stable")]
    return order
