"""The memory of a run: whether its state helps, how much context it uses, and what that says of k2."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from seqtrain.analysis.context import (
    MIN_TARGETS,
    Contexts,
    Interval,
    Lanes,
    effective_context,
    effective_length,
    gain_of_context,
    gain_of_state,
    losses_by_context,
    powers_up_to,
    read_lanes,
    targets,
)
from seqtrain.data.batching.plan import TBPTT
from seqtrain.data.batching.stream import Stream
from seqtrain.errors import UserError
from seqtrain.models.base import Capability, SequenceModel
from seqtrain.tasks.base import Task

SHORTEST, LONGEST = 128, 1024  # bounds of the default context, which is 4 times k2
LANES = 128
SHARE = 0.9  # of what context gives


@dataclass(frozen=True)
class Memory:
    """What was measured of a run."""

    tbptt: TBPTT
    tolerance: float  # nats
    contexts: Contexts
    lanes: Lanes
    gain_of_context: Interval
    gain_of_state: Interval
    effective: Interval  # tokens

    @property
    def is_falling(self) -> bool:
        """Whether the loss still falls at the longest context measured, so that the effective one may be longer."""
        means = self.contexts.means
        return len(means) > 1 and bool(means[-2] - means[-1] > self.tolerance)

    @property
    def uses_context(self) -> bool:
        """Whether more than one token of context is shown to help."""
        return self.gain_of_context.low > 0 and self.gain_of_context.value > self.tolerance

    @property
    def most_of_gain(self) -> float:
        """The context with which SHARE of all that context gives is there, in tokens."""
        return effective_length(
            self.contexts.lengths, self.contexts.means, (1 - SHARE) * max(self.gain_of_context.value, 0.0)
        )

    def verdict(self) -> list[str]:
        """What the numbers say, a sentence each."""
        if not self.uses_context:
            return [
                "no use of context is shown: the loss with one token of context and that with "
                f"{self.contexts.lengths[-1]} differ by {_signed(self.gain_of_context)} nats a token"
            ]
        return [self._of_context(), self._of_k2(), self._of_state()]

    def _of_context(self) -> str:
        low, high = self.effective.low, self.effective.high
        words = (
            f"effective context: {self.effective.value:.0f} tokens (95 % interval {low:.0f} to {high:.0f}); longer "
            f"ones change the loss by less than {self.tolerance:g} nats. {SHARE:.0%} of what context gives, "
            f"{self.gain_of_context.value:.3f} nats, is there after {self.most_of_gain:.0f} tokens"
        )
        if self.is_falling:
            words += (
                f". The loss still falls at {self.contexts.lengths[-1]} tokens, so take it as a lower bound: --context"
            )
        return words

    def _of_k2(self) -> str:
        k2, effective = self.tbptt.k2, self.effective
        # What gradients never reached was never learned: a short context beside a short k2 excuses nothing.
        if effective.high < k2 / 2:
            return f"k2={k2} is long enough for this model: gradients reach at least twice as far as it looks back"
        if effective.low > k2:
            return f"k2={k2} is shorter than the context it uses, which the carried state hands on: try a longer k2"
        return (
            f"k2={k2} is about as far as it looks back, and what gradients never reached was never learned: train "
            "with a longer k2 and compare before you call it long enough"
        )

    def _of_state(self) -> str:
        gain = self.gain_of_state
        if gain.low <= 0 <= gain.high:
            words = f"carried state: no difference is shown ({_signed(gain)} nats a token)"
        else:
            change = "lowers" if gain.value > 0 else "raises"
            low, high = sorted((abs(gain.low), abs(gain.high)))
            words = (
                f"carried state {change} the loss by {abs(gain.value):.4f} nats a token (95 % interval {low:.4f} to "
                f"{high:.4f}), beside chunks of {self.tbptt.k2} begun from nothing"
            )
        if not self.tbptt.carry:
            words += "; this run was trained without it, so this is not what it was trained for"
        return words

    def curves(self) -> dict[str, list[dict[str, float]]]:
        """Mean losses: by context, by tokens since reset (in powers of two), and by position in the chunk."""
        by_context: list[dict[str, float]] = []
        for length, loss in zip(self.contexts.lengths, self.contexts.means, strict=True):
            by_context.append({"context": length, "loss": float(loss)})
        return {"by_context": by_context, "since_reset": self._since_reset(), "in_chunk": self._in_chunk()}

    def _since_reset(self) -> list[dict[str, float]]:
        rows: list[dict[str, float]] = []
        low, most = 1, int(self.lanes.since_reset.max())
        while low <= most:
            high = min(2 * low - 1, most)
            inside = (self.lanes.since_reset >= low) & (self.lanes.since_reset <= high)
            rows.append({"from": low, "to": high, **self._means(inside)})
            low *= 2
        return rows

    def _in_chunk(self) -> list[dict[str, float]]:
        """Of chunks that something was read before."""
        later = self.lanes.since_reset > self.lanes.in_chunk
        rows: list[dict[str, float]] = []
        for place in range(1, int(self.lanes.in_chunk.max()) + 1):
            rows.append({"position": place, **self._means(later & (self.lanes.in_chunk == place))})
        return rows

    def _means(self, chosen: np.ndarray) -> dict[str, float]:
        """The mean losses of some tokens, and how many there are."""
        carried = self.lanes.carried[chosen]
        real = np.isfinite(carried)
        count = int(real.sum())
        if count == 0:
            return {"tokens": 0}
        fresh = self.lanes.fresh[chosen][real]
        return {"tokens": count, "carried": float(carried[real].mean()), "fresh": float(fresh.mean())}

    def record(self) -> dict[str, Any]:
        """For `--json` and the file beside the pictures."""
        return {
            "tbptt": asdict(self.tbptt),
            "tolerance": self.tolerance,
            "targets": self.contexts.losses.shape[1],
            "lanes": len(self.lanes.carried),
            "numbers": {
                "effective_context": self.effective.value,
                "effective_context_low": self.effective.low,
                "effective_context_high": self.effective.high,
                "most_of_gain": self.most_of_gain,
                "gain_of_context": self.gain_of_context.value,
                "gain_of_state": self.gain_of_state.value,
                "gain_of_state_low": self.gain_of_state.low,
                "gain_of_state_high": self.gain_of_state.high,
            },
            "verdict": self.verdict(),
            **self.curves(),
        }


def measure(
    model: SequenceModel,
    task: Task,
    stream: Stream,
    tbptt: TBPTT,
    *,
    context: int | None,
    num_targets: int,
    tolerance: float,
) -> Memory:
    """Measures the memory of a model in evaluation mode.

    Args:
        model: Causal, with a state that goes on.
        task: Has a loss of each token.
        stream: The text.
        tbptt: The cut of time that the model was trained with.
        context: The longest context, rounded down to a power of two; None: 4 times k2, within bounds.
        num_targets: Tokens that are predicted with each context.
        tolerance: Nats within which two losses count as one.

    Raises:
        UserError: where the model cannot be asked, or the text is too short.
    """
    needed = Capability.CAUSAL | Capability.STATEFUL
    if needed not in model.capabilities:
        raise UserError(
            f"model {type(model).__name__}: has no state that goes on from chunk to chunk; nothing to measure"
        )
    lengths = powers_up_to(_longest(context, tbptt.k2, model.max_length))
    within = tbptt.reset == "document"
    positions = targets(stream.documents, lengths[-1], num_targets, within=within)
    if len(positions) < MIN_TARGETS:
        where = "the documents" if within else "the text"
        raise UserError(
            f"only {len(positions)} tokens have {lengths[-1]} others before them; {where} must be longer, or --context "
            f"shorter ({MIN_TARGETS} tokens at least)"
        )
    tokens = max(lengths[-1], 4 * tbptt.k2)
    if model.max_length is not None:
        tokens = model.max_length // tbptt.k2 * tbptt.k2
        if tokens < 2 * tbptt.k2:
            raise UserError(
                f"the model reads at most model.max_length={model.max_length} tokens, which is less than two chunks of "
                f"k2={tbptt.k2}: there is no state to carry"
            )
    lanes = read_lanes(model, task, stream, tbptt, lanes=LANES, tokens=tokens)
    contexts = losses_by_context(model, task, stream, positions, lengths)
    return Memory(
        tbptt=tbptt,
        tolerance=tolerance,
        contexts=contexts,
        lanes=lanes,
        gain_of_context=gain_of_context(contexts),
        gain_of_state=gain_of_state(lanes),
        effective=effective_context(contexts, tolerance),
    )


def _longest(context: int | None, k2: int, max_length: int | None) -> int:
    """The longest context that is measured."""
    if context is None:
        context = min(max(4 * k2, SHORTEST), LONGEST)
        if max_length is not None:
            context = min(context, max_length)
    elif max_length is not None and context > max_length:
        raise UserError(f"--context {context}: the model reads at most model.max_length={max_length} tokens")
    return context


def _signed(interval: Interval) -> str:
    return f"{interval.value:+.4f} (95 % interval {interval.low:+.4f} to {interval.high:+.4f})"
