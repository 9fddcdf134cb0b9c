"""The page's filter in a real Chromium: the language of `compare --where`, and what it does not understand is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support import filter_cases
from tests.support.chromium import MARKS, ROWS, browser, tab, written

FIXTURES = (browser, tab)
pytestmark = MARKS

NAMES = "filtered().map(run => run.name.split('/').at(-1)).sort().join('')"
FAULT = "document.querySelector('#filter-fault').textContent"


def test_the_filter_keeps_what_where_keeps_and_refuses_what_it_refuses(tab: Any, tmp_path: Path) -> None:
    reader = tab().open(written(filter_cases.runs(tmp_path), "report.html"))
    wrong = []
    for text, expected in filter_cases.CASES.items():
        names, fault = reader.page.evaluate(
            f"text => {{ chosen.filter = text; tellFilter(); return [{NAMES}, {FAULT}]; }}", text
        )
        if expected.startswith("!"):
            sound = (
                names == "1234" and expected[1:].partition("; did you mean")[0] in fault and fault.startswith("Ignored")
            )
        else:
            sound = names == expected and "Ignored" not in fault and bool(fault) == (not expected)
        if not sound:
            wrong.append((text, names, fault))
    assert wrong == []


def test_a_word_that_is_not_understood_is_said_and_the_others_hold(tab: Any, tmp_path: Path) -> None:
    reader = tab().open(written(filter_cases.runs(tmp_path), "report.html")).drawn("table")
    reader.filter("dmi=16 seed!=2 lr > 0.003")
    reader.settled(ROWS, 2)
    said = reader.page.inner_text("#filter-fault")
    assert said == "Ignored: dmi=16: no run has dmi"
    assert reader.page.get_attribute("#filter", "aria-invalid") == "true"
    reader.filter("seed=2 dim=64")
    reader.settled(ROWS, 0)
    assert reader.page.inner_text("#filter-fault") == (
        "None of 4 runs matches. Runs that match each word alone: seed=2 1, dim=64 1."
    )
    reader.filter("")
    reader.settled(ROWS, 4)
    assert not reader.page.is_visible("#filter-fault")
