"""The packages of others whose code a config may name, as given to the command or the Python call with `trust`."""

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
    # Never added to what is trusted already: two calls in one notebook must not lend each other their trust.
    before = _packages.set(tuple(packages))
    try:
        yield
    finally:
        _packages.reset(before)


def trust_from_here(packages: Iterable[str]) -> None:
    """Trust these packages, and no others, to the end of the surrounding block of `trusting`."""
    _packages.set(tuple(packages))


def trust_words() -> list[str]:
    """Return the words that make another command trust the same packages."""
    return [word for package in trusted() for word in ("--trust", package)]
