"""The figures of the report in a real Chromium: of which runs they are drawn, and what they say of options."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.support import pages
from tests.support.chromium import AXIS, MARKS, ROWS, Reader, address, browser, tab, written

FIXTURES = (address, browser, tab)  # pytest finds them by their names here
pytestmark = MARKS

SHARES = "[...document.querySelectorAll('#importance-bars .row')].map(row => row.innerText.split(/\\s*\\n\\s*/))"
POINTS = "document.querySelector('#costs-plot').data[1].x"


def test_what_the_filter_leaves_is_what_costs_and_options_are_drawn_of(tab: Any, address: str) -> None:
    reader = tab().open(address).drawn("costs", "importance")
    assert reader.page.evaluate(SHARES)[0][0] == "model"
    assert "over the 12 finished runs of this group" in reader.page.inner_text("#importance-note")
    reader.filter("model=lstm,gru seed=1,2")
    reader.drawn("costs").settled(f"{POINTS}.length", 4)
    assert set(reader.page.evaluate(POINTS)) == {pages.SIZES["lstm"], pages.SIZES["gru"]}
    reader.choose("cost", "tokens")
    reader.settled(f"new Set({POINTS}).size", 1)
    reader.filter("model=lstm")
    alone = [["model", "cannot be told from 1 value"], ["seed", "cannot be told from 3 values"]]
    reader.drawn("importance").settled(SHARES, alone)
    assert "over the 3 finished runs that the filter leaves" in reader.page.inner_text("#importance-note")


def test_a_page_that_concludes_at_equal_cost_opens_there_and_says_what_is_not(tab: Any, tmp_path: Path) -> None:
    pages.sweep(tmp_path / "sweep", records=60)
    reader = tab().open(written(tmp_path, "report.html", x="seconds", checkpoint="best")).drawn("costs", "importance")
    assert reader.page.evaluate(AXIS) == "training time (s)"
    assert [reader.page.input_value(f"#{name}") for name in ("cost", "which")] == ["seconds", "best"]
    for section in ("costs", "importance"):
        assert "not at equal seconds as in the conclusion" in reader.page.inner_text(f"#{section}-note")


def test_of_more_variants_than_styles_the_rest_is_grey_which_is_said_until_the_filter_leaves_fewer(
    tab: Any, tmp_path: Path
) -> None:
    for number in range(30):
        pages.run(tmp_path / f"{number:02d}", dim=64 + 8 * number, records=20, validations=2)
    reader = tab().open(written(tmp_path, "report.html")).drawn("costs", "parallel")
    for section in ("curves", "costs", "parallel"):
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
    reader.page.locator("#groups summary", has_text="12 remarks on runs that do not count").click()
    assert remarks.locator("visible=true").count() == 10
    reader.page.locator("#groups details details summary", has_text="2 more").click()
    assert remarks.locator("visible=true").count() == 12
    reader.filter("reason=*number")
    reader.drawn("table").settled(ROWS, 12)


# -- the share of the variance that goes with an option ----------------------------------------------------------


def shares(reader: Reader, cases: list[tuple[list[Any], list[float]]]) -> list[float | None]:
    """What the page says of each case: the levels of an option, and the values that came out."""
    return reader.page.evaluate("cases => cases.map(([levels, values]) => shareOfVariance(levels, values))", cases)


def test_the_share_of_an_option_is_epsilon_squared(tab: Any, address: str) -> None:
    stats = pytest.importorskip("scipy.stats")
    chance, cases, expected = random.Random(0), [], []
    for count in (2, 3, 5):
        levels = [chance.randrange(count) for _ in range(40)]
        values = [level / 2 + chance.gauss(0, 1) for level in levels]
        f = stats.f_oneway(
            *([v for own, v in zip(levels, values, strict=True) if own == level] for level in range(count))
        )
        effect, noise = count - 1, 40 - count
        expected.append(effect * (f.statistic - 1) / (effect * f.statistic + noise))
        cases.append((levels, values))
    assert shares(tab().open(address), cases) == pytest.approx(expected)
    assert min(expected) > 0


def test_an_option_that_decides_has_all_and_one_that_cannot_be_told_has_no_share(tab: Any, address: str) -> None:
    chance = random.Random(0)
    models = ["lstm", "gpt"] * 30
    values = [(2.0 if model == "lstm" else 1.0) + chance.gauss(0, 0.01) for model in models]
    cases = [(models, values), ([*range(3)] * 20, values), ([*range(60)], values), (models, [1.0] * 60)]
    all_of_it, none_of_it, alone, flat = shares(tab().open(address), cases)
    assert (all_of_it or 0) > 0.99
    assert none_of_it == pytest.approx(0, abs=0.05)
    assert alone is flat is None  # each value occurs once; and nothing differs


def test_chance_alone_gives_an_option_no_share_however_many_levels_it_has(tab: Any, address: str) -> None:
    chance = random.Random(1)
    cases = [([place % 12 for place in range(24)], [chance.gauss(0, 1) for _ in range(24)]) for _ in range(300)]
    found = [share or 0.0 for share in shares(tab().open(address), cases)]
    assert sum(share == 0 for share in found) > 100  # plain eta squared is about a half here, and never nothing
    assert sum(found) / len(found) < 0.2


def test_a_number_with_many_values_is_cut_into_bins_of_equally_many_and_one_with_few_is_not(
    tab: Any, address: str
) -> None:
    cases = [[place / 7 for place in range(40)], [1, 2, 3] * 9, ["a", *range(30)]]
    bins, few, mixed = tab().open(address).page.evaluate("cases => cases.map(levels)", cases)
    assert bins == [place // 10 for place in range(40)]
    assert (len(set(few)), len(set(mixed))) == (3, 31)
