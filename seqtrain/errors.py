"""Exceptions, mainly UserError: an error that the user can fix, which ends a command with one line and exit code 2."""

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

MIN_ALIKE = 0.6  # similarity (difflib) above which a word counts as a typing error of another
MAX_LISTED = 24  # most words that are listed in full; a longer list would hide the message
MAX_NAMED = 6  # most items of an unbounded list that a message names
MAX_LINE = 293  # characters, not counting paths (300 with `error: `); the middle of a longer message is left out


class UserError(Exception):
    """One or more faults that the user can fix; each line names the key or file, the fault and the remedy."""

    def __init__(self, *lines: str) -> None:
        self.lines = tuple(printable(line, _most(line)) for line in lines)
        super().__init__("\n".join(self.lines))


def _most(line: str) -> int:
    """Return the maximum length of a line. Paths do not count, since a message is of no use without them."""
    return min(MAX_LINE + sum(len(word) for word in line.split() if "/" in word), MAX_CHARACTERS)


class Unavailable(UserError):
    """A fault of the environment, not of the request, which may disappear without a change to the request.

    A file, disk space, the network, memory, a device, a package or a permission is missing. A sweep's trial that ends
    with it counts as failed and can be retried; with any other UserError the trial counts as refused.
    """


def kind_of(error: BaseException) -> type[UserError]:
    """Return Unavailable for an OSError, ImportError or MemoryError, else UserError."""
    return Unavailable if isinstance(error, OSError | ImportError | MemoryError) else UserError


def merged(faults: Iterable[UserError]) -> UserError:
    """Merge faults into one, without repeated lines: Unavailable if all of them are, else UserError."""
    kind: type[UserError] = Unavailable
    lines: dict[str, None] = {}  # a set that keeps its order
    for fault in faults:
        lines |= dict.fromkeys(fault.lines)
        if not isinstance(fault, Unavailable):  # a permanent fault makes a retry pointless
            kind = UserError
    return kind(*lines)


class Answered(SystemExit):
    """A parser has printed --help. A class of its own, since W&B replaces sys.exit once one of its runs has begun."""


class RunFailed(RuntimeError):
    """A run failed during training; the command ends with one line and exit code 1."""


class NonFinite(RunFailed):
    """The loss or the gradient is not finite."""


class OutOfMemory(RunFailed):
    """The model or a batch did not fit in memory."""


def first_few(words: Iterable[object], most: int = MAX_NAMED) -> str:
    """Join the first items by commas and count the rest: `a, b and 3 more`."""
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
        raise UserError(f'{key}={value}: the shell does not expand this ~; write {key}="$HOME{value[1:]}"')
