"""What the user can mend: an error that ends a command with one clear line and exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from seqtrain.terminal import printable

# How the names of options end that are paths.
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

MIN_ALIKE = 0.6  # share of letters in common from which on a word may be another, mistyped
MAX_LISTED = 24  # words; more of them would hide the message
MAX_NAMED = 6  # words that a message names of a list without a bound
MAX_LINE = 293  # characters, 300 with `error: `; the middle of a longer message, such as that of a path, is left out


class UserError(Exception):
    """One or more things that the user can mend; each line names what, where and the remedy."""

    def __init__(self, *lines: str) -> None:
        self.lines = tuple(printable(line, MAX_LINE) for line in lines)
        super().__init__("\n".join(self.lines))


class Unavailable(UserError):
    """A fault of the surroundings, not of what was asked for: it may go away by itself.

    A file, room on the disk, the network, memory, a device, a package or a permission is wanting. A trial of a sweep
    that ends so has failed and can be tried again; every other UserError refuses it.
    """


def kind_of(error: BaseException) -> type[UserError]:
    """The kind of fault that an error of other code is: one of the surroundings where the system raised it."""
    return Unavailable if isinstance(error, OSError | ImportError | MemoryError) else UserError


def merged(faults: Iterable[UserError]) -> UserError:
    """One fault that says what all of these say, each line once; Unavailable where none of them is of another kind."""
    kind: type[UserError] = Unavailable
    lines: dict[str, None] = {}  # a set that keeps its order
    for fault in faults:
        lines |= dict.fromkeys(fault.lines)
        if not isinstance(fault, Unavailable):  # one that stays makes trying again pointless
            kind = UserError
    return kind(*lines)


class RunFailed(RuntimeError):
    """A run that failed in itself: ends a command with one clear line and exit code 1."""


class NonFinite(RunFailed):
    """The loss or the gradient is no longer a number."""


class OutOfMemory(RunFailed):
    """A batch, or the model, did not fit."""


def first_few(words: Iterable[object], most: int = MAX_NAMED) -> str:
    """Join the first words by commas and count the others: `a, b and 3 more`."""
    names = list(map(str, words))
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for the nearest known word, or the sorted list of a few, or nothing."""
    words = sorted(set(known))
    near = difflib.get_close_matches(word, words, n=1, cutoff=MIN_ALIKE)
    if near:
        return f"; did you mean {near[0]}?"
    if not words or len(words) > MAX_LISTED:
        return ""
    return f"; known: {', '.join(words)}"


def refuse_tilde(key: str, value: object) -> None:
    """UserError for a path that begins with a `~` which the shell has left as it is: a folder of that name is
    nobody's."""
    if not (isinstance(value, str) and key.endswith(PATHS)):
        return
    value = value.strip("'\"")
    if value == "~" or value.startswith("~/"):
        raise UserError(f'{key}={value}: no shell expands this ~; write {key}="$HOME{value[1:]}"')
