"""Options of `seqtrain predict` for predictors: built-in tasks have flags, other tasks use --option."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from seqtrain.cli.arguments import Parser, bounded
from seqtrain.config.ranges import ANSWER_RANGES, check_own_options
from seqtrain.errors import UserError, did_you_mean
from seqtrain.terminal import is_unicode

# Options of predictors, each with the reason why some predictors do not take it.
NOT_TAKEN = {
    "length": "adds no tokens",
    "temperature": "draws nothing",
    "top_k": "does not choose among tokens",
    "top_p": "draws nothing",
    "greedy": "draws nothing",
    "seed": "draws nothing",
    "stop": "does not go on writing",
    "num_samples": "draws nothing",
    "repetition_penalty": "does not go on writing",
    "beam": "does not search",
    "length_penalty": "does not search",
}


def add_answer_options(parser: Parser) -> None:
    """Add the options of predictors. They have no defaults, so that `given` can tell which were typed."""
    kinds = {name: bounded(allowed) for name, allowed in ANSWER_RANGES.items()}
    # Temperature 0 would mean --greedy.
    drawn = bounded(replace(ANSWER_RANGES["temperature"], others=()))
    parser.add_argument("--length", type=kinds["length"], metavar="N", help="next_token: tokens to add; 200 by default")
    parser.add_argument("--temperature", type=drawn, metavar="T", help="next_token: 0.8 by default")
    parser.add_argument(
        "--top-k",
        type=kinds["top_k"],
        metavar="K",
        help="next_token: draw from the K likeliest tokens only; masked_lm: show K tokens for each mask, 5 by default",
    )
    parser.add_argument(
        "--top-p",
        type=kinds["top_p"],
        metavar="P",
        help="next_token: draw from the likeliest tokens whose probabilities sum to P",
    )
    parser.add_argument("--greedy", action="store_true", help="next_token: always take the likeliest token")
    parser.add_argument("--seed", type=kinds["seed"], help="next_token: 0 by default")
    parser.add_argument(
        "--stop", type=_some, action="append", metavar="TEXT", help="next_token: stop before TEXT; may be repeated"
    )
    parser.add_argument(
        "--num-samples",
        type=kinds["num_samples"],
        metavar="N",
        help="next_token: continuations of each text; 1 by default",
    )
    parser.add_argument(
        "--repetition-penalty",
        type=kinds["repetition_penalty"],
        metavar="F",
        help="next_token: values above 1 make tokens of the text less likely; 1.0 by default",
    )
    parser.add_argument(
        "--score", action="store_true", help="next_token, masked_lm: print the loss, and the surprisal of each token"
    )
    parser.add_argument(
        "--beam", type=kinds["beam"], metavar="N", help="translation: hypotheses kept; the run's by default"
    )
    parser.add_argument(
        "--length-penalty",
        type=kinds["length_penalty"],
        metavar="P",
        help="translation, with a beam above 1: rank hypotheses by log p / length^P",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of a third-party task; its value has the type of its default",
    )


def _some(text: str) -> str:
    if not is_unicode(text) or not text:
        raise argparse.ArgumentTypeError(f"{text!r} is not a text")
    return text


def given(options: argparse.Namespace) -> list[str]:
    """Return the names of the predictor options that were given."""
    names = []
    for name in NOT_TAKEN:
        value = getattr(options, name)
        if value is not None and value is not False:  # 0 is a value
            names.append(name)
    return names


def as_typed(name: str) -> str:
    """Return an option as it is typed: as its own flag, or as --option NAME."""
    if name in NOT_TAKEN:
        return f"--{name.replace('_', '-')}"
    return f"--option {name}"


def refuse_not_taken(names: Iterable[str], takes: Mapping[str, Any], words: str, *, scores: bool) -> None:
    """Raise UserError for flags that a predictor does not take.

    Args:
        names: Options that were given by flags.
        takes: Options of the predictor, with their defaults.
        words: Name of the predictor for the message.
        scores: True if the task can also score.
    """
    known = _listed(takes)
    if scores:
        known = ", ".join([*map(as_typed, takes), "--score"])
    lines = [f"{as_typed(name)}: {words} {NOT_TAKEN[name]}; it takes {known}" for name in names if name not in takes]
    if lines:
        raise UserError(*lines)


def own_options(typed: Iterable[str], takes: Mapping[str, Any], words: str) -> dict[str, Any]:
    """Return the options set by --option, by name.

    Args:
        typed: Each NAME=VALUE.
        takes: Options of the predictor, with their defaults.
        words: Name of the predictor for the message.

    Raises:
        UserError: For each option that the predictor does not take, that differs in type from its default, that has
            its own flag, or that is given twice.
    """
    values: dict[str, Any] = {}
    lines = []
    for text in typed:
        name, equals, value = text.partition("=")
        fault = _fault(name, equals, takes, words)
        if fault is None and name in values:
            fault = "is given twice; leave one of them out"
        if fault is not None:
            lines.append(f"--option {text}: {fault}")
            continue
        values[name] = _parsed(value, takes[name])
    if lines:
        raise UserError(*lines)
    try:
        check_own_options(takes, values)
    except UserError as refused:
        raise UserError(*(f"--option {line}" for line in refused.lines)) from None
    return values


def _fault(name: str, equals: str, takes: Mapping[str, Any], words: str) -> str | None:
    """Return the reason why NAME=VALUE cannot be an option of the predictor, or None."""
    if not name or not equals:
        return "expected NAME=VALUE"
    if name not in takes:
        near = did_you_mean(name, takes)
        if "mean" not in near:  # otherwise it repeats the list
            near = ""
        return f"{words} does not take it; it takes {_listed(takes)}{near}"
    if name in NOT_TAKEN:  # the flag checks the range
        return f"has a flag of its own, {as_typed(name)}"
    return None


def _listed(takes: Mapping[str, Any]) -> str:
    return ", ".join(map(as_typed, takes)) or "none of these options"


def _parsed(text: str, default: Any) -> Any:
    """Parse a value as JSON. Return the string itself if it is not JSON or if the default is a string."""
    if isinstance(default, str):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    # A predictor whose default is a float must not get an int for 3.
    if isinstance(default, float) and type(value) is int:
        return float(value)
    return value
