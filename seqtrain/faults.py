"""What the user can mend: an error that ends a command with one clear line and exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class Fault(Exception):
    """One or more things that the user can mend; each line names what, where and the remedy."""

    def __init__(self, *lines: str) -> None:
        self.lines = tuple(map(printable, lines))
        super().__init__("\n".join(self.lines))


def printable(text: str) -> str:
    """The text on one line, its control characters spelled out: a name of a stranger's must not steer a terminal."""
    line = " ".join(text.split())
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)


class Failed(RuntimeError):
    """A run that failed in itself: ends a command with one clear line and exit code 1."""


class NonFinite(Failed):
    """The loss or the gradient is no longer a number."""


class OutOfMemory(Failed):
    """A batch, or the model, did not fit."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for the nearest known word, or the sorted list of a few, or nothing."""
    words = sorted(set(known))
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known: {', '.join(words)}" if 0 < len(words) <= 24 else ""
