"""`seqtrain predict --attention FILE`, `--gates FILE`: draw the internals of a model while it reads one text."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqtrain.api import Trained, load
from seqtrain.cli.answer_options import as_typed, given
from seqtrain.cli.lines import from_arguments
from seqtrain.errors import UserError


@dataclass(frozen=True)
class Drawing:
    """A drawing that a flag asks for."""

    shows: str  # "it shows ... in it": in the text
    draws: str  # "draws ..., and answers nothing"
    parts: str  # what --json calls the parts of the drawing
    save: Callable[[Trained, str, Path, str], tuple[Sequence[Any], str]]  # gives the parts, and what was left out


def _save_attention(trained: Trained, text: str, path: Path, title: str) -> tuple[Sequence[Any], str]:
    from seqtrain.inference import attention_maps

    maps = trained.attention(text)
    return maps, attention_maps.draw(maps, path, title)


def _save_gates(trained: Trained, text: str, path: Path, title: str) -> tuple[Sequence[Any], str]:
    from seqtrain.inference import gate_pictures

    layers = trained.gates(text)
    return layers, gate_pictures.draw(layers, path, title)


DRAWINGS = {
    "attention": Drawing("where the model looks", "where the model looks", "maps", _save_attention),
    "gates": Drawing("what the gates do", "what the gates do", "layers", _save_gates),
}
"""By flag; both may be given, of a model that attends and has gates."""


def asked(options: argparse.Namespace) -> list[str]:
    """Return the flags that were given."""
    return [name for name in DRAWINGS if getattr(options, name) is not None]


def main(options: argparse.Namespace) -> int:
    """Draw one text; raise UserError for other options that make no sense with a drawing."""
    names = asked(options)
    # Before the run is loaded, which takes seconds.
    for name in names:
        path: Path = getattr(options, name)
        if path.suffix.lower() != ".png":
            raise UserError(f"--{name} {path}: expected a name that ends in .png")
    # If both flags are given, messages name the first.
    first, drawing = names[0], DRAWINGS[names[0]]
    if len(options.texts) != 1 or options.input is not None:
        raise UserError(f"--{first}: takes one TEXT, and no --input; it shows {drawing.shows} in it")
    useless = _useless(options)
    if useless:
        flags = ", ".join(useless)
        raise UserError(f"{flags}: --{first} draws {drawing.draws} and answers nothing; leave one of them out")

    trained = load(options.run, trust=options.trust, checkpoint=options.checkpoint)
    (line,) = from_arguments(options.texts)
    reason = line.reason or trained.opened.text_reader.reason(line.text)
    if reason:
        raise UserError(f"{line.where}: {reason}")
    # The first file stays where the second drawing is refused, as of a model that attends and has no gates.
    for name in names:
        _draw(name, trained, line.text, getattr(options, name), options.json)
    return 0


def _useless(options: argparse.Namespace) -> list[str]:
    """Return the answer options that were given, as they were typed. A drawing uses none of them."""
    useless = list(map(as_typed, given(options)))
    if options.score:
        useless.append("--score")
    if options.option:
        useless.append("--option")
    return useless


def _draw(name: str, trained: Trained, text: str, path: Path, as_json: bool) -> None:
    drawing = DRAWINGS[name]
    try:
        parts, left_out = drawing.save(trained, text, path, f"{trained.directory.name}: {text}")
    except OSError as error:
        raise UserError(f"--{name} {path}: {error.strerror}") from None
    names = [part.name for part in parts]  # layers of a stack, or of an encoder and a decoder
    if as_json:
        found = {"text": text, name: str(path), drawing.parts: names, "left_out": left_out}
        print(json.dumps(found, ensure_ascii=False))
        return
    line = f"{path}: {', '.join(names)}"
    if left_out:  # a picture has room for some of the layers only
        line += f" (not shown: {left_out})"
    print(line)
