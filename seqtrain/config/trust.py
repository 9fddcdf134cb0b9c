"""Third-party packages whose code a config may name, as given with `trust` to the command or the Python call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar

_packages: ContextVar[tuple[str, ...]] = ContextVar("trusted packages", default=())


def trusted() -> tuple[str, ...]:
    """Return the packages that are trusted now; empty unless the user named some."""
    return _packages.get()


@contextlib.contextmanager
def trusting(packages: Iterable[str]) -> Iterator[None]:
    """Trust these packages, and no others, until the block ends."""
    # Replaces the trusted packages instead of adding to them: one call in a notebook must not extend another's trust.
    before = _packages.set(tuple(packages))
    try:
        yield
    finally:
        _packages.reset(before)


def trust_from_here(packages: Iterable[str]) -> None:
    """Trust these packages, and no others, until the end of the surrounding `trusting` block."""
    _packages.set(tuple(packages))


def trust_words() -> list[str]:
    """Return the command-line arguments that make another command trust the same packages."""
    return [word for package in trusted() for word in ("--trust", package)]
