"""Attention maps of a model for one text, and a plot of them."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.errors import UserError
from seqtrain.files.atomic import atomic
from seqtrain.models.base import SequenceModel, name_of
from seqtrain.models.layers.recorder import AttentionMap, recording

ATTENDING = (
    "bert",
    "gpt",
    "stack (model.mixers=[attention])",
    "encoder_decoder",
    "rnn_encoder_decoder (model.attention=additive or dot)",
)
SPECIALS = ("[start]", "[sep]", "[mask]")
MAX_MAPS = 8  # layers, and heads, in a plot
MAX_TOKENS = 40  # per axis of a map
MAX_LABEL_CHARACTERS = 14
MAX_TITLE_CHARACTERS = 200
INCHES_PER_TOKEN = 0.15
MARGIN_INCHES = 2.5  # for labels
MAX_PIXELS = 4000  # on the longer side of a plot

Label = Callable[[Any], str]  # returns the label of a token, or of the values at a step


class Seen(NamedTuple):
    """The attention of one layer: `weights` (H, T, N), and the labels of its T queries and N keys."""

    name: str
    weights: Float[Tensor, "H T N"]
    queries: list[str]
    keys: list[str]


def labels(tokenizer: Tokenizer) -> Label:
    """Return a function that gives the axis label of a token."""

    def label(token: int) -> str:
        # Special tokens follow the text tokens, in the order of SPECIALS.
        if token >= tokenizer.vocab_size:
            return SPECIALS[token - tokenizer.vocab_size]
        return tokenizer.token_text(token)

    return label


def step_numbers() -> Label:
    """Return a function that labels the steps of one series by number."""
    numbers = count(1)
    return lambda _: str(next(numbers))


@torch.no_grad()
def look(
    model: SequenceModel,
    tokens: Sequence[Any],
    label: Label,
    source: Sequence[Any] | None = None,
    source_label: Label | None = None,
) -> list[Seen]:
    """Record the attention maps of a model while it reads tokens.

    Args:
        model: a model in evaluation mode.
        tokens: the input tokens, or the values of steps; for an encoder-decoder, those of the target.
        label: returns the label of a token.
        source: the encoder's tokens or values; None for a model that reads one text.
        source_label: returns the label of a source token; None: `label`.

    Returns:
        Cross-attention maps first, then self-attention maps of the text, then those of the source; each kind from the
        first layer to the last.

    Raises:
        UserError: If the model has no attention.
    """
    device = next(model.parameters()).device
    written = list(map(label, tokens))
    read: list[str] = []  # of the source
    state = None
    cross: list[Seen] = []
    own: list[Seen] = []
    within_source: list[Seen] = []
    if source is not None:
        read = list(map(source_label or label, source))
        with recording() as maps:
            state = model.begin(torch.tensor([source], device=device))
        for each in maps:
            # A model that reads the source as a prefix names its layers as for any text.
            if "source" in each.name:
                within_source.append(_seen(each, read, read))
            else:
                own.append(_seen(each, read, read))
    with recording() as maps:
        model(torch.tensor([tokens], device=device), state)
    for each in maps:
        if each.name.endswith("cross"):
            cross.append(_seen(each, written, read))
        else:
            own.append(_seen(each, written, written))
    if not (cross or own or within_source):
        raise UserError(
            f"model={name_of(model)}: no attention; use a run of one of these models: {', '.join(ATTENDING)}"
        )
    return [*cross, *own, *within_source]


def _seen(attention: AttentionMap, queries: list[str], keys: list[str]) -> Seen:
    # Only the last keys are the text's; those before are empty slots of the state.
    return Seen(attention.name, attention.weights[0, :, :, -len(keys) :].cpu(), queries, keys)


def draw(maps: Sequence[Seen], path: Path, title: str) -> str:
    """Draw a PNG of layers (rows) and heads (columns), each with queries down and keys across.

    Returns:
        A text that lists what was left out; empty if nothing was.

    Raises:
        OSError: If the file cannot be written.
    """
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    cropped = [_crop(seen) for seen in maps[:MAX_MAPS]]
    columns = _most_heads(cropped)
    heights = [len(seen.queries) for seen in cropped]  # of rows, in tokens
    named = _rows_with_key_names(cropped)
    width = MARGIN_INCHES + columns * _inches(max(len(seen.keys) for seen in cropped))
    # Each row with key labels takes 1.2 inches more, and so does the title.
    height = sum(map(_inches, heights)) + 1.2 * len(named) + 1.2
    # If there are many maps, a lower resolution keeps the plot within MAX_PIXELS.
    figure = Figure(figsize=(width, height), dpi=min(140, MAX_PIXELS / max(width, height)), layout="constrained")
    grid = figure.subplots(len(cropped), columns, squeeze=False, gridspec_kw={"height_ratios": heights})
    shades = PowerNorm(0.5, 0, 1)  # square root, because most weights are small
    image = None
    for row, seen in enumerate(cropped):
        keys = seen.keys if row in named else []
        for axes in grid[row, len(seen.weights) :]:
            axes.set_axis_off()
        for head, (axes, weights) in enumerate(zip(grid[row], seen.weights, strict=False)):
            image = axes.imshow(weights.float().numpy(), cmap="Blues", norm=shades, aspect="auto")
            axes.set_title(f"head {head + 1}", fontsize=8)
            queries: list[str] = []
            if head == 0:  # the first column is labelled for the whole row
                queries = seen.queries
                axes.set_ylabel(textwrap.fill(seen.name, 12), fontsize=8)
            _name_tokens(axes, queries, keys)
    assert image is not None
    bar = figure.colorbar(
        image, ax=grid, location="top", fraction=0.02, pad=0.02, shrink=0.3, ticks=[0, 0.1, 0.4, 1], format="%g"
    )
    bar.ax.tick_params(labelsize=7)
    left_out = _left_out(maps, cropped)
    heading = textwrap.fill(shorten(title, MAX_TITLE_CHARACTERS), int(10 * width))
    heading += "\neach row sums to 1 over the columns"
    if left_out:
        heading += f"\nnot shown: {left_out}"
    save_picture(figure, heading, path)
    return left_out


def save_picture(figure: Any, heading: str, path: Path) -> None:
    """Write a matplotlib figure with a heading as PNG."""
    figure.suptitle(heading, fontsize=9, parse_math=False)
    with warnings.catch_warnings(), atomic(path) as file:
        warnings.simplefilter("ignore")  # about characters missing from the font
        figure.savefig(file, format="png")


def _inches(tokens: int) -> float:
    """Return the size of a map in inches; at least 1.0, for the labels of a small map."""
    return max(tokens * INCHES_PER_TOKEN, 1.0)


def _crop(seen: Seen) -> Seen:
    """Return the first heads and tokens."""
    first = slice(MAX_TOKENS)
    return Seen(seen.name, seen.weights[:MAX_MAPS, first, first], seen.queries[first], seen.keys[first])


def _rows_with_key_names(maps: Sequence[Seen]) -> set[int]:
    """Return the rows of the plot that need key labels: the last, and those above a row with other keys."""
    rows = {len(maps) - 1}
    for row, (seen, below) in enumerate(pairwise(maps)):
        if seen.keys != below.keys:
            rows.add(row)
    return rows


def _name_tokens(axes: Any, queries: list[str], keys: list[str]) -> None:
    style: dict[str, Any] = {"fontsize": 7, "parse_math": False}  # a $ in a text does not start a formula
    axes.set_xticks(range(len(keys)), [shorten(key) for key in keys], rotation=90, **style)
    axes.set_yticks(range(len(queries)), [shorten(query) for query in queries], **style)
    axes.tick_params(length=0)


def shorten(text: str, max_characters: int = MAX_LABEL_CHARACTERS) -> str:
    """Shorten a text to `max_characters`. A text of white space only becomes a visible character."""
    text = text.strip() or "␣"
    if len(text) <= max_characters:
        return text
    return f"{text[: max_characters - 1]}…"


def _most_heads(maps: Sequence[Seen]) -> int:
    return max(len(seen.weights) for seen in maps)


def _most_tokens(maps: Sequence[Seen]) -> int:
    return max(max(len(seen.queries), len(seen.keys)) for seen in maps)


def _left_out(maps: Sequence[Seen], cropped: Sequence[Seen]) -> str:
    """Return a description of the maps, heads and tokens that are not drawn."""
    counts = {"maps": len, "heads": _most_heads, "tokens": _most_tokens}
    return words_left_out({what: (count(cropped), count(maps)) for what, count in counts.items()})


def words_left_out(counts: Mapping[str, tuple[int, int]]) -> str:
    """Return a description of what a plot leaves out; empty if nothing.

    Args:
        counts: for each noun, the largest number that is shown, and the total.
    """
    return ", ".join(f"{total - most} of {total} {what}" for what, (most, total) in counts.items() if total > most)
