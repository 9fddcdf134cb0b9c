"""The report in a real Chromium: it draws, obeys, fits, and asks no network."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import pages
from tests.support.chromium import AXIS, MARKS, ROWS, address, browser, tab, written

MOST_BYTES = 10_000_000

FIXTURES = (address, browser, tab)  # pytest finds them by their names here
pytestmark = MARKS

LARGEST = "Math.max(...document.querySelector('#curves-plot').data.flatMap(trace => trace.x))"
FARTHEST = (
    "Math.max(...[...document.querySelectorAll('#charts-grid .plot')].flatMap(each => each.data.flatMap(one => one.x)))"
)
TRACES = "document.querySelector('#curves-plot').data.length"
LINES = "document.querySelectorAll('#curves-plot .scatterlayer path.js-line').length"
NAMES = "new Set(document.querySelector('#curves-plot').data.flatMap(trace => trace.text ?? []).filter(Boolean)).size"
SECTIONS = ("curves", "costs", "table", "samples", "pictures", "diff", "environment")


def test_all_is_drawn_with_no_error_and_nothing_is_asked_of_a_network(tab: Any, address: str) -> None:
    reader = tab().open(address).drawn(*SECTIONS)
    assert reader.page.evaluate(LINES) >= 12  # of four variants: a band, a mean and thin lines
    assert reader.page.locator("#costs-plot .scatterlayer .point").count() == 12 + 4
    assert reader.page.locator("#groups li").count() >= 3
    assert reader.page.locator("#samples-table .said").count() == 4
    assert {url.partition(":")[0] for url in reader.asked} <= {"file", "data", "blob"}
    assert [url for url in reader.asked if url.startswith("file:")] == [address]


def test_the_axis_and_the_metric_are_switched_and_a_reload_keeps_them(tab: Any, address: str) -> None:
    reader = tab().open(address)
    assert reader.page.evaluate(LARGEST) == 600
    for axis, words, largest in (
        ("tokens", "training tokens", 600 * pages.TOKENS),
        ("flops", "training FLOPs", 6 * pages.SIZES["lstm"] * 600 * pages.TOKENS),
    ):
        reader.choose("axis", axis)
        reader.settled(AXIS, words)
        assert reader.page.evaluate(LARGEST) == pytest.approx(largest)
        reader.drawn("charts").settled(FARTHEST, largest)
    reader.choose("metric", "train/accuracy")
    reader.settled("document.querySelector('#curves-plot').layout.yaxis.title.text", "accuracy, train")
    reader.page.check("#logx")
    reader.settled("document.querySelector('#curves-plot').layout.xaxis.type", "log")
    reader.page.reload()
    reader.drawn("curves")
    assert reader.page.evaluate(AXIS) == "training FLOPs"
    assert reader.page.input_value("#metric") == "train/accuracy"
    assert reader.page.is_checked("#logx")


def test_what_the_filter_leaves_is_in_the_table_and_in_the_curves(tab: Any, address: str) -> None:
    reader = tab().open(address).drawn("table")
    assert reader.page.evaluate(ROWS) == 12
    for words, count in {
        **{"model=lstm": 3, "model=lstm,gp* seed=1": 2, "gru": 3, "status=failed": 0, "seed=1": 4},
        **{"dim=16": 0, "model.dim=256 !": 0, "sweep/00": 10},
    }.items():
        reader.filter(words)
        reader.drawn("table").settled(ROWS, count)
        reader.drawn("curves").settled(NAMES, count)
        assert reader.page.inner_text("#count") == f"{count} of 12 runs"


def test_choosing_a_group_shows_its_runs_and_the_reason_is_said(tab: Any, address: str) -> None:
    reader = tab().open(address).drawn("table")
    assert "other validation text" in reader.page.inner_text("#groups article:nth-child(2)")
    reader.choose("group", "1")
    reader.settled(ROWS, 1)
    assert reader.page.inner_text("#runs tbody th").endswith("/unlike")


def test_a_variant_is_hidden_by_the_keyboard_and_comes_back(tab: Any, address: str) -> None:
    reader = tab().open(address)
    before = reader.page.evaluate(TRACES)
    chip = reader.page.locator("#variants button").first
    chip.focus()
    reader.page.keyboard.press("Space")
    reader.settled(TRACES, before - 4)  # band, runs, mean, and the mean in training
    assert chip.get_attribute("aria-pressed") == "false"
    reader.page.keyboard.press("Enter")
    reader.settled(TRACES, before)


def test_a_heading_sorts_the_table_both_ways(tab: Any, address: str) -> None:
    reader = tab().open(address).drawn("table")
    column = "[...document.querySelectorAll('#runs tbody tr')].map(row => Number(row.children[6].textContent))"
    heading = reader.page.locator("#runs thead th").nth(6).locator("button")
    assert "final" in heading.inner_text()
    for sign in (1, -1):
        heading.click()
        values = reader.page.evaluate(column)
        assert values == sorted(values, key=lambda value: sign * value)
        assert len(set(values)) > 4


def test_light_and_dark_follow_the_system_and_the_reader(tab: Any, address: str) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = tab(color_scheme="light").open(address), tab(color_scheme="dark").open(address)
    colours = [light.page.evaluate(ground), dark.page.evaluate(ground)]
    assert colours[0] != colours[1]
    ink = "document.querySelector('#curves-plot').layout.font.color"
    before = light.page.evaluate(ink)
    light.page.click("#theme")
    light.settled(ground, colours[1])
    light.settled(f"{ink} !== '{before}'", True)


def test_500_runs_of_1000_points_are_under_10_mb_and_drawn_in_four_times_the_time_of_one(
    tab: Any, tmp_path: Path
) -> None:
    for number in range(500):
        model = tuple(pages.FLOORS)[number % 4]
        seed, dim = number // 4 % 3 + 1, 64 + 8 * (number // 12)
        pages.run(tmp_path / f"{number:03d}", model=model, seed=seed, dim=dim, records=1000)
    address = written(tmp_path, "report.html")
    assert (tmp_path / "report.html").stat().st_size < MOST_BYTES
    pages.run(tmp_path / "alone" / "000", records=1000)
    alone = written(tmp_path / "alone", "report.html")
    pairs = [(opening(tab(), address), opening(tab(), alone)) for _ in range(4)]
    reader = pairs[-1][0][1]
    assert reader.page.evaluate(LINES) > 20
    assert "Curves are thinned to 200 points" in reader.page.inner_text("#curves-note")
    assert min(many / one for (many, _), (one, _) in pairs) < 4


def opening(reader: Any, address: str) -> tuple[float, Any]:
    """Seconds until the curves of a page are drawn, and its reader."""
    began = time.monotonic()
    reader.page.goto(address, wait_until="commit")
    reader.drawn("curves")
    return time.monotonic() - began, reader
