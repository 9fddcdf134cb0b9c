"""What something is refused with, for tables of faults that one test goes through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seqtrain.errors import UserError


def refusal(act: Callable[..., Any], *args: Any, **options: Any) -> str:
    """Call `act`; return the one line that it is refused with, or `not refused`."""
    try:
        act(*args, **options)
    except UserError as error:
        (line,) = error.lines
        assert "\n" not in line
        return line
    return "not refused"
