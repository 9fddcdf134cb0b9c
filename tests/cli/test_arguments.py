"""Laws of what all commands take: a value that begins with a minus is a value, and told to be a bad one."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from types import SimpleNamespace
from typing import cast

import pytest

from seqtrain.cli.arguments import Parser, bounded, finish
from seqtrain.cli.evaluate import _tell
from seqtrain.config.ranges import Range
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run


def sizes(text: str) -> list[float]:
    return [bounded(Range(1, 100, whole=True))(word) for word in text.split(",")]


@pytest.fixture
def parser() -> Parser:
    parser = Parser("shrink", "Makes things smaller.", "seqtrain shrink --sizes 1,2")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--sizes", type=sizes)
    return parser


def test_a_value_below_zero_is_told_its_range_and_not_that_it_is_missing(parser: Parser) -> None:
    for value in ("-1,2,3", "-16,32", "-1", "-1e9", "-.5"):
        with pytest.raises(UserError, match=r"argument --sizes: .* is not a whole number from 1 to 100"):
            parser.parse_args(["--sizes", value])
    for words in (["--sizes"], ["--sizes", "--json"], ["--sizes", "-x"]):
        with pytest.raises(UserError, match="--sizes: expected one argument"):
            parser.parse_args(words)
    assert parser.parse_args(["-1,2", "3"]).words == ["-1,2", "3"]


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_json_of_train_and_evaluate_is_json_also_where_a_figure_is_no_number(
    number: float, capsys: pytest.CaptureFixture[str]
) -> None:
    result = {"metrics": {"loss": number}}
    _tell(result, Namespace(json=True), "validation")
    finish(cast("Run", SimpleNamespace(summary=SimpleNamespace(to_plain=lambda: result))), as_json=True)
    for line in capsys.readouterr().out.splitlines():
        assert json.loads(line, parse_constant=pytest.fail) == {"metrics": {"loss": str(number)}}
