"""The memory of a run: the context that it uses, the gain from its carried state, and the consequences for k2."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seqtrain.analysis.context import (
    Contexts,
    HasTokenLosses,
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
from seqtrain.analysis.measured import COLORS, new_figure, save
from seqtrain.data.batching.plan import TBPTT
from seqtrain.data.batching.stream import Stream
from seqtrain.errors import UserError
from seqtrain.models.base import Capability, SequenceModel, name_of

SHORTEST, LONGEST = 128, 1024  # bounds of the default context, which is 4 times k2
LANES = 128
MIN_TARGETS = 100  # fewer are not informative
SHARE = 0.9  # of the gain of context


@dataclass(frozen=True)
class Memory:
    """The measured memory of a run."""

    tbptt: TBPTT
    tolerance: float  # nats
    contexts: Contexts
    lanes: Lanes | None  # None: the state was not measured
    without_state: str  # why not
    gain_of_context: Interval  # up to the best length
    gain_of_state: Interval | None
    effective: Interval  # tokens
    max_length: int | None  # tokens that the model can read at once; None: any number

    @property
    def best_length(self) -> int:
        """The longest context at which the loss is within the tolerance of its minimum."""
        return self.contexts.best_length(self.tolerance)

    @property
    def is_falling(self) -> bool:
        """True if the loss still falls at the longest measured context. The effective context may then be longer."""
        means = self.contexts.means
        return len(means) > 1 and bool(means[-2] - means[-1] > self.tolerance) and not self.is_rising

    @property
    def is_open(self) -> bool:
        """True if the upper end of the effective context is unknown: in some resamples the loss still falls there."""
        if self.is_rising or len(self.contexts.lengths) < 2:
            return False
        return self.is_falling or self.effective.high > self.contexts.lengths[-2]

    @property
    def is_rising(self) -> bool:
        """True if the longest contexts raise the loss. A model may not handle more context than in its training."""
        return self.best_length < self.contexts.lengths[-1]

    @property
    def uses_context(self) -> bool:
        """True if more than one token of context helps, significantly and beyond the tolerance."""
        return self.gain_of_context.low > 0 and self.gain_of_context.value > self.tolerance

    @property
    def most_of_gain(self) -> float:
        """The context in tokens at which SHARE of the whole gain is reached."""
        helpful = self.contexts.up_to(self.best_length)
        return effective_length(helpful.lengths, helpful.means, (1 - SHARE) * max(self.gain_of_context.value, 0.0))

    def verdict(self) -> list[str]:
        """Return the conclusions, one sentence each."""
        if not self.uses_context:
            words = f"no use of context is shown: {self._of_no_use()}"
            # Without use of context the gain of the state means nothing, but a missing state is still reported.
            return [words] if self.lanes is not None else [words, self._of_state()]
        return [self._of_context(), self._of_k2(), self._of_state()]

    def _of_no_use(self) -> str:
        if self.best_length == 1:  # nothing to compare with
            return self._of_harm()
        return (
            f"the losses with 1 and with {self.best_length} tokens of context differ by "
            f"{_signed(self.gain_of_context)} nats per token"
        )

    def _of_context(self) -> str:
        least = "at least " if self.is_falling else ""
        more = " or more" if self.is_open else ""
        there = " up to there" if self.is_falling else ""
        words = (
            f"effective context: {least}{_tokens(self.effective.value)} (95 % interval {self.effective.low:.0f} to "
            f"{self.effective.high:.0f}{more}){self._of_longer()}. {SHARE:.0%} of what context gives{there}, "
            f"{self.gain_of_context.value:.3f} nats, is there after {_tokens(self.most_of_gain)}"
        )
        if self.is_rising:
            words += f". {self._of_harm()}"
        return words

    def _of_longer(self) -> str:
        """Return the effect of contexts longer than the effective one, as far as measured."""
        longest, best = self.contexts.lengths[-1], self.best_length
        if self.is_falling:
            return f", a lower bound: the loss still falls at {longest}, the longest that was measured{self._remedy()}"
        if self.is_rising and round(self.effective.value) >= best:  # all longer ones are worse
            return f", of 1 to {longest} that were measured"
        until = f", up to {best}," if self.is_rising or self.is_open else ""
        return f"; longer ones{until} change the loss by less than {self.tolerance:g} nats"

    def _remedy(self) -> str:
        """Return how to measure a longer context, for a lower bound."""
        # Lengths are powers of two.
        if self.max_length is not None and 2 * self.contexts.lengths[-1] > self.max_length:
            return f" (the model reads at most model.max_length={self.max_length})"
        return "; try a longer --context"

    def _of_harm(self) -> str:
        """Return the effect of contexts beyond the best one, and its possible cause."""
        longest, harm = self.contexts.lengths[-1], self.contexts.means[-1] - self.contexts.means.min()
        words = f"Beyond {_tokens(self.best_length)} context does harm: at {longest} the loss is {harm:.3f} nats higher"
        if not self.tbptt.carry and self.best_length < 2 * self.tbptt.k2:
            words += f", for in training nothing longer than k2={self.tbptt.k2} was read from nothing"
        return words

    def _of_k2(self) -> str:
        k2, effective = self.tbptt.k2, self.effective
        if effective.low > k2:  # which a lower bound shows as well
            return f"k2={k2} is shorter than the context that the model uses through its carried state: try a longer k2"
        if self.is_open:
            return (
                f"unknown whether k2={k2} is long enough: the model may look back farther than the "
                f"{self.contexts.lengths[-1]} tokens that were measured{self._remedy()}"
            )
        # A model cannot learn what gradients never reach, so a short context does not prove that a short k2 is enough.
        if effective.high < k2 / 2:
            return f"k2={k2} is long enough for this model: gradients reach at least twice as far as it looks back"
        return (
            f"k2={k2} is at most twice as long as the context that this model may use. A model cannot learn beyond the "
            "reach of gradients: to know whether k2 is long enough, train with a longer one and compare"
        )

    def _of_state(self) -> str:
        gain = self.gain_of_state
        if gain is None:
            return f"carried state: not measured, because {self.without_state}"
        if gain.low <= 0 <= gain.high:
            words = f"carried state: no significant difference ({_signed(gain)} nats per token)"
        else:
            change = "lowers" if gain.value > 0 else "raises"
            low, high = sorted((abs(gain.low), abs(gain.high)))
            words = (
                f"carried state {change} the loss by {abs(gain.value):.4f} nats per token (95 % interval {low:.4f} to "
                f"{high:.4f}), compared with chunks of {self.tbptt.k2} from an empty state"
            )
        # Either way, the weights were trained for only one of the two.
        if not self.tbptt.carry:
            words += "; this run was trained without carried state"
        elif gain.low > 0:
            words += (
                "; this run was trained with carried state, and a run trained without it may do better from an empty "
                "state, so the gain of carrying may be smaller"
            )
        return words

    def curves(self) -> dict[str, list[dict[str, float]]]:
        """Return mean losses: by context, by tokens since reset (in powers of two), and by position in the chunk."""
        by_context: list[dict[str, float]] = []
        for length, loss in zip(self.contexts.lengths, self.contexts.means, strict=True):
            by_context.append({"context": length, "loss": float(loss)})
        if self.lanes is None:
            return {"by_context": by_context, "since_reset": [], "in_chunk": []}
        return {"by_context": by_context, "since_reset": self.lanes.by_reset(), "in_chunk": self.lanes.by_place()}

    def record(self) -> dict[str, Any]:
        """Return the record for `--json` and the file beside the pictures."""
        return {
            "tbptt": asdict(self.tbptt),
            "tolerance": self.tolerance,
            "is_lower_bound": self.is_falling,
            "targets": self.contexts.losses.shape[1],
            "lanes": 0 if self.lanes is None else len(self.lanes.carried),
            "numbers": self._numbers(),
            "verdict": self.verdict(),
            **self.curves(),
        }

    def _numbers(self) -> dict[str, float]:
        """Return the numbers that a page quotes by name."""
        numbers = {
            "effective_context": self.effective.value,
            "effective_context_low": self.effective.low,
            "effective_context_high": self.effective.high,
            "best_context": float(self.best_length),
            "most_of_gain": self.most_of_gain,
            "gain_of_context": self.gain_of_context.value,
        }
        if self.gain_of_state is not None:
            numbers["gain_of_state"] = self.gain_of_state.value
            numbers["gain_of_state_low"] = self.gain_of_state.low
            numbers["gain_of_state_high"] = self.gain_of_state.high
        return numbers


def measure(
    model: SequenceModel,
    task: HasTokenLosses,
    stream: Stream,
    tbptt: TBPTT,
    *,
    context: int | None,
    num_targets: int,
    tolerance: float,
) -> Memory:
    """Measure the memory of a model in evaluation mode.

    Args:
        model: A causal model. Without a state to carry, only the gain of context is measured.
        task: A task with a loss for each token.
        stream: The text.
        tbptt: The truncation that the model was trained with.
        context: The longest context in tokens, rounded down to a power of two; None for 4 times k2, within bounds.
        num_targets: Tokens that are predicted with each context.
        tolerance: Difference in nats within which two losses count as equal.

    Raises:
        UserError: If the model is not causal, or the text is too short.
    """
    if Capability.CAUSAL not in model.capabilities:
        raise UserError(f"model={name_of(model)}: sees later tokens, so its context is not only the tokens before")
    lengths = powers_up_to(_longest(context, tbptt.k2, model.max_length))
    within = tbptt.reset == "document"
    positions = targets(stream.documents, lengths[-1], num_targets, within=within)
    if len(positions) < MIN_TARGETS:
        where = "the documents" if within else "the text"
        raise UserError(
            f"only {len(positions)} tokens have {lengths[-1]} others before them; {where} must be longer, or --context "
            f"shorter ({MIN_TARGETS} tokens at least)"
        )
    without_state, lanes = _why_no_state(model, tbptt), None
    if not without_state:
        tokens = max(lengths[-1], 4 * tbptt.k2)
        if model.max_length is not None:
            tokens = model.max_length // tbptt.k2 * tbptt.k2
        lanes = read_lanes(model, task, stream, tbptt, lanes=LANES, tokens=tokens)
    contexts = losses_by_context(model, task, stream, positions, lengths)
    helpful = contexts.up_to(contexts.best_length(tolerance))
    return Memory(
        tbptt=tbptt,
        tolerance=tolerance,
        contexts=contexts,
        lanes=lanes,
        without_state=without_state,
        gain_of_context=gain_of_context(helpful),
        gain_of_state=None if lanes is None else gain_of_state(lanes),
        effective=effective_context(helpful, tolerance),
        max_length=model.max_length,
    )


def _why_no_state(model: SequenceModel, tbptt: TBPTT) -> str:
    """Return why there is no state to carry from chunk to chunk; empty if there is one."""
    if Capability.STATEFUL not in model.capabilities:
        return f"model={name_of(model)} carries no state from chunk to chunk"
    if model.max_length is not None and model.max_length < 2 * tbptt.k2:
        return (
            f"the model reads at most model.max_length={model.max_length} tokens, less than two chunks of k2={tbptt.k2}"
        )
    return ""


def _longest(context: int | None, k2: int, max_length: int | None) -> int:
    """Return the longest context to measure, in tokens."""
    if context is None:
        context = min(max(4 * k2, SHORTEST), LONGEST)
        if max_length is not None:
            context = min(context, max_length)
    elif max_length is not None and context > max_length:
        raise UserError(f"--context {context}: the model reads at most model.max_length={max_length} tokens")
    return context


def _tokens(count: float) -> str:
    return "1 token" if round(count) == 1 else f"{count:.0f} tokens"


def _signed(interval: Interval) -> str:
    return f"{interval.value:+.4f} (95 % interval {interval.low:+.4f} to {interval.high:+.4f})"


# -- plots ---------------------------------------------------------------------------------------------------------

CONTEXT, RESET = "context.png", "since_reset.png"


def draw(memory: Memory, folder: Path, unit: str) -> tuple[str, ...]:
    """Write the plots to a folder; return their names."""
    _draw_context(memory, folder / CONTEXT, unit)
    if memory.lanes is None:
        return (CONTEXT,)
    _draw_reset(memory, folder / RESET, unit)
    return CONTEXT, RESET


def _draw_context(memory: Memory, path: Path, unit: str) -> None:
    """Draw the loss by context length, with the effective context and k2 marked."""
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    contexts = memory.contexts
    axes.plot(contexts.lengths, contexts.means, "o-", color=COLORS[0], label="loss with exactly so much context")
    # Without a gain there is no context to mark.
    if memory.uses_context:
        _mark_effective(axes, memory)
    axes.axvline(memory.tbptt.k2, color=COLORS[1], linestyle=":", label=f"k2 = {memory.tbptt.k2}: gradients end here")
    # Each step doubles the context, so steps are even.
    axes.set_xscale("log", base=2)
    axes.set_xticks(contexts.lengths, [str(length) for length in contexts.lengths])
    axes.set(xlabel="context (tokens)", ylabel=unit, title="The same tokens, predicted from longer and longer contexts")
    axes.legend(fontsize=8)
    save(figure, path)


def _mark_effective(axes: Any, memory: Memory) -> None:
    """Draw a line at the effective context and a band for its interval. The band is open if its end is unknown."""
    effective, label = memory.effective, f"effective context: {memory.effective.value:.0f} tokens"
    style, high = "-", effective.high
    if memory.is_falling:
        style, label = "--", f"effective context: at least {effective.value:.0f} tokens"
    if memory.is_open:
        high = 2 * max(memory.contexts.lengths[-1], memory.tbptt.k2)  # beyond the last point
        axes.set_xlim(right=high)
    axes.axvspan(effective.low, high, color=COLORS[2], alpha=0.25)
    axes.axvline(effective.value, color=COLORS[2], linestyle=style, label=label)


def _draw_reset(memory: Memory, path: Path, unit: str) -> None:
    """Draw the loss since the state began, and by position in the chunk, with the state carried and discarded."""
    figure = new_figure(9.6, 3.6)
    # A shared axis of losses, so that the two can be compared.
    left, right = figure.subplots(1, 2, sharey=True)
    curves = memory.curves()
    # A span or position without tokens has no loss.
    since = [row for row in curves["since_reset"] if row["tokens"]]
    places = [row for row in curves["in_chunk"] if row["tokens"]]
    for name, color, label in (
        ("carried", COLORS[0], "state carried on"),
        ("fresh", COLORS[1], "each chunk from nothing"),
    ):
        left.plot([row["from"] for row in since], [row[name] for row in since], "o-", color=color, label=label)
        right.plot([row["position"] for row in places], [row[name] for row in places], color=color, label=label)
    left.set_xscale("log", base=2)
    left.set_xticks([row["from"] for row in since], [str(row["from"]) for row in since])
    left.set(
        xlabel="tokens read since the state began", ylabel=unit, title="As the text goes on (each point: other tokens)"
    )
    right.set(
        xlabel=f"position in a chunk of k2 = {memory.tbptt.k2} tokens", title="Inside a chunk that is not the first"
    )
    left.legend(fontsize=8)
    save(figure, path)
