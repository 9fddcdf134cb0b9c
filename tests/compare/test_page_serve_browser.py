"""A served page in a real Chromium: it takes in what has changed where it stands, and an index leads to each sweep."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqtrain.cli import serve
from seqtrain.cli.serve import Report, Site
from tests.support import fake_runs, pages, shown_runs
from tests.support.chromium import AXIS, HEIGHT, MARKS, ROWS, browser, tab

FIXTURES = (browser, tab)
pytestmark = MARKS

# A section is drawn when it is seen, which may be later than the page is loaded.
LARGEST = "Math.max(...(document.querySelector('#curves-plot').data ?? []).flatMap(trace => trace.x))"
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@contextlib.contextmanager
def served(answers: Report | Site) -> Iterator[serve.Server]:
    """A server at work, in a thread of its own."""
    with serve.listening(answers, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def goes_on(run: Path, step: int, tokens: int, bits: float = 1.25) -> None:
    """A run records a validation."""
    with open(run / "metrics.jsonl", "a") as file:
        file.write(f'{{"step": {step}, "tokens": {tokens}, "seconds": 99.0, "validation/bits_per_byte": {bits}}}\n')


def test_a_page_takes_in_what_a_run_records_without_being_loaded_again_and_keeps_its_choices(
    tab: Any, tmp_path: Path
) -> None:
    run = pages.run(tmp_path / "one", records=30)
    pages.run(tmp_path / "two", records=30, seed=2)
    with served(Report(tmp_path, rest=0.0)) as server:
        reader = tab().open(server.address)
        reader.page.evaluate("window.first = true")
        reader.choose("axis", "tokens")
        reader.filter("seed<3")
        reader.drawn("table")
        box = reader.page.locator("#runs tbody tr", has_text="/two").locator("input")
        box.check()
        box.focus()
        reader.page.evaluate("window.scrollTo(0, 700)")
        assert reader.page.evaluate(LARGEST) == 300 * pages.TOKENS
        goes_on(run, 301, 2_000_000)
        reader.settled(LARGEST, 2_000_000)
        assert reader.page.evaluate("window.first") is True
        assert reader.page.evaluate(AXIS) == "training tokens"
        assert reader.page.input_value("#filter") == "seed<3"
        assert reader.page.evaluate("Math.abs(scrollY - 700)") < 50
        assert reader.page.evaluate("document.activeElement.getAttribute('aria-label')").endswith("/two")
        assert box.is_checked()
        reader.settled("document.querySelector('#about').innerText.includes('live, as of')", True)
        loads = [url for url in reader.asked if url == server.address]
        assert len(loads) == 1
        assert all(url.startswith((server.address, "data:", "blob:")) for url in reader.asked)


def test_news_leave_what_a_reader_zoomed_to_and_bring_the_new_run_into_every_chart_and_reading(
    tab: Any, tmp_path: Path
) -> None:
    pages.run(tmp_path / "one", records=30)
    pages.run(tmp_path / "two", records=30, model="gru")
    with served(Report(tmp_path, rest=0.0)) as server:
        reader = tab().open(server.address).drawn("charts", "curves")
        reader.choose("by", "model")
        box = reader.page.locator("#curves-plot .nsewdrag").first.bounding_box()
        reader.page.mouse.move(box["x"] + 200, box["y"] + 100)
        reader.page.mouse.down()
        reader.page.mouse.move(box["x"] + 500, box["y"] + 250, steps=5)
        reader.page.mouse.up()
        axes = "['xaxis', 'yaxis'].map(axis => document.querySelector('#curves-plot').layout[axis].range.join())"
        reader.settled("document.querySelector('#curves-plot').layout.xaxis.autorange", False)
        zoomed = reader.page.evaluate(axes)
        pages.run(tmp_path / "three", records=40, model="gpt")
        reader.settled("document.querySelector('#curves-legend').innerText.includes('model=gpt')", True)
        reader.drawn("charts")
        places = "[...document.querySelectorAll('#charts-grid .plot')].map(each => each.id)"
        charts = reader.page.evaluate(places)
        assert len(charts) > 2
        for place in ("curves-plot", *charts):
            groups = f"readings.get('{place}').rows.map(row => row[0]).sort().join()"
            reader.settled(groups, "gpt,gru,lstm")
            last = f"Math.max(...document.getElementById('{place}').data.flatMap(trace => trace.x))"
            reader.settled(last, 400)
        assert reader.page.evaluate(axes) == zoomed
        # Another picture is not seen through the old window.
        reader.page.check("#logx")
        reader.settled(f"JSON.stringify({axes}) === {json.dumps(json.dumps(zoomed))}", False)


def test_a_page_of_another_version_is_loaded_again(tab: Any, tmp_path: Path) -> None:
    run = pages.run(tmp_path / "one", records=30)
    report = Report(tmp_path, rest=0.0)
    with served(report) as server:
        reader = tab().open(server.address)
        reader.page.evaluate("data.script = 'another one'")
        with reader.page.expect_event("load"):
            goes_on(run, 301, 2_000_000)
        assert reader.page.evaluate("data.script") != "another one"
        reader.settled(LARGEST, 301)


def test_a_folder_of_sweeps_has_an_index_whose_links_open_each_sweeps_page(tab: Any, tmp_path: Path) -> None:
    fake_runs.sweep(tmp_path / "first <b>", {"lstm": (1.5, 1.51), "gru": (1.6, 1.61)})
    fake_runs.sweep(tmp_path / "deep" / "second", {"gpt": (1.4,)})
    shown_runs.translations(tmp_path / "alone")
    with served(Site(tmp_path, rest=0.0)) as server:
        reader = tab()
        reader.page.goto(server.address)
        rows = "[...document.querySelectorAll('#sweeps tbody tr')]"
        rows += ".map(row => [...row.children].map(cell => cell.textContent))"
        found = {row[0]: [row[2], row[3], row[4], *row[5:7]] for row in reader.page.evaluate(rows)}
        assert found == {
            "first <b>": ["4", "4 finished", "next_token", "lstm", "1.505"],
            "deep/second": ["1", "1 finished", "next_token", "gpt", "1.4"],
        }
        reader.page.set_viewport_size({"width": 400, "height": HEIGHT})
        assert reader.page.evaluate(SIDEWAYS) == 0
        reader.page.fill("#filter", "GPT finished")
        reader.settled("document.querySelectorAll('#sweeps tbody tr').length", 1)
        reader.page.fill("#filter", "")
        fake_runs.run(tmp_path / "deep" / "second" / "001", 1.2, seed=2)
        reader.settled("document.querySelector('#sweeps a[href*=second]').closest('tr').children[2].textContent", "2")
        reader.page.click("text=first <b>")
        reader.drawn("table").settled(ROWS, 4)
        reader.page.go_back()
        reader.page.click("text=All runs in one page")
        reader.settled("data.runs?.length", 8)
