"""Limits of untrusted YAML, checked before it is loaded: number, depth and size of values, with aliases expanded."""

from __future__ import annotations

import re
from typing import Literal

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # eight times as fast where PyYAML has it
MAX_BYTES = 1 << 20
MAX_DEPTH = 100  # the fast loader has no limit, and would crash the process
MAX_VALUES = 1 << 18  # with aliases expanded
MAX_NUMBER_CHARACTERS = 100  # 1:59:59 is a number, parsed in quadratic time
DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?")
NUMBER = re.compile(r"[-+]?[0-9.][-+0-9a-fA-FxXo._:]*")
# Tags that a person may write; with other tags PyYAML fails on values that do not match.
TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "float", "null", "map", "seq")}


def check_plain(text: str, *, written_by: Literal["run", "person"]) -> None:
    """Check YAML against these limits without loading it.

    Args:
        text: The YAML.
        written_by: A run writes neither aliases nor tags; a person may.

    Raises:
        yaml.YAMLError: It is not YAML, or beyond a limit.
    """
    sizes: dict[str, int] = {}  # values below each anchor
    names: list[str | None] = []
    counts = [0]  # values in each collection that is open
    for event in yaml.parse(text, LOADER):
        _check_kind(event, written_by)
        if isinstance(event, yaml.CollectionStartEvent):
            counts.append(1)
            names.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            name, size = names.pop(), counts.pop()
            sizes |= {name: size} if name else {}
            counts[-1] += size
        elif isinstance(event, yaml.AliasEvent):
            counts[-1] += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            counts[-1] += 1
        if len(names) > MAX_DEPTH:
            raise yaml.YAMLError(f"it is nested more than {MAX_DEPTH} deep")
        if counts[-1] > MAX_VALUES:
            raise yaml.YAMLError(f"it holds more than {MAX_VALUES:,} values, with what its aliases stand for")


def _check_kind(event: yaml.Event, written_by: str) -> None:
    """Raise YAMLError for a tag, an alias, a date or a number that is not allowed."""
    tag = getattr(event, "tag", None)
    if tag is not None and (written_by == "run" or tag not in TAGS):
        raise yaml.YAMLError(f"it holds a tag, {tag}")
    if written_by == "run" and isinstance(event, yaml.AliasEvent):
        raise yaml.YAMLError("it holds an alias, which no run writes")
    if not isinstance(event, yaml.ScalarEvent):
        return
    if written_by == "run" and event.implicit[0] and DATE.fullmatch(event.value):
        raise yaml.YAMLError("it holds a date without quotes, which no run writes")
    if event.implicit[0] and len(event.value) > MAX_NUMBER_CHARACTERS and NUMBER.fullmatch(event.value):
        raise yaml.YAMLError(f"it holds a number of {len(event.value):,} characters")
