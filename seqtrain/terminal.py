r"""Terminal output: escape control characters, and handle streams that are closed or full.

A character that could control a terminal, or that the stream's encoding lacks, is written as an escape such as
`\u001b`. JSON that is escaped in this way still parses to the same value.
"""

from __future__ import annotations

import atexit
import codecs
import contextlib
import io
import os
import re
import shlex
import sys
import threading
import unicodedata
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NoReturn, TextIO

# Limit of one printed line; the middle of a longer one is left out.
MAX_CHARACTERS = 10_000

# Name of the codec error handler that escapes characters that an encoding lacks.
ERRORS = "seqtrain_spelled"


class OutputLost(Exception):
    """Standard output is closed, or its disk is full."""


class ReaderGone(OutputLost):
    """The reader of standard output has exited, as `head` does after its last line."""


def tell(line: str) -> None:
    """Print one line for the user to standard error; results go to standard output."""
    print(printable(line), file=sys.stderr, flush=True)


def drop_output() -> None:
    """Discard everything that is not yet written to standard output, also at exit."""
    with contextlib.suppress(OSError, ValueError):  # streams in tests and notebooks have no file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def leave(code: int) -> NoReturn:
    """End the process as the interpreter does, but skip the teardown of modules.

    In four interleaved pairs of `train` with two steps, the teardown took 1.1 times the CPU time.
    """
    threading._shutdown()  # type: ignore[attr-defined] - waits for non-daemon threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # Python gives None where a descriptor is closed
            with contextlib.suppress(OSError, ValueError):  # no reader: `main` has reported that where it matters
                stream.flush()
    os._exit(code)


def printable(text: str, most: int = MAX_CHARACTERS) -> str:
    """Return the text on one line with control characters escaped: an untrusted name must not control a terminal."""
    line = re.sub(r"\s*[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]\s*|\t", " ", text).rstrip()
    if len(line) > most:
        line = f"{line[: most // 2]} ... {line[most // 2 + 5 - most :]}"
    return spelled(line)


def spelled(text: str) -> str:
    """Return the text with control characters escaped, except line ends and tabs."""
    if text.isascii() and text.isprintable():  # the fast path, for nearly all lines
        return text
    return "".join(map(_spelled_character, text))


def pasted(*words: str | Path) -> str:
    """Return a command line that can be pasted into a shell: arguments with spaces, quotes or `$` are quoted.

    A path that begins with `-` gets the prefix `./`, so that no command reads it as an option.
    """
    return " ".join(map(_pasted_word, words))


def _pasted_word(word: str | Path) -> str:
    if isinstance(word, Path) and str(word).startswith("-"):
        return _quoted(f"./{word}")
    return _quoted(str(word))


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Replace standard input, output and error by safe streams inside this context.

    Closed streams are replaced by empty ones. On a terminal, control characters are escaped; on any stream, characters
    that its encoding lacks are escaped. A failed write to standard output raises OutputLost. A failed write to standard
    error is ignored, so that no training ends because its reader has exited. A Python warning is printed on one line.
    """
    # Python gives None for a stream whose descriptor is closed.
    former = sys.stdin, sys.stdout, sys.stderr
    show = warnings.showwarning
    lost = sys.stdout is None
    _open_descriptors()
    sys.stdin = former[0] or _nowhere("r")
    sys.stdout = _Results(former[1] or _nowhere(), lost=lost)  # type: ignore[assignment]
    sys.stderr = _Words(former[2] or _nowhere())  # type: ignore[assignment]
    warnings.showwarning = _tell_warning
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = former
        warnings.showwarning = show


class _Stream:
    """A text stream that delegates everything except writing to the stream `below`."""

    def __init__(self, below: TextIO) -> None:
        self.below = below
        if isinstance(below, io.TextIOWrapper) and below.errors == "strict":
            with contextlib.suppress(ValueError, OSError):
                below.reconfigure(errors=ERRORS)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def write(self, text: str) -> int:
        raise NotImplementedError


class _Results(_Stream):
    """Standard output."""

    def __init__(self, below: TextIO, *, lost: bool) -> None:
        super().__init__(below)
        self.lost = lost  # True: already closed when the command began

    def write(self, text: str) -> int:
        if self.lost:
            raise OutputLost("is closed")
        with _raise_lost():
            # Escaped for a terminal, which obeys control characters; a file or a pipe gets the text unchanged.
            self.below.write(spelled(text) if self.below.isatty() else text)
        return len(text)

    def flush(self) -> None:
        with _raise_lost():
            self.below.flush()


class _Words(_Stream):
    """Standard error."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self.below.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.below.flush()


def _tell_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Print a warning in one line, replacing `warnings.showwarning`: a library may quote untrusted text."""
    tell(f"warning: {message} ({category.__name__})")


@contextlib.contextmanager
def _raise_lost() -> Iterator[None]:
    """Convert write errors of standard output into OutputLost."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGone("has no reader any more") from error
    except OSError as error:
        raise OutputLost(f"cannot be written ({error.strerror})") from error


def _open_descriptors() -> None:
    """Open descriptors 0, 1 and 2 if they are closed; otherwise the next file to be opened would get their number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _nowhere(mode: Literal["r", "w"] = "w") -> TextIO:
    return open(os.devnull, mode, encoding="utf-8")


def _spelled_character(char: str) -> str:
    # Other Unicode spaces are harmless, though Python counts them as not printable.
    if char in "\n\t" or char.isprintable() or unicodedata.category(char) == "Zs":
        return char
    return _code(char)


def _code(char: str) -> str:
    """Return a character as a JSON escape; characters above U+FFFF need two."""
    units = char.encode("utf-16-be", "surrogatepass").hex(" ", bytes_per_sep=2).split()
    return "".join(f"\\u{unit}" for unit in units)


def _quoted(word: str) -> str:
    """Quote an argument for a shell, with control characters in the form `$'...'` of bash and zsh."""
    if spelled(word) == word and not re.search(r"[\n\t]", word):
        return shlex.quote(word)
    # Lone surrogates are bytes that Python could not decode (surrogateescape), unless some are outside that range.
    errors = "surrogateescape"
    if re.search(r"[\ud800-\udc7f\udd00-\udfff]", word):
        errors = "backslashreplace"
    quoted = []
    for byte in word.encode("utf-8", errors):
        plain = 0x20 <= byte < 0x7F and byte not in b"\\'"
        quoted.append(chr(byte) if plain else f"\\x{byte:02x}")
    return f"$'{''.join(quoted)}'"


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_code, error.object[error.start : error.end])), error.end


codecs.register_error(ERRORS, _spell)


def is_unicode(text: str) -> bool:
    """Return True if a text can be encoded as UTF-8; lone surrogates, which stand for invalid bytes, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
