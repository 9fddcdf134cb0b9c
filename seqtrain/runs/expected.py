"""Checks of values read from an untrusted file: names, types, shapes, finite numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from seqtrain.runs.identity import shown


class Mismatch(ValueError):
    """An entry of a checkpoint differs from what the run would have written; says which, and how."""


def alike(found: Any, expected: Any, place: str) -> None:
    """Raise Mismatch unless both have equal names, lengths, types and shapes. Where None is expected, all is accepted.

    Args:
        found: Value read from the file.
        expected: Value as this run would have written it.
        place: Name of the entry, for the message.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        odd = sorted(map(str, found.keys() ^ expected.keys()))
        if odd:
            raise Mismatch(f"{place}: {odd[0]} is {'missing' if odd[0] in map(str, expected) else 'unknown'}")
        for key, below in expected.items():
            alike(found[key], below, f"{place}: {key}")
    elif isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        if len(found) != len(expected):
            raise Mismatch(f"{place}: {len(found)} entries, and this run has {len(expected)}")
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            alike(one, other, f"{place}: {number}")
    elif isinstance(expected, Tensor) and isinstance(found, Tensor):
        if (found.shape, found.dtype) != (expected.shape, expected.dtype):
            raise Mismatch(f"{place} is {_kind(found)}, and this run has {_kind(expected)}")
        # Fused optimizers ignore strides: they read a tensor as contiguous memory.
        if not found.is_contiguous() and found.stride() != expected.stride():
            raise Mismatch(f"{place} does not lie in memory as it does in this run")
    elif expected is not None and _kind(found) != _kind(expected):
        raise Mismatch(f"{place} is {_kind(found)}, and this run has {_kind(expected)}")


def finite(found: Any, place: str) -> None:
    """Raise Mismatch unless every number in `found` is finite, at any depth."""
    if isinstance(found, dict):
        for key, below in found.items():
            finite(below, f"{place}[{key!r}]")
    elif isinstance(found, list | tuple | set):
        for number, below in enumerate(found):
            finite(below, f"{place}[{number}]")
    elif not (bool(torch.isfinite(found).all()) if isinstance(found, Tensor) else _is_finite(found)):
        raise Mismatch(f"{place} holds what is no number (nan or infinite)")


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of {'x'.join(map(str, value.shape)) or 'one number'}"
    return "a number" if type(value) in (int, float) else type(value).__name__


def in_range(value: Any, low: float, high: float, place: str) -> None:
    """Raise Mismatch unless the value is an int from `low` to `high`.

    Args:
        value: Value read from the file.
        low: The least value.
        high: The largest value.
        place: Name of the entry, for the message.
    """
    if type(value) is not int or not low <= value <= high:
        raise Mismatch(f"{place} is {shown(value)}, and this run can have {low:.0f} to {high:.0f}")
