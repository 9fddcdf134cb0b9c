"""Attention maps of one text with their tokens, and a picture of them."""

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
MAX_MAPS = 8  # layers, and heads, in a picture
MAX_TOKENS = 40  # on a side of a picture
MAX_LABEL_CHARACTERS = 14
MAX_TITLE_CHARACTERS = 200
INCHES_PER_TOKEN = 0.15
MARGIN_INCHES = 2.5  # for labels
MAX_PIXELS = 4000  # on a picture's longer side

Label = Callable[[Any], str]  # of a token, or of the values of a step


class Seen(NamedTuple):
    """The attention of one layer: `weights` (H, T, N), and the labels of its T queries and N keys."""

    name: str
    weights: Float[Tensor, "H T N"]
    queries: list[str]
    keys: list[str]


def labels(tokenizer: Tokenizer) -> Label:
    """Return a function that gives the axis label of a token."""

    def label(token: int) -> str:
        # Special tokens stand behind those of text, in the order of SPECIALS.
        if token >= tokenizer.vocab_size:
            return SPECIALS[token - tokenizer.vocab_size]
        return tokenizer.token_text(token)

    return label


def step_numbers() -> Label:
    """Return a function that numbers the steps of one series, which have no other name."""
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
        model: in evaluation mode.
        tokens: what it reads, or the values of steps; of a model that begins from a source, those of the target.
        label: what a token is called.
        source: tokens, or values, to begin from; None for a model that reads one text.
        source_label: what a token of the source is called, where that differs.

    Returns:
        First the maps from a target to its source, then those within a text, then those within a source; each kind
        from the first layer to the last.

    Raises:
        UserError: where the model does not attend.
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
            # A model that takes a source as a prefix names its layers as it does for any text.
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
            f"model={name_of(model)} does not attend, so there is no map; models that do: {', '.join(ATTENDING)}"
        )
    return [*cross, *own, *within_source]


def _seen(attention: AttentionMap, queries: list[str], keys: list[str]) -> Seen:
    # Keys before the last ones are room for what an empty state has not seen.
    return Seen(attention.name, attention.weights[0, :, :, -len(keys) :].cpu(), queries, keys)


def draw(maps: Sequence[Seen], path: Path, title: str) -> str:
    """Draw a PNG of layers (rows) and heads (columns), each with queries down and keys across.

    Returns:
        What was left out, in words, or nothing.

    Raises:
        OSError: the file cannot be written.
    """
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    cropped = [_crop(seen) for seen in maps[:MAX_MAPS]]
    columns = _most_heads(cropped)
    heights = [len(seen.queries) for seen in cropped]  # of rows, in tokens
    named = _rows_with_key_names(cropped)
    width = MARGIN_INCHES + columns * _inches(max(len(seen.keys) for seen in cropped))
    # Each row that names its keys takes 1.2 inches more, and so does the title.
    height = sum(map(_inches, heights)) + 1.2 * len(named) + 1.2
    # Where many maps stand side by side, fewer dots to an inch keep the picture within its limit.
    figure = Figure(figsize=(width, height), dpi=min(140, MAX_PIXELS / max(width, height)), layout="constrained")
    grid = figure.subplots(len(cropped), columns, squeeze=False, gridspec_kw={"height_ratios": heights})
    shades = PowerNorm(0.5, 0, 1)  # by the root, since most weights are small
    image = None
    for row, seen in enumerate(cropped):
        keys = seen.keys if row in named else []
        for axes in grid[row, len(seen.weights) :]:
            axes.set_axis_off()
        for head, (axes, weights) in enumerate(zip(grid[row], seen.weights, strict=False)):
            image = axes.imshow(weights.float().numpy(), cmap="Blues", norm=shades, aspect="auto")
            axes.set_title(f"head {head + 1}", fontsize=8)
            queries: list[str] = []
            if head == 0:  # the names of the first column are those of the whole row
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
    heading += "\neach row shares itself out among the columns"
    if left_out:
        heading += f"\nnot shown: {left_out}"
    save_picture(figure, heading, path)
    return left_out


def save_picture(figure: Any, heading: str, path: Path) -> None:
    """Write a figure of matplotlib as PNG, under a heading."""
    figure.suptitle(heading, fontsize=9, parse_math=False)
    with warnings.catch_warnings(), atomic(path) as file:
        warnings.simplefilter("ignore")  # of letters that the font does not have
        figure.savefig(file, format="png")


def _inches(tokens: int) -> float:
    """Return the inches that so many tokens take; at least 1.0, for the labels beside a small map."""
    return max(tokens * INCHES_PER_TOKEN, 1.0)


def _crop(seen: Seen) -> Seen:
    """Return the first heads and tokens."""
    first = slice(MAX_TOKENS)
    return Seen(seen.name, seen.weights[:MAX_MAPS, first, first], seen.queries[first], seen.keys[first])


def _rows_with_key_names(maps: Sequence[Seen]) -> set[int]:
    """Return the rows of the picture that need key labels: the last, and those above a row with other keys."""
    rows = {len(maps) - 1}
    for row, (seen, below) in enumerate(pairwise(maps)):
        if seen.keys != below.keys:
            rows.add(row)
    return rows


def _name_tokens(axes: Any, queries: list[str], keys: list[str]) -> None:
    style: dict[str, Any] = {"fontsize": 7, "parse_math": False}  # a $ in a text is no formula
    axes.set_xticks(range(len(keys)), [shorten(key) for key in keys], rotation=90, **style)
    axes.set_yticks(range(len(queries)), [shorten(query) for query in queries], **style)
    axes.tick_params(length=0)


def shorten(text: str, max_characters: int = MAX_LABEL_CHARACTERS) -> str:
    """Shorten a text to `max_characters`. A text that is only white space becomes a visible sign."""
    text = text.strip() or "␣"
    if len(text) <= max_characters:
        return text
    return f"{text[: max_characters - 1]}…"


def _most_heads(maps: Sequence[Seen]) -> int:
    return max(len(seen.weights) for seen in maps)


def _most_tokens(maps: Sequence[Seen]) -> int:
    return max(max(len(seen.queries), len(seen.keys)) for seen in maps)


def _left_out(maps: Sequence[Seen], cropped: Sequence[Seen]) -> str:
    """Return what the first maps, heads and tokens do not show of all."""
    counts = {"maps": len, "heads": _most_heads, "tokens": _most_tokens}
    return words_left_out({what: (count(cropped), count(maps)) for what, count in counts.items()})


def words_left_out(counts: Mapping[str, tuple[int, int]]) -> str:
    """Return what a picture does not show.

    Args:
        counts: by noun, the most that is shown, and the total.
    """
    return ", ".join(f"{total - most} of {total} {what}" for what, (most, total) in counts.items() if total > most)
