"""Conditions on runs: which runs `compare --where` keeps, and what it says of words that it does not understand."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqtrain.compare.entries import Entry, read
from seqtrain.compare.filters import chosen
from seqtrain.errors import UserError
from tests.support import filter_cases


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    return read([filter_cases.runs(tmp_path_factory.mktemp("runs"))])


@pytest.mark.parametrize(("text", "expected"), filter_cases.CASES.items())
def test_where_keeps_the_runs_that_are_so_and_says_what_it_does_not_understand(
    entries: list[Entry], text: str, expected: str
) -> None:
    try:
        found = "".join(entry.path.name for entry in chosen(entries, [text]))
    except UserError as error:
        message = str(error)
        assert message.startswith(f"--where {text}: ")
        found = "!"
        if message.endswith(": none of 4 runs is so"):
            found = ""
        if expected.startswith("!"):
            assert expected[1:] in message
            return
    assert found == expected


def test_filters_must_all_hold(entries: list[Entry]) -> None:
    assert [entry.path.name for entry in chosen(entries, ["seed!=2", "lr>0.003", "status=finished"])] == ["1"]
    with pytest.raises(UserError, match=r"^--where lr>0\.003 model=gpt: none of 4 runs is so$"):
        chosen(entries, ["lr>0.003", "model=gpt"])


def test_a_comparison_in_the_shell_is_told_from_a_redirection(entries: list[Entry], tmp_path: Path) -> None:
    """Unquoted, the shell takes `>0.003` for a file: what is left is `lr`, and the message shows the signs."""
    with pytest.raises(UserError, match=r"^--where lr: expected KEY=VALUE, KEY!=VALUE, or KEY>NUMBER"):
        chosen(entries, ["lr"])
