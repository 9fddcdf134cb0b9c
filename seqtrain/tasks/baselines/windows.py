"""Stretches of a series that is read block by block, so that memory does not grow with its length."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

import numpy as np
from jaxtyping import Float

Block = tuple[Hashable, Float[np.ndarray, "_ C"]]
"""The id of a series, and the next rows of it; blocks of one series stand one after another, in the order of time."""

MAX_VALUES = 2**21  # numbers of windows that are in memory at once: 16 MiB in float64


def windows(blocks: Iterable[Block], length: int, *, skip: int = 0) -> Iterator[Float[np.ndarray, "_ C {length}"]]:
    """Yield all windows of `length` rows in order, some at a time; none reaches from one series into another.

    Args:
        blocks: The series.
        length: Rows of a window.
        skip: Rows at the start of each series that no window has.
    """
    current: Hashable = object()  # equal to no id
    tail = np.empty((0, 0))
    to_skip = 0
    for series, values in blocks:
        # The tail of one series in front of another would be a window that never was.
        if series != current:
            current, tail, to_skip = series, values[:0], skip
        rest = values[to_skip:]
        to_skip -= len(values) - len(rest)
        joined = np.concatenate([tail, rest])
        if len(joined) >= length:
            views = np.lib.stride_tricks.sliding_window_view(joined, length, axis=0)
            step = max(MAX_VALUES // (length * joined.shape[1]), 1)
            for begin in range(0, len(views), step):
                yield views[begin : begin + step]
        # The last rows come again: a window may begin in them and end in the next block.
        tail = joined[max(len(joined) - length + 1, 0) :]
