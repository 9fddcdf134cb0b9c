"""Conditions on runs, one language for `compare --where` and the page's filter: model=lstm,gr* lr>0.003 seed!=2.

assets/filter.js says the same in JavaScript; tests/support/filter_cases.py holds cases that both are held to.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from seqtrain.errors import UserError, first_few

ORDERS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
# The key ends at the first sign; longer signs are tried first.
CONDITION = re.compile(r"(?P<key>[^=<>!]+)(?P<sign>>=|<=|!=|=|>|<)(?P<wanted>.*)", re.DOTALL)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
EXPECTED = "expected KEY=VALUE, KEY!=VALUE, or KEY>NUMBER with >, >=, < or <=, such as model=lstm"
MAX_TOLD = 4  # values that a message lists


@dataclass(frozen=True)
class Condition:
    """A condition on a run: a key, a sign and the wanted value."""

    text: str  # as it was typed
    key: str
    sign: str
    wanted: str

    def holds(self, found: Any) -> bool:
        """Return True if a value meets the condition. A value that is not a number is never above or below one."""
        if self.sign in ORDERS:
            value, bound = as_number(found), as_number(self.wanted)
            return value is not None and bound is not None and ORDERS[self.sign](value, bound)
        return is_one_of(found, self.wanted) == (self.sign == "=")

    def check(self, values: Sequence[Any], option: str) -> None:
        """Raise UserError if the condition orders values but none of the values is a number."""
        if self.sign not in ORDERS:
            return
        told: dict[str, None] = {}  # each once, in the order of the runs
        for value in values:
            if as_number(value) is not None:
                return
            told[written(value)] = None
        raise UserError(
            f"{option}{self.text}: {self.key} is no number in any run, but {first_few(told, MAX_TOLD)}; use = or !="
        )


def parsed(text: str, option: str = "") -> Condition:
    """The condition that a word states.

    Args:
        option: what stands before the word in a message, such as `--where `.

    Raises:
        UserError: it states none, or asks for an order without a number.
    """
    found = CONDITION.fullmatch(text)
    if found is None:
        raise UserError(f"{option}{text}: {EXPECTED}")
    key, sign, wanted = found["key"].strip(), found["sign"], found["wanted"].strip()
    if sign in ORDERS and as_number(wanted) is None:
        raise UserError(f"{option}{text}: a number is expected after {sign}, such as {key}{sign}0.003")
    return Condition(text, key, sign, wanted)


def as_number(value: Any) -> float | None:
    """Return the number that a value is, or that a text spells; None for True, False and other text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    # YAML takes 1e-3 for a text.
    if isinstance(value, str) and NUMBER.fullmatch(value):
        return float(value)
    return None


def is_one_of(found: Any, wanted: str) -> bool:
    """Return True if a value matches an entry of a comma-separated list; * matches anything, case is ignored."""
    text, wanted = written(found).lower(), wanted.lower()
    if text == wanted:  # first: a list holds commas itself
        return True
    number = as_number(found)
    for pattern in wanted.split(","):
        if number is not None and number == as_number(pattern):  # 1e-3 is 0.001
            return True
        if re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), text, re.DOTALL):
            return True
    return False


def written(found: Any) -> str:
    """A value as the command line writes it."""
    if found is None or isinstance(found, bool):
        return json.dumps(found)
    if isinstance(found, list):
        return str(found).replace("'", "").replace(" ", "")
    return str(found)
