"""The report in a real Chromium (Debian's, driven by Playwright): it draws, obeys, fits, and asks no network."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqtrain.commands import serve
from seqtrain.comparison import page as report
from seqtrain.comparison.entries import read
from seqtrain.comparison.verdict import conclusions
from tests import made, pages

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)"
HEIGHT = 900
LIMIT = 20_000  # milliseconds that anything may take
MOST_BYTES, MOST_SECONDS = 10_000_000, 3.0

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; as root: apt-get install chromium"),
]


class Reader:
    """A tab that remembers what went wrong in it, and everything that it asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.wrong: list[str] = []
        self.asked: list[str] = []
        page.set_default_timeout(LIMIT)
        page.on("console", lambda message: self.wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("dialog", lambda dialog: (self.wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self.asked.append(request.url))

    def open(self, address: str) -> Reader:
        self.page.goto(address)
        return self.drawn("curves")

    def drawn(self, *sections: str) -> Reader:
        """Scrolls to the sections, and waits until each is drawn."""
        for section in sections:
            self.page.locator(f"#{section}").scroll_into_view_if_needed()
            self.page.wait_for_selector(f"#{section}[data-drawn]")
        return self

    def settled(self, expression: str, value: Any) -> None:
        """Waits until a JavaScript expression has this value."""
        limit = time.monotonic() + LIMIT / 1000
        while (found := self.page.evaluate(expression)) != value:
            assert time.monotonic() < limit, f"{expression} is {found}, not {value}"
            time.sleep(0.02)

    def choose(self, name: str, value: str) -> None:
        self.page.select_option(f"#{name}", value)

    def filter(self, words: str) -> None:
        self.page.fill("#filter", words)


AXIS = "document.querySelector('#curves-plot').layout.xaxis.title.text"
LARGEST = "Math.max(...document.querySelector('#curves-plot').data.flatMap(trace => trace.x))"
TRACES = "document.querySelector('#curves-plot').data.length"
LINES = "document.querySelectorAll('#curves-plot .scatterlayer path.js-line').length"
NAMES = "new Set(document.querySelector('#curves-plot').data.flatMap(trace => trace.text ?? []).filter(Boolean)).size"
ROWS = "document.querySelectorAll('#runs tbody tr').length"
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SECTIONS = ("curves", "costs", "parallel", "importance", "table", "samples", "diff", "environment")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="there is no Playwright: pip install playwright")
    with api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """`tab()` is a new reader; options are those of a browser's context. What went wrong in any of them fails."""
    contexts, readers = [], []

    def new(**options: Any) -> Reader:
        options.setdefault("viewport", {"width": 1280, "height": HEIGHT})
        contexts.append(browser.new_context(**options))
        readers.append(Reader(contexts[-1].new_page()))
        return readers[-1]

    yield new
    for context in contexts:
        context.close()
    assert [wrong for reader in readers for wrong in reader.wrong] == []


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report on four models with three seeds each, and on one run that is not like them."""
    folder = tmp_path_factory.mktemp("runs")
    pages.sweep(folder / "sweep", records=60)
    pages.sample(folder / "sweep" / "001", 999_999, "the newest of all")
    pages.run(folder / "unlike", records=60, hashes={**made.HASHES, "validation": "e" * 32})
    return written(folder, "report.html")


def written(folder: Path, name: str, **options: Any) -> str:
    report.write(folder / name, conclusions(read([folder]), **options), title="a report", **options)
    return f"file://{folder / name}"


@contextlib.contextmanager
def served(folder: Path) -> Iterator[serve.Server]:
    """A server of the runs below a folder."""
    with serve.listening(serve.Report(folder, rest=0.0), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_all_is_drawn_with_no_error_and_nothing_is_asked_of_a_network(tab: Any, address: str) -> None:
    reader = tab().open(address).drawn(*SECTIONS)
    assert reader.page.evaluate(LINES) >= 12  # of four arms: a band, a mean and thin lines
    assert reader.page.locator("#costs-plot .scatterlayer .point").count() == 12 + 4
    assert reader.page.locator("#groups li").count() >= 3
    assert reader.page.locator("#samples-cards pre").count() == 4
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
    reader = tab().open(written(tmp_path, "report.html", x="seconds", which="best")).drawn("costs", "importance")
    assert reader.page.evaluate(AXIS) == "training time (s)"
    assert [reader.page.input_value(f"#{name}") for name in ("cost", "which")] == ["seconds", "best"]
    for section in ("costs", "importance"):
        assert "not at equal seconds as in the conclusion" in reader.page.inner_text(f"#{section}-note")


def test_of_more_arms_than_styles_the_rest_is_grey_which_is_said_until_the_filter_leaves_fewer(
    tab: Any, tmp_path: Path
) -> None:
    for number in range(30):
        pages.run(tmp_path / f"{number:02d}", dim=64 + 8 * number, records=20, validations=2)
    reader = tab().open(written(tmp_path, "report.html")).drawn("costs", "parallel")
    for section in ("curves", "costs", "parallel"):
        assert "6 of 30 arms are grey" in reader.page.inner_text(f"#{section}-note")
    reader.filter("name=*/0*")  # narrow models: the worst arms
    reader.drawn("costs").settled(f"{POINTS}.length", 10)
    assert "grey" not in reader.page.inner_text("#costs-note")
    assert (
        len(set(reader.page.evaluate("data.runs.slice(0, 10).map(run => style(run.arm).color + style(run.arm).dash)")))
        == 10
    )


def test_of_an_arm_a_finished_run_is_seen_and_why_others_do_not_count_is_said(tab: Any, tmp_path: Path) -> None:
    pages.run(tmp_path / "00", records=20)
    lost = {"status": "failed", "reason": "the loss is no number", "metrics": {"validation": {"bits_per_byte": 0.1}}}
    for seed in range(2, 14):
        pages.run(tmp_path / f"{seed:02d}", seed=seed, records=20, **lost)
    reader = tab().open(written(tmp_path, "report.html")).drawn("samples")
    assert reader.page.locator("#samples-cards h3").all_inner_texts() == [f" {tmp_path.name}/00"]
    remarks = reader.page.locator("#groups .apart", has_text="lstm: failed: the loss is no number")
    assert [remarks.count(), remarks.locator("visible=true").count()] == [12, 10]
    reader.page.click("#groups summary")
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


# -- groups, arms, rows, looks -----------------------------------------------------------------------------------


def test_choosing_a_group_shows_its_runs_and_the_reason_is_said(tab: Any, address: str) -> None:
    reader = tab().open(address).drawn("table")
    assert "other validation text" in reader.page.inner_text("#groups article:nth-child(2)")
    reader.choose("group", "1")
    reader.settled(ROWS, 1)
    assert reader.page.inner_text("#runs tbody th").endswith("/unlike")


def test_an_arm_is_hidden_by_the_keyboard_and_comes_back(tab: Any, address: str) -> None:
    reader = tab().open(address)
    before = reader.page.evaluate(TRACES)
    chip = reader.page.locator("#arms button").first
    chip.focus()
    reader.page.keyboard.press("Space")
    reader.settled(TRACES, before - 3)
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


def test_ticking_a_run_shows_its_newest_sample_and_its_configuration(tab: Any, address: str) -> None:
    reader = tab().open(address).drawn("table", "samples")
    reader.page.locator("#runs tbody tr", has_text="sweep/001").locator("input").check()
    reader.drawn("samples", "diff")
    reader.settled("document.querySelector('#samples-cards').textContent.includes('the newest of all')", True)
    summary = reader.page.locator("#configs summary", has_text="sweep/001")
    summary.click()
    assert "seqtrain.models.recurrent.LSTM" in reader.page.locator("#configs details[open] pre").inner_text()


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


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_is_never_wider_than_the_window(tab: Any, address: str, width: int) -> None:
    reader = tab(viewport={"width": width, "height": HEIGHT}).open(address).drawn(*SECTIONS)
    assert reader.page.evaluate(SIDEWAYS) == 0
    for section in ("curves", "costs"):
        box = reader.page.locator(f"#{section}-plot .plot-container").bounding_box()
        assert 0.85 * width - 64 < box["width"] <= width


def test_names_of_strangers_are_shown_and_do_nothing(tab: Any, tmp_path: Path) -> None:
    path = pages.run(
        tmp_path / HOSTILE.replace("/", ""), records=30, config={"init_from": HOSTILE, "model.kind": "<i>a</i>"}
    )
    pages.run(tmp_path / "other", records=30, config={"model.kind": "b"}, versions={HOSTILE: HOSTILE}, reason=HOSTILE)
    pages.sample(path, 99_999, HOSTILE)
    reader = tab().open(written(tmp_path, "report.html")).drawn(*SECTIONS)
    assert HOSTILE in reader.page.locator("#samples-cards").inner_text()
    assert "<i>a</i>" in reader.page.locator("#parallel-plot").inner_text()  # Plotly reads a little HTML
    assert reader.page.locator("main img").count() == 0


def test_500_runs_of_1000_points_are_under_10_mb_and_drawn_within_3_s(tab: Any, tmp_path: Path) -> None:
    for number in range(500):
        model = tuple(pages.FLOORS)[number % 4]
        seed, dim = number // 4 % 3 + 1, 64 + 8 * (number // 12)
        pages.run(tmp_path / f"{number:03d}", model=model, seed=seed, dim=dim, records=1000)
    address = written(tmp_path, "report.html")
    assert (tmp_path / "report.html").stat().st_size < MOST_BYTES
    took = []
    for _ in range(3):  # a machine that does something else meanwhile says nothing of the page
        reader, began = tab(), time.monotonic()
        reader.page.goto(address, wait_until="commit")
        reader.drawn("curves")
        took.append(time.monotonic() - began)
    assert reader.page.evaluate(LINES) > 20
    assert "Curves thinned to 200 points" in reader.page.inner_text("#curves-note")
    assert min(took) < MOST_SECONDS, f"{took}, at a load of {os.getloadavg()[0]:.1f}"


def test_a_served_page_reloads_itself_where_a_run_goes_on_and_keeps_its_choices(tab: Any, tmp_path: Path) -> None:
    run = pages.run(tmp_path / "one", records=30)
    pages.run(tmp_path / "two", records=30, seed=2)
    with served(tmp_path) as server:
        reader = tab().open(server.address)
        reader.choose("axis", "tokens")
        reader.drawn("table")
        reader.page.evaluate("window.scrollTo(0, 700)")
        assert reader.page.evaluate(LARGEST) == 300 * pages.TOKENS
        record = '{"step": 301, "tokens": 2000000, "seconds": 99.0, "validation/bits_per_byte": 1.25}\n'
        with reader.page.expect_navigation(), open(run / "metrics.jsonl", "a") as file:
            file.write(record)
            file.flush()
        reader.page.wait_for_selector("#curves[data-drawn]")
        assert reader.page.evaluate(LARGEST) == 2_000_000
        reader.settled("Math.abs(scrollY - 700) < 50", True)
        assert reader.page.evaluate(AXIS) == "training tokens"
        assert all(url.startswith((server.address, "data:", "blob:")) for url in reader.asked)
