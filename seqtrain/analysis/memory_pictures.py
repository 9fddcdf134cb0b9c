"""Pictures of the memory of a run: loss by context, and loss by tokens since the state began."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqtrain.analysis.memory import Memory
from seqtrain.analysis.pictures import COLORS, new_figure, save

CONTEXT, RESET = "context.png", "since_reset.png"


def draw(memory: Memory, folder: Path, unit: str) -> tuple[str, ...]:
    """Write the pictures into a folder; return their names."""
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
    # Without a gain there is no length to mark.
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
        high = 2 * max(memory.contexts.lengths[-1], memory.tbptt.k2)  # beyond all that is drawn
        axes.set_xlim(right=high)
    axes.axvspan(effective.low, high, color=COLORS[2], alpha=0.25)
    axes.axvline(effective.value, color=COLORS[2], linestyle=style, label=label)


def _draw_reset(memory: Memory, path: Path, unit: str) -> None:
    """Draw the loss since the state began, and by position in the chunk, with the state carried and discarded."""
    figure = new_figure(9.6, 3.6)
    # One axis of losses, so that the two can be held against each other.
    left, right = figure.subplots(1, 2, sharey=True)
    curves = memory.curves()
    # A span, or a place, that no token fell into has no loss.
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
