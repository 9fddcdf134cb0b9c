"""Leak check before a training: does validation occur in the text that this run, or its parent, is trained on?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqtrain.config.options import origins
from seqtrain.data import leaks
from seqtrain.data.leaks import MAX_KEPT, Leak, Sketch
from seqtrain.data.preprocess import Rows
from seqtrain.distributed.ranks import say
from seqtrain.files.atomic import exists
from seqtrain.inference.opened import open_origin
from seqtrain.runs.directory import Run
from seqtrain.runs.leaks import MIN_SAID, SKETCH, in_words, is_grave, notes, place_of_kept, worst
from seqtrain.runs.summary import Summary


def check_leaks(run: Run, init_from: str | Sequence[str] | None, rows: dict[Any, Rows], summary: Summary) -> None:
    """Add to the summary the share of validation found in the training text, print it, and save a sketch of that text.

    Args:
        run: Its directory gets the sketch, which later runs that start from this one check against.
        init_from: The run, or the two runs, whose weights it starts from.
        rows: Rows of train and validation.
        summary: Summary of the attempt.
    """
    if summary.leaks and exists(run.path / SKETCH):  # of an earlier attempt; the text is the same
        return
    if rows["train"].series is not None:  # cut by time, so that no row is of two splits
        return
    train = leaks.trained_text(rows["train"])
    asked = leaks.sketches(rows["validation"])
    found: dict[str, Any] = {"train": _plain(leaks.find_leak(asked, train))}
    whole = train
    if init_from is not None:
        parent = _parent_sketch(init_from)
        found["init_from"] = _plain(_parent_leak(asked, parent))
        # A child of this run asks this run alone: what came before it must stand in its sketch, too.
        whole = train.joined(parent) if parent is not None else train.unfinished()
    summary.update(leaks={"validation": found})
    _tell(summary)
    if run.writes:
        whole.cut(MAX_KEPT).save(run.path / SKETCH)


def say_leaks_unknown(init_from: str | Sequence[str] | None, summary: Summary) -> None:
    """Record in the summary, and print, that validation was not looked for in train.

    A token store holds no text, and to restore it all for the check would be too much work.
    """
    found: dict[str, Any] = {"train": None}
    if init_from is not None:
        found["init_from"] = None
    summary.update(leaks={"validation": found})
    _tell(summary)


def leak_of(run: Run, split: str, rows: Rows) -> dict[str, Any] | None:
    """Return the share of a split found in the training text of a finished run; print it if it is not small.

    Returns None, with a message, if the run keeps no sketch of that text.
    """
    if rows.series is not None:
        return None
    sketch = _load(run.path)
    if sketch is None:
        say(f"{split}: whether it stands in train is not known: {SKETCH} is missing")
        return None
    leak = leaks.find_leak(leaks.sketches(rows), sketch)
    if leak is not None and leak.share >= MIN_SAID:
        say(in_words(split, place_of_kept(run.config.get("init_from") is not None), leak))
    return _plain(leak)


def _tell(summary: Summary) -> None:
    reason = worst(summary)
    if reason is not None:
        say(f"{reason}; its figures are in part those of text learnt by heart, and compare concludes nothing from them")
    for line in notes(summary):
        say(line)


def _parent_sketch(init_from: str | Sequence[str]) -> Sketch | None:
    """Return a sketch of the text that all parents were trained on, or None if one has no sketch."""
    whole: Sketch | None = None
    for path in origins(init_from):
        sketch = _load(open_origin(path).path)
        if sketch is None:
            return None
        whole = sketch if whole is None else whole.joined(sketch)
    return whole


def _load(folder: Path) -> Sketch | None:
    path = folder / SKETCH
    return Sketch.load(path) if exists(path) else None


def _parent_leak(asked: list[Sketch], parent: Sketch | None) -> Leak | None:
    """Return the leak from the parent's training text. One side of a pair counts: a language model has read it."""
    if parent is None:
        return None
    leak = leaks.find_leak(asked, parent, max)
    if leak is None or (not parent.whole and not is_grave(leak)):
        return None  # what is not known of might hold the rest
    return leak


def _plain(leak: Leak | None) -> dict[str, Any] | None:
    return None if leak is None else leak._asdict()
