"""What the user can mend: an error that ends a command with one clear line and exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class Fault(Exception):
    """One or more things that the user can mend; each line names what, where and the remedy."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class NonFinite(RuntimeError):
    """The loss or the gradient is no longer a number: the run has failed in itself."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for the nearest known word, or the sorted list of a few, or nothing."""
    words = sorted(set(known))
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known: {', '.join(words)}" if 0 < len(words) <= 24 else ""
