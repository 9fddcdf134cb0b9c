"""Laws of `make results`: rows of pages show the figures on record, and what moved is named."""

from __future__ import annotations

import json

from benchmarks import results
from tests.conftest import REPOSITORY

KEPT = json.loads(results.RECORD.read_text("utf-8"))
ENTRIES = {entry["name"]: entry for entry in results.entries()}


def test_a_row_shows_the_figures_on_record() -> None:
    assert KEPT.keys() <= ENTRIES.keys()
    for name, entry in ENTRIES.items():
        row = results.row_of(entry, (REPOSITORY / entry["page"]).read_text("utf-8"))
        if name in KEPT:
            shown = [results.shown(template, KEPT[name]["figures"]) for template in entry["shows"]]
            assert [figure for figure in shown if figure not in row] == [], name
        else:  # measured by hand, before there was a record
            assert entry.get("by_name"), f"{name} has no record: make results RESULTS={name}"


def test_a_figure_is_named_where_seeds_do_not_explain_its_move_and_put_into_its_row_alone() -> None:
    entry = {"name": "a", "row": "`x`", "shows": ["| {seconds:.0f} |", "at {100*loss:.1f} ± {100*loss_sd:.1f}"]}
    before, after = {"loss": [0.50, 0.51], "seconds": [5.0]}, {"loss": [0.52, 0.53], "seconds": [9.0]}
    assert list(results.moved(entry, before, after, {"loss": 0.01})) == []
    assert list(results.moved(entry, before, after, {"loss": 0.001})) == [
        "a: loss 0.505 -> 0.525 (20.0 standard errors)"
    ]
    assert list(results.moved(entry, before, before, {})) == []
    page = "| `x` | 5 | at 50.5 ± 0.7 |\n| `y` | 5 | at 50.5 ± 0.7 |\n"
    assert results.updated(page, entry, after) == "| `x` | 9 | at 52.5 ± 0.7 |\n| `y` | 5 | at 50.5 ± 0.7 |\n"
