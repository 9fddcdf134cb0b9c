"""Conditions on runs, one language for `compare --where` and the page's filter: model=lstm,gr* lr>0.003 seed!=2.

assets/state.js evaluates the same grammar; tests/support/filter_cases.py has the test cases of both.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter, methodcaller
from typing import Any, TypeVar

from seqtrain.compare.entries import Entry, short_names
from seqtrain.errors import UserError, did_you_mean, first_few

T = TypeVar("T")
# Values that every run has in addition to its settings and metrics.
FIGURES: dict[str, Callable[[Entry], Any]] = {
    "name": attrgetter("name"),
    "label": attrgetter("label"),
    "sweep": attrgetter("sweep"),
    "status": attrgetter("status"),
    "reason": attrgetter("reason"),
    "steps": methodcaller("cost", "steps"),
    "tokens": methodcaller("cost", "tokens"),
    "flops": methodcaller("cost", "flops"),
    "seconds": methodcaller("cost", "seconds"),
    "joules": attrgetter("summary.joules"),
    "tokens_per_second": attrgetter("speed"),
    "parameters": attrgetter("parameters"),
    "state": attrgetter("state"),
}

ORDERS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
# The key ends at the first sign; longer signs are tried first.
CONDITION = re.compile(r"([^=<>!]+)(>=|<=|!=|=|>|<)(.*)", re.DOTALL)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
GRAMMAR = {"condition": CONDITION.pattern, "number": NUMBER.pattern}  # for the page
EXPECTED = "expected KEY=VALUE, KEY!=VALUE, or KEY>NUMBER with >, >=, < or <=, such as model=lstm"
MAX_LISTED = 4  # values that a message lists


@dataclass(frozen=True)
class Condition:
    """A condition on a run: a key, a sign and the wanted value."""

    text: str  # as it was typed
    key: str
    sign: str
    wanted: str

    def holds(self, found: Any) -> bool:
        """Return True if a value meets the condition. A value that is not a number is never above or below a number."""
        if self.sign in ORDERS:
            value, bound = as_number(found), as_number(self.wanted)
            return value is not None and bound is not None and ORDERS[self.sign](value, bound)
        return is_one_of(found, self.wanted) == (self.sign == "=")

    def check(self, values: Sequence[Any], option: str) -> None:
        """Raise UserError if the condition orders values but none of the values is a number."""
        if self.sign not in ORDERS:
            return
        listed: dict[str, None] = {}  # each once, in the order of the runs
        for value in values:
            if as_number(value) is not None:
                return
            listed[written(value)] = None
        raise UserError(
            f"{option}{self.text}: {self.key} is not a number in any run ({first_few(listed, MAX_LISTED)}); use = or !="
        )


def parsed(text: str, option: str = "") -> Condition:
    """Parse a condition.

    Args:
        text: the condition, such as `lr>0.003`.
        option: prefix for messages, such as `--where `.

    Raises:
        UserError: the text is not a condition, or orders values without a number.
    """
    found = CONDITION.fullmatch(text)
    if found is None:
        raise UserError(f"{option}{text}: {EXPECTED}")
    key, sign, wanted = (part.strip() for part in found.groups())
    if sign in ORDERS and as_number(wanted) is None:
        raise UserError(f"{option}{text}: a number is expected after {sign}, such as {key}{sign}0.003")
    return Condition(text, key, sign, wanted)


def as_number(value: Any) -> float | None:
    """Return a number, or a string that spells one, as float; None for True, False and other strings."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    # YAML reads 1e-3 as a string.
    if isinstance(value, str) and NUMBER.fullmatch(value):
        return float(value)
    return None


def is_one_of(found: Any, wanted: str) -> bool:
    """Return True if a value matches an entry of a comma-separated list; * matches anything, case is ignored."""
    text, wanted = written(found).lower(), wanted.lower()
    if text == wanted:  # before splitting: a list contains commas itself
        return True
    number = as_number(found)
    for pattern in wanted.split(","):
        if number is not None and number == as_number(pattern):  # 1e-3 is 0.001
            return True
        if re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), text, re.DOTALL):
            return True
    return False


def written(found: Any) -> str:
    """Format a value as the command line writes it."""
    if found is None or isinstance(found, bool):
        return json.dumps(found)
    if isinstance(found, list):
        return str(found).replace("'", "").replace(" ", "")
    return str(found)


def value(entry: Entry, key: str) -> Any:
    """Return a value of FIGURES, a setting by its full key, or a final metric of the compared split; otherwise None."""
    if key in FIGURES:
        return FIGURES[key](entry)
    return entry.settings[key] if key in entry.settings else entry.metric(key)


def words(entries: Sequence[Entry]) -> dict[str, str]:
    """Map each accepted name to its full key: full keys, and last parts that only one setting has."""
    settings: dict[str, None] = {}  # each once, in the order of the runs
    metrics: dict[str, None] = {}
    for entry in entries:
        settings |= dict.fromkeys(entry.settings)
        metrics |= dict.fromkeys(entry.metrics)
    known = {whole: whole for whole in (*settings, *metrics, *FIGURES)}
    for whole, word in short_names(list(settings)).items():
        known.setdefault(word, whole)  # a full key is never read as a short form of another
    return known


def resolved(entries: Sequence[Entry], key: str, option: str) -> str:
    """Return the full key for `key`, which may be its last part only.

    Raises:
        UserError: no run has the key, or several keys end in it. The message begins with `option`.
    """
    known = words(entries)
    if key not in known:
        ends = ", ".join(whole for whole in known if whole.endswith(f".{key}"))
        remedy = f"; say which: {ends}" if ends else did_you_mean(key, known)
        raise UserError(f"{option}: no run has {key}{remedy}")
    return known[key]


def chosen(entries: Sequence[Entry], conditions: Sequence[str]) -> list[Entry]:
    """Return the entries that meet all conditions, such as `model=lstm,gr*`, `lr>0.003` and `seed!=2`.

    Raises:
        UserError: a condition cannot be parsed, or no run could meet it; or no run is left.
    """
    kept = list(entries)
    for text in conditions:
        condition = parsed(text, "--where ")
        # Looked up in all entries: earlier conditions must not decide whether a key is known.
        whole = resolved(entries, condition.key, f"--where {text}")
        condition.check([value(entry, whole) for entry in entries], "--where ")
        kept = [entry for entry in kept if condition.holds(value(entry, whole))]
    if not kept:
        raise UserError(f"--where {' '.join(conditions)}: none of {len(entries)} runs matches")
    return kept


def hidden_by(entries: Sequence[Entry], kept: Sequence[Entry]) -> list[Entry]:
    """Return the finished runs that a choice left out."""
    kept_ids = set(map(id, kept))
    return [entry for entry in entries if entry.finished and id(entry) not in kept_ids]


def ordered(items: Sequence[T], values: Sequence[Any], *, descending: bool) -> list[T]:
    """Return runs or variants sorted by their values; those with None come last in either direction."""
    having, lacking = [], []
    for item, found in zip(items, values, strict=True):
        if found is None:
            lacking.append(item)
        else:
            having.append((_rank(found), item))
    having.sort(key=lambda ranked: ranked[0], reverse=descending)
    return [item for _, item in having] + lacking


def _rank(found: Any) -> tuple[bool, Any]:
    """Return a sort key: numbers come before strings, which cannot be compared with them."""
    is_number = isinstance(found, int | float)
    return not is_number, found if is_number else str(found)
