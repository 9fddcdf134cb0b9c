"""Loss of a token as a function of its context: the number of tokens before it, and the tokens since the state began.

One text is read in two ways. `losses_by_context` predicts the same tokens repeatedly, each time from a longer piece
of the text before them, so that only the context changes (Khandelwal et al. 2018, arXiv 1805.04623). `read_lanes`
reads chunk by chunk, as evaluation does, with the state carried over or discarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.stream import IGNORED, Stream
from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel, last_hidden, read, reset
from seqtrain.tasks.metrics.bootstrap import interval, resample

TOKENS_AT_A_TIME = 32_768  # tokens per forward pass: bounds memory
MIN_LANES = 8  # smallest number that can be resampled


@runtime_checkable
class HasTokenLosses(Protocol):
    """A task with a loss for each token of a stream."""

    def token_losses(
        self, model: SequenceModel, hidden: Float[Tensor, "B T D"], targets: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        """Return the loss in nats of each token, from the hidden state before it; in float64."""
        ...


class Interval(NamedTuple):
    """A value with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Contexts:
    """The loss of the same tokens with contexts of growing length."""

    lengths: list[int]  # tokens read before each of them
    losses: Float[np.ndarray, "C N"]  # in nats, a row for each length

    @property
    def means(self) -> Float[np.ndarray, " C"]:
        """Mean loss at each length, in nats."""
        return self.losses.mean(1)

    def best_length(self, tolerance: float) -> int:
        """Return the longest length whose mean loss is within `tolerance` nats of the lowest. Longer ones are worse."""
        means = self.means
        return self.lengths[int(np.flatnonzero(means <= means.min() + tolerance)[-1])]

    def up_to(self, length: int) -> Contexts:
        """Return the contexts up to a length that was measured."""
        count = self.lengths.index(length) + 1
        return Contexts(self.lengths[:count], self.losses[:count])


@dataclass(frozen=True)
class Lanes:
    """The loss of each token of some lanes; NaN after the end of a lane."""

    carried: Float[np.ndarray, "B T"]  # with the state carried from earlier chunks
    fresh: Float[np.ndarray, "B T"]  # with an empty state at the start of each chunk
    since_reset: Int[np.ndarray, "B T"]  # tokens read before its target, since the last reset
    in_chunk: Int[np.ndarray, "B T"]  # the number of those in its chunk, from 1 on

    def by_reset(self) -> list[dict[str, float]]:
        """Return mean losses by tokens since the reset, in powers of two."""
        rows: list[dict[str, float]] = []
        low, most = 1, int(self.since_reset.max())
        while low <= most:
            high = min(2 * low - 1, most)
            inside = (self.since_reset >= low) & (self.since_reset <= high)
            rows.append({"from": low, "to": high, **self._means(inside)})
            low *= 2
        return rows

    def by_place(self) -> list[dict[str, float]]:
        """Return mean losses by position in the chunk, for chunks that follow earlier tokens."""
        later = self.since_reset > self.in_chunk
        rows: list[dict[str, float]] = []
        for place in range(1, int(self.in_chunk.max()) + 1):
            rows.append({"position": place, **self._means(later & (self.in_chunk == place))})
        return rows

    def _means(self, chosen: Bool[np.ndarray, "B T"]) -> dict[str, float]:
        """Return the mean losses of the chosen tokens, and their number."""
        carried = self.carried[chosen]
        real = np.isfinite(carried)
        count = int(real.sum())
        if count == 0:
            return {"tokens": 0}
        fresh = self.fresh[chosen][real]
        return {"tokens": count, "carried": float(carried[real].mean()), "fresh": float(fresh.mean())}


def powers_up_to(most: int) -> list[int]:
    """Return the powers of two up to `most`: 1, 2, 4, ..."""
    return [2**power for power in range(most.bit_length())]


def targets(documents: Int[np.ndarray, " D"], context: int, count: int, *, within: bool) -> Int[np.ndarray, " N"]:
    """Return evenly spread positions that have `context` tokens before them.

    Args:
        documents: Start of each document of the text, and the end of the last.
        context: Tokens before each position.
        count: Maximum number of positions.
        within: Require these tokens to be in the same document, as when the state resets at document starts.
    """
    edges = documents
    if not within:
        edges = documents[[0, -1]]
    eligible = []
    for begin, end in pairwise(edges):
        eligible.append(np.arange(begin + context, max(end, begin + context)))
    positions = np.concatenate(eligible)
    count = min(count, len(positions))
    return positions[np.arange(count) * len(positions) // max(count, 1)]


@torch.no_grad()
def losses_by_context(
    model: SequenceModel, task: HasTokenLosses, stream: Stream, positions: Int[np.ndarray, " N"], lengths: Sequence[int]
) -> Contexts:
    """Return the loss of the tokens at `positions` for each context length, read from an empty state.

    Args:
        model: A causal model.
        task: A task with a loss for each token.
        stream: The text.
        positions: Positions of the predicted tokens.
        lengths: Numbers of tokens read before each of them.
    """
    rows = []
    for length in lengths:
        at_a_time = max(TOKENS_AT_A_TIME // length, 1)
        losses = []
        for first in range(0, len(positions), at_a_time):
            some = positions[first : first + at_a_time, None]
            index = some + np.arange(-length, 0)  # (n, length)
            hidden = last_hidden(model, _tokens(stream, index))
            losses.append(task.token_losses(model, hidden, _tokens(stream, some)).squeeze(1))
        rows.append(torch.cat(losses).double().numpy())
    return Contexts(list(lengths), np.stack(rows))


def _tokens(stream: Stream, index: Int[np.ndarray, "n t"]) -> Int[Tensor, "n t"]:
    return torch.from_numpy(stream.tokens[index].astype(stream.dtype))


@torch.no_grad()
def read_lanes(
    model: SequenceModel, task: HasTokenLosses, stream: Stream, tbptt: TBPTT, *, lanes: int, tokens: int
) -> Lanes:
    """Read a text on lanes that start at different positions, with carried state and without.

    Args:
        model: A CAUSAL and STATEFUL model.
        task: A task with a loss for each token.
        stream: The text.
        tbptt: The run's truncation; chunks of its k2 tokens are read, with its resets.
        lanes: Maximum number of lanes.
        tokens: Tokens of each lane, rounded up to whole chunks.

    Raises:
        UserError: If the text is too short for MIN_LANES lanes of two chunks each.
    """
    cut = replace(tbptt, k1=tbptt.k2, carry=True, jitter="none")
    # A lane that reads less than two chunks has no state to carry.
    lanes = min(lanes, int(stream.documents[-1]) // (2 * cut.k2))
    if lanes < MIN_LANES:
        raise UserError(
            f"the text has {stream.documents[-1]:,} tokens, too few for {MIN_LANES} lanes of two chunks of "
            f"k2={cut.k2}; give a longer text (--split train)"
        )
    plan = StreamPlan(documents=stream.documents, lanes=lanes, tbptt=cut, seed=0, shuffle=False)
    steps = min(-(-tokens // cut.k2), plan.steps)
    carried, fresh, since_reset, in_chunk = [], [], [], []
    state = model.initial(lanes)
    num_read = np.zeros(lanes, dtype=int)
    for step in range(steps):
        batch = stream.batch(plan.chunk(0, step), slice(0, lanes))
        if batch.reset_lanes is not None:
            state = reset(state, batch.reset_lanes)
            num_read[batch.reset_lanes.numpy()] = 0
        hidden, state = read(model, batch.tokens, state, batch.starts)
        carried.append(_losses(model, task, hidden, batch.targets))
        fresh.append(_losses(model, task, read(model, batch.tokens, None, batch.starts)[0], batch.targets))
        time = np.arange(batch.tokens.shape[1])
        begin = np.broadcast_to(-num_read[:, None], batch.tokens.shape)  # start of the context, relative to the chunk
        if batch.starts is not None:
            begin = np.maximum.accumulate(np.where(batch.starts.numpy(), time, begin), 1)
        since_reset.append(time + 1 - begin)
        in_chunk.append(np.minimum(time + 1, since_reset[-1]))
        num_read = since_reset[-1][:, -1]
    return Lanes(
        carried=np.concatenate(carried, 1),
        fresh=np.concatenate(fresh, 1),
        since_reset=np.concatenate(since_reset, 1),
        in_chunk=np.concatenate(in_chunk, 1),
    )


def _losses(
    model: SequenceModel, task: HasTokenLosses, hidden: Float[Tensor, "B T D"], wanted: Int[Tensor, "B T"]
) -> Float[np.ndarray, "B T"]:
    """Return the loss of each target; NaN at padding."""
    padding = wanted == IGNORED
    losses = task.token_losses(model, hidden, wanted.masked_fill(padding, 0))
    return losses.double().masked_fill(padding, torch.nan).numpy()


# -- what follows from the losses ----------------------------------------------------------------------------------


def effective_length(lengths: Sequence[int], means: Float[np.ndarray, " C"], tolerance: float) -> float:
    """Return the shortest context from which on the loss stays within `tolerance` of that with the longest context.

    Between two measured lengths the loss is interpolated linearly over the logarithm of the length.

    Args:
        lengths: Measured context lengths in tokens, in ascending order.
        means: Mean loss at each length, in nats.
        tolerance: Accepted difference in nats.
    """
    excess = means - means[-1]
    above = np.flatnonzero(excess > tolerance)
    if len(above) == 0:
        return float(lengths[0])
    last = above[-1]  # never the longest, whose excess is 0
    share = (excess[last] - tolerance) / (excess[last] - excess[last + 1])
    low, high = np.log(lengths[last]), np.log(lengths[last + 1])
    return float(np.exp(low + share * (high - low)))


def effective_context(contexts: Contexts, tolerance: float) -> Interval:
    """Return `effective_length` with its interval, from resampled tokens; each resample is shared by all lengths."""
    count = contexts.losses.shape[1]
    drawn = []
    for means in resample(lambda times_drawn: contexts.losses @ times_drawn / count, count):
        drawn.append(effective_length(contexts.lengths, means, tolerance))
    return _interval(effective_length(contexts.lengths, contexts.means, tolerance), drawn)


def gain_of_context(contexts: Contexts) -> Interval:
    """Return by how much the longest context lowers the loss, compared with a single token."""
    gain = contexts.losses[0] - contexts.losses[-1]
    drawn = resample(lambda times_drawn: float(gain @ times_drawn) / len(gain), len(gain))
    return _interval(float(gain.mean()), drawn)


def gain_of_state(lanes: Lanes) -> Interval:
    """Return by how much carried state lowers the loss, over tokens whose chunk follows earlier tokens.

    Lanes are resampled, not tokens: tokens of one lane are not independent, but lanes nearly are.
    """
    difference = np.where(lanes.since_reset > lanes.in_chunk, lanes.fresh - lanes.carried, np.nan)
    sums, counts = np.nansum(difference, 1), np.isfinite(difference).sum(1)

    def mean(times_drawn: Int[np.ndarray, " B"]) -> float:
        return float(sums @ times_drawn) / max(float(counts @ times_drawn), 1.0)

    drawn = resample(mean, len(sums))
    return _interval(float(sums.sum() / max(counts.sum(), 1)), drawn)


def _interval(value: float, drawn: Sequence[float] | Float[np.ndarray, " R"]) -> Interval:
    low, high = interval(np.asarray(drawn))
    return Interval(value, float(low), float(high))
