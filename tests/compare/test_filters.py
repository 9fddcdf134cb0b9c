"""Conditions on runs: which runs `compare --where` keeps, and what it says of words that it does not understand."""

from __future__ import annotations

import pytest

from seqtrain.compare.entries import Entry, read
from seqtrain.compare.filters import chosen
from seqtrain.errors import UserError
from tests.support import filter_cases


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    return read([filter_cases.runs(tmp_path_factory.mktemp("runs"))])


def answer(entries: list[Entry], text: str) -> str:
    """Return the names of the runs that are so, or the message without the option."""
    try:
        return "".join(entry.path.name for entry in chosen(entries, [text]))
    except UserError as error:
        return str(error).removeprefix(f"--where {text}: ")


def test_where_keeps_the_runs_that_are_so_and_says_what_it_does_not_understand(entries: list[Entry]) -> None:
    for text, expected in filter_cases.CASES.items():
        found = answer(entries, text)
        if expected.startswith("!"):
            assert expected[1:] in found, text
        else:
            assert found == (expected or "none of 4 runs is so"), text


def test_filters_must_all_hold(entries: list[Entry]) -> None:
    assert [entry.path.name for entry in chosen(entries, ["seed!=2", "lr>0.003", "status=finished"])] == ["1"]
    with pytest.raises(UserError, match=r"^--where lr>0\.003 model=gpt: none of 4 runs is so$"):
        chosen(entries, ["lr>0.003", "model=gpt"])
