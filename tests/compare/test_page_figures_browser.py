"""The figures of the report in a real Chromium: of which runs they are drawn, and what they say of options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import fake_runs, pages
from tests.support.chromium import AXIS, MARKS, ROWS, address, browser, tab, written

FIXTURES = (address, browser, tab)  # pytest finds them by their names here
pytestmark = MARKS

SHARES = (
    "[...document.querySelectorAll('#importance-table tbody tr')].map(row => row.innerText.split(/\\s*[\\n\\t]\\s*/))"
)
POINTS = "document.querySelector('#costs-plot').data[1].x"


def test_what_the_filter_leaves_is_what_costs_are_drawn_of(tab: Any, address: str) -> None:
    reader = tab().open(address).drawn("costs")
    assert reader.page.locator("#importance").is_hidden()  # no search
    reader.filter("model=lstm,gru seed=1,2")
    reader.drawn("costs").settled(f"{POINTS}.length", 4)
    assert set(reader.page.evaluate(POINTS)) == {pages.SIZES["lstm"], pages.SIZES["gru"]}
    reader.choose("cost", "tokens")
    reader.settled(f"new Set({POINTS}).size", 1)


def test_a_search_shows_the_share_of_each_option_and_what_chance_explains(tab: Any, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    search = {"kind": "optuna", "overrides": [], "config_dirs": [], "trust": []}
    (tmp_path / "s" / "trials").mkdir(parents=True)
    (tmp_path / "s" / "sweep.yaml").write_text(json.dumps(search))
    for number in range(24):
        fake_runs.trial(tmp_path / "s", number, f"seed={number}")
        pages.run(tmp_path / "s" / f"{number:03d}", dim=(64, 256)[number % 2], seed=number, records=10, validations=2)
    reader = tab().open(written(tmp_path, "report.html")).drawn("importance")
    found = reader.page.evaluate("data.groups[0].importance")
    (dim, seed) = reader.page.evaluate(SHARES)
    assert dim == ["model.dim", "2 values", f"{100 * found['options'][0]['share']:.0f} %"]
    assert "no more than chance" in seed
    assert "of the 24 runs that count in the conclusion; the filter" in reader.page.inner_text("#importance-note")


def test_a_variant_that_is_on_the_front_by_chance_alone_is_hollow_and_is_not_said_to_be_on_it(
    tab: Any, tmp_path: Path
) -> None:
    # As good as the cheaper gpt but for chance, while rnn is the cheapest and lstm surely the best.
    values = {"lstm": (1.0, 1.001, 1.002), "gru": (1.5, 1.7, 1.58), "gpt": (1.55, 1.68, 1.6), "rnn": (3.0, 3.001, 3.0)}
    for model, own in values.items():
        for seed, value in enumerate(own, 1):
            size = {"parameters": {"total": pages.SIZES[model]}}
            fake_runs.run(tmp_path / model / str(seed), value, model=model, seed=seed, **size)
    reader = tab().open(written(tmp_path, "report.html")).drawn("costs")
    marks = "document.querySelector('#costs-plot').data[2].marker.symbol.map(mark => mark.endsWith('-open'))"
    standings = reader.page.evaluate("data.groups[0].variants.map(each => [each.name, each.pareto.parameters])")
    expected = {"lstm": "front", "gru": "perhaps", "gpt": "front", "rnn": "front"}
    assert dict(standings) == expected
    assert reader.page.evaluate(marks).count(True) == 1
    note = reader.page.inner_text("#costs-note")
    assert "Certainly on it (large, solid): lstm, gpt, rnn." in note
    assert "perhaps by chance (large, hollow): gru." in note
    assert reader.page.evaluate("document.querySelector('#costs-plot').data[0].x.length") == 4
    reader.filter("model!=gru")
    reader.settled("document.querySelector('#costs-plot').data[0].x.length", 0)
    assert "The line of the front is not drawn" in reader.page.inner_text("#costs-note")
    reader.choose("which", "best")
    reader.settled(
        "document.querySelector('#costs-note').textContent.includes('front is not drawn: it is known')", True
    )


def test_a_page_that_concludes_at_equal_cost_opens_there_and_says_what_is_not(tab: Any, tmp_path: Path) -> None:
    pages.sweep(tmp_path / "sweep", records=60)
    reader = tab().open(written(tmp_path, "report.html", x="seconds", checkpoint="best")).drawn("costs")
    assert reader.page.evaluate(AXIS) == "training time (s)"
    assert [reader.page.input_value(f"#{name}") for name in ("cost", "which")] == ["seconds", "best"]
    assert "not at equal seconds as in the conclusion" in reader.page.inner_text("#costs-note")
    assert "The Pareto front is not drawn: it is at equal seconds" in reader.page.inner_text("#costs-note")


def test_of_more_variants_than_styles_the_rest_is_grey_which_is_said_until_the_filter_leaves_fewer(
    tab: Any, tmp_path: Path
) -> None:
    for number in range(30):
        pages.run(tmp_path / f"{number:02d}", dim=64 + 8 * number, records=20, validations=2)
    reader = tab().open(written(tmp_path, "report.html")).drawn("costs")
    for section in ("curves", "costs"):
        assert "6 of 30 variants are grey" in reader.page.inner_text(f"#{section}-note")
    reader.filter("name=*/0*")  # narrow models: the worst variants
    reader.drawn("costs").settled(f"{POINTS}.length", 10)
    assert "grey" not in reader.page.inner_text("#costs-note")
    assert (
        len(
            set(
                reader.page.evaluate(
                    "data.runs.slice(0, 10).map(run => style(run.variant).color + style(run.variant).dash)"
                )
            )
        )
        == 10
    )


def test_of_a_variant_a_finished_run_is_seen_and_why_others_do_not_count_is_said(tab: Any, tmp_path: Path) -> None:
    pages.run(tmp_path / "00", records=20)
    lost = {"status": "failed", "reason": "the loss is no number", "metrics": {"validation": {"bits_per_byte": 0.1}}}
    for seed in range(2, 14):
        pages.run(tmp_path / f"{seed:02d}", seed=seed, records=20, **lost)
    reader = tab().open(written(tmp_path, "report.html")).drawn("samples")
    assert reader.page.locator("#samples-table thead th").count() == 2
    remarks = reader.page.locator("#groups .apart", has_text="lstm: failed: the loss is no number")
    assert [remarks.count(), remarks.locator("visible=true").count()] == [12, 0]
    reader.page.locator("#groups summary", has_text="12 remarks on runs that are not counted").click()
    assert remarks.locator("visible=true").count() == 10
    reader.page.locator("#groups details details summary", has_text="2 more").click()
    assert remarks.locator("visible=true").count() == 12
    reader.filter("reason=*number")
    reader.drawn("table").settled(ROWS, 12)
