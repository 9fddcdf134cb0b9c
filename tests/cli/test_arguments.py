"""Laws of what all commands print as JSON."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from types import SimpleNamespace
from typing import cast

import pytest

from seqtrain.cli.arguments import finish
from seqtrain.cli.evaluate import _tell
from seqtrain.runs.directory import Run


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_json_of_train_and_evaluate_is_json_also_where_a_figure_is_no_number(
    number: float, capsys: pytest.CaptureFixture[str]
) -> None:
    result = {"metrics": {"loss": number}}
    _tell(result, Namespace(json=True), "validation")
    finish(cast("Run", SimpleNamespace(summary=SimpleNamespace(to_plain=lambda: result))), as_json=True)
    for line in capsys.readouterr().out.splitlines():
        assert json.loads(line, parse_constant=pytest.fail) == {"metrics": {"loss": str(number)}}
