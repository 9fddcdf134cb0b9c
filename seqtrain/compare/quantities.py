"""Numbers in few characters."""

from __future__ import annotations

import math


def quantity(value: float) -> str:
    """A large number in a few characters, such as 1.2M or 3.4e+12."""
    rounded = float(f"{value:.3g}")  # first: 999,700 is a million, not a thousand thousand
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(rounded) < 1e12:
            return f"{rounded / size:.3g}{letter}"
    return f"{rounded:.3g}"


def decimals(size: float, digits: int = 2) -> int:
    """Return the decimal places that show a number of this size with `digits` significant digits; 8 at most."""
    return min(max(digits - 1 - math.floor(math.log10(size or 1.0)), 0), 8)
