"""Which cases of a parametrised test `make test` runs; `make test-long` runs the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def some_long(cases: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """The cases, of which all but the quick ones are marked as long."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.long) for case in cases]
