"""Configurations as plain containers, by dotted path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Unresolved:
    """A marker for a value that is missing or cannot be resolved; it fits no type."""


def below(path: str, key: Any) -> str:
    """Return the dotted path of a key below a path; the top level is the empty path."""
    return f"{path}.{key}" if path else str(key)


def leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield path and value of all leaves below a node of plain containers; an empty map is a leaf."""
    if not isinstance(node, dict) or not node:
        yield path, node
        return
    for key, value in node.items():
        yield from leaves(value, below(path, key))


def flat(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield path and value of every leaf of nested mappings; an empty mapping has none."""
    return ((path, value) for path, value in leaves(values, "") if value != {})


def at(node: Any, path: str) -> Any:
    """Return the value at a path in plain containers; Unresolved if it does not exist."""
    for key in path.split("."):
        if not isinstance(node, dict) or key not in node:
            return Unresolved
        node = node[key]
    return node
