"""Errors that the user can fix: each ends a command with one clear line and exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from seqtrain.terminal import MAX_CHARACTERS, printable

# Endings of the names of options that are paths.
PATHS = (
    "path",
    "dir",
    "init_from",
    "tracking_uri",
    "--corpus",
    "--labels",
    "--pairs",
    "--input",
    "--output",
    "--attention",
    "--keep",
    "--html",
)

MIN_ALIKE = 0.6  # share of common letters above which a word may be a typing error
MAX_LISTED = 24  # words; more of them would hide the message
MAX_NAMED = 6  # words of an unbounded list that a message names
MAX_LINE = 293  # characters without paths, 300 with `error: `; the middle of a longer message is left out


class UserError(Exception):
    """One or more faults that the user can fix; each line names the fault, its place and the remedy."""

    def __init__(self, *lines: str) -> None:
        self.lines = tuple(printable(line, _most(line)) for line in lines)
        super().__init__("\n".join(self.lines))


def _most(line: str) -> int:
    """Return how long a line may be: a user's paths do not count, for a message without them names no place."""
    return min(MAX_LINE + sum(len(word) for word in line.split() if "/" in word), MAX_CHARACTERS)


class Unavailable(UserError):
    """A fault of the surroundings, not of the request: it may disappear by itself.

    A file, disk space, the network, memory, a device, a package or a permission is missing. A trial of a sweep that
    ends with it has failed and can be tried again; with any other UserError the trial is refused.
    """


def kind_of(error: BaseException) -> type[UserError]:
    """Return Unavailable for an OSError, ImportError or MemoryError of other code, else UserError."""
    return Unavailable if isinstance(error, OSError | ImportError | MemoryError) else UserError


def merged(faults: Iterable[UserError]) -> UserError:
    """Return one fault with the lines of all, each once; Unavailable if all of them are, else UserError."""
    kind: type[UserError] = Unavailable
    lines: dict[str, None] = {}  # a set that keeps its order
    for fault in faults:
        lines |= dict.fromkeys(fault.lines)
        if not isinstance(fault, Unavailable):  # with a permanent fault, trying again is pointless
            kind = UserError
    return kind(*lines)


class Answered(SystemExit):
    """A parser has answered --help. Not told from sys.exit, which W&B replaces once a run of it was begun."""


class RunFailed(RuntimeError):
    """A run that failed by itself: ends a command with one clear line and exit code 1."""


class NonFinite(RunFailed):
    """The loss or the gradient is not finite."""


class OutOfMemory(RunFailed):
    """A batch, or the model, did not fit in memory."""


def first_few(words: Iterable[object], most: int = MAX_NAMED) -> str:
    """Join the first words by commas and count the others: `a, b and 3 more`."""
    names = list(map(str, words))
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for the nearest known word, else the sorted list if short, else an empty string."""
    words = sorted(set(known))
    near = difflib.get_close_matches(word, words, n=1, cutoff=MIN_ALIKE)
    if near:
        return f"; did you mean {near[0]}?"
    if not words or len(words) > MAX_LISTED:
        return ""
    return f"; known: {', '.join(words)}"


def refuse_tilde(key: str, value: object) -> None:
    """Raise UserError for a path that begins with a `~` that the shell has not expanded."""
    if not (isinstance(value, str) and key.endswith(PATHS)):
        return
    value = value.strip("'\"")
    if value == "~" or value.startswith("~/"):
        raise UserError(f'{key}={value}: no shell expands this ~; write {key}="$HOME{value[1:]}"')
