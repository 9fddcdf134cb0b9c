"""Where attention looks: maps of one text with their tokens, as a picture and as a page to explore."""

from __future__ import annotations

import json
import math
import textwrap
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.errors import UserError
from seqtrain.files.atomic import atomic, write_text
from seqtrain.inference.attention_page import page
from seqtrain.models.base import SequenceModel
from seqtrain.models.layers.recorder import AttentionMap, recording

ATTENDING = ("bert", "gpt", "encoder_decoder", "rnn_encoder_decoder (model.attention=additive or dot)")
SPECIALS = ("[start]", "[sep]", "[mask]")
MOST_MAPS = 8  # layers, and heads, in a picture
MOST_TOKENS = 40  # on a side of a picture
MOST_NUMBERS = 1_000_000  # in a page
LONGEST_LABEL, LONGEST_TITLE = 14, 200  # characters
INCHES = 0.15  # of a picture per token
MARGIN = 2.5  # inches for labels
PIXELS = 4000  # on a picture's longer side

Label = Callable[[int], str]


class Seen(NamedTuple):
    """What one layer looked at: `weights` (H, T, N), and the tokens that stand for its T queries and N keys."""

    name: str
    weights: Float[Tensor, "H T N"]
    queries: list[str]
    keys: list[str]


def labels(tokenizer: Tokenizer) -> Label:
    """What a token is called in a picture."""

    def label(token: int) -> str:
        beyond = token - tokenizer.vocab_size
        return SPECIALS[beyond] if beyond >= 0 else tokenizer.token_text(token)

    return label


@torch.no_grad()
def look(
    model: SequenceModel,
    tokens: Sequence[int],
    label: Label,
    source: Sequence[int] | None = None,
    source_label: Label | None = None,
) -> list[Seen]:
    """The maps of a model that reads `tokens`, begun from `source` where there is one; the last layers' come last.

    Maps of a target's tokens to the source come first. Raises UserError where the model does not attend.
    """
    device = next(model.parameters()).device
    state, found = None, []
    written = list(map(label, tokens))
    told = [] if source is None else list(map(source_label or label, source))
    if source is not None:
        with recording() as maps:
            state = model.begin(torch.tensor([source], device=device))
        found += [_seen(each, told, told) for each in maps]
    with recording() as maps:
        model(torch.tensor([tokens], device=device), state)
    found += [_seen(each, written, told if each.name.endswith("cross") else written) for each in maps]
    if not found:
        raise UserError(
            f"model {type(model).__name__} does not attend, so there is no map; models that do: {_attending()}"
        )
    return sorted(found, key=lambda seen: (not seen.name.endswith("cross"), "source" in seen.name))


def _attending() -> str:
    return ", ".join(ATTENDING)


def _seen(each: AttentionMap, queries: list[str], keys: list[str]) -> Seen:
    # Keys before the last ones are room for what an empty state has not seen.
    return Seen(each.name, each.weights[0, :, :, -len(keys) :].cpu(), queries, keys)


# -- picture -----------------------------------------------------------------------------------------------------


def save(maps: Sequence[Seen], path: Path, title: str) -> str:
    """Writes a picture or a page, by the file's ending; gives in words what was left out, or nothing.

    OSError where it cannot be written.
    """
    return draw(maps, path, title) if path.suffix.lower() == ".png" else write_page(maps, path, title)


def draw(maps: Sequence[Seen], path: Path, title: str) -> str:
    """Draws a PNG of layers (rows) and heads (columns), each with queries down and keys across.

    Gives in words what was left out, or nothing.
    """
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    shown = [_cropped(seen) for seen in maps[:MOST_MAPS]]
    columns = max(len(seen.weights) for seen in shown)
    heights = [len(seen.queries) for seen in shown]
    width = MARGIN + columns * max(max(len(seen.keys) for seen in shown) * INCHES, 1.0)
    height = sum(max(count * INCHES, 1.0) for count in heights) + 1.2 * _labelled(shown).count(True) + 1.2
    figure = Figure(figsize=(width, height), dpi=min(140, PIXELS / max(width, height)), layout="constrained")
    grid = figure.subplots(len(shown), columns, squeeze=False, gridspec_kw={"height_ratios": heights})
    shades = PowerNorm(0.5, 0, 1)  # by the root, since most weights are small
    image = None
    for seen, axes_row, labelled in zip(shown, grid, _labelled(shown), strict=True):
        for head, axes in enumerate(axes_row):
            if head >= len(seen.weights):
                axes.set_axis_off()
                continue
            image = axes.imshow(seen.weights[head].float().numpy(), cmap="Blues", norm=shades, aspect="auto")
            axes.set_title(f"head {head + 1}", fontsize=8)
            if head == 0:
                axes.set_ylabel(textwrap.fill(seen.name, 12), fontsize=8)
            _name_tokens(axes, seen.queries if head == 0 else [], seen.keys if labelled else [])
    assert image is not None
    bar = figure.colorbar(
        image, ax=grid, location="top", fraction=0.02, pad=0.02, shrink=0.3, ticks=[0, 0.1, 0.4, 1], format="%g"
    )
    bar.ax.tick_params(labelsize=7)
    left_out = _left_out(maps, shown)
    note = f"\nnot shown: {left_out}" if left_out else ""
    heading = textwrap.fill(_short(title, LONGEST_TITLE), int(10 * width))
    figure.suptitle(f"{heading}\neach row shares itself out among the columns{note}", fontsize=9, parse_math=False)
    with warnings.catch_warnings(), atomic(path) as file:
        warnings.simplefilter("ignore")  # of letters that the font does not have
        figure.savefig(file, format="png")
    return left_out


def _cropped(seen: Seen) -> Seen:
    some = slice(MOST_TOKENS)
    return Seen(seen.name, seen.weights[:MOST_MAPS, some, some], seen.queries[some], seen.keys[some])


def _labelled(shown: Sequence[Seen]) -> list[bool]:
    """Which rows of the picture need their keys written: those above a row with others, and the last."""
    after = [*(seen.keys for seen in shown[1:]), None]
    return [seen.keys != below for seen, below in zip(shown, after, strict=True)]


def _name_tokens(axes: Any, queries: list[str], keys: list[str]) -> None:
    style: dict[str, Any] = {"fontsize": 7, "parse_math": False}  # a $ in a text is no formula
    axes.set_xticks(range(len(keys)), [_short(key) for key in keys], rotation=90, **style)
    axes.set_yticks(range(len(queries)), [_short(query) for query in queries], **style)
    axes.tick_params(length=0)


def _short(label: str, most: int = LONGEST_LABEL) -> str:
    label = label.strip() or "␣"
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _left_out(maps: Sequence[Seen], shown: Sequence[Seen]) -> str:
    """What the first maps, heads and tokens do not show of all."""
    counts = {
        "maps": (len(maps), len(shown)),
        "heads": tuple(max(len(seen.weights) for seen in some) for some in (maps, shown)),
        "tokens": tuple(max(max(len(seen.queries), len(seen.keys)) for seen in some) for some in (maps, shown)),
    }
    return ", ".join(f"{every - some} of {every} {what}" for what, (every, some) in counts.items() if every > some)


# -- page --------------------------------------------------------------------------------------------------------


def write_page(maps: Sequence[Seen], path: Path, title: str) -> str:
    """Writes one HTML file that needs nothing else; gives in words what was left out, or nothing."""
    heads = sum(len(seen.weights) for seen in maps)
    most = slice(max(math.isqrt(MOST_NUMBERS // heads), 1))
    shown = [Seen(s.name, s.weights[:, most, most], s.queries[most], s.keys[most]) for s in maps]
    left_out = _left_out(maps, shown)
    content = [
        {
            "name": seen.name,
            "queries": seen.queries,
            "keys": seen.keys,
            "same": not seen.name.endswith("cross"),
            "heads": (seen.weights.double() * 1000).round().long().tolist(),
        }
        for seen in shown
    ]
    # A "</script>" in a text must not end the script that holds it.
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    write_text(path, page(_short(title, LONGEST_TITLE), f"Not shown: {left_out}." if left_out else "", data))
    return left_out
