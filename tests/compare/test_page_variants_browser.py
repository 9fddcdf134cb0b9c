"""The table of variants, the first answers and the page of one run alone, in a real Chromium."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import fake_runs, pages
from tests.support.chromium import HEIGHT, MARKS, ROWS, address, browser, tab, written

FIXTURES = (address, browser, tab)  # pytest finds them by their names here
pytestmark = MARKS

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)"
NAMES = "[...document.querySelectorAll('#variants-table button span')].map(each => each.textContent)"
HEADS = "[...document.querySelectorAll('#variants-table thead th')].map(each => each.textContent)"
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Where marks of a kind stand, in pixels from the left end of the axis.
PLACES = """kind => [...document.querySelectorAll('#variants-table tbody tr')].map(row => {
    const mark = row.querySelector('svg.interval ' + kind);
    if (!mark) return null;
    const box = mark.getBBox();
    return kind === '.reach' ? [box.x, box.x + box.width] : [box.x + box.width / 2];
}).filter(Boolean)"""
BASELINES = {"unigram": {"bits_per_byte": 4.61}, "bigram": {"bits_per_byte": 2.2}}
# Holds the lock of a run, as the process that trains it does.
HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def unfinished(path: Path, status: str, **summary: Any) -> Path:
    """A run that stands in the middle."""
    run = pages.run(path, records=30, status=status, max_steps=600, **summary)
    known = json.loads((run / "summary.json").read_text())
    for name in ("metrics", "best", "steps", "tokens", "flops", "seconds", "tokens_per_second"):
        del known[name]
    (run / "summary.json").write_text(json.dumps(known))
    return run


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """A run that another process trains."""
    run = unfinished(tmp_path / "runs" / "now", "running", seed=9)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield run
        holder.terminate()


def test_variants_stand_best_first_and_their_intervals_where_their_numbers_say(tab: Any, address: str) -> None:
    reader = tab().open(address)
    variants = reader.page.evaluate("data.groups[0].variants")
    assert reader.page.evaluate(NAMES) == [each["name"] for each in variants]
    means = [each["mean"] for each in variants]
    assert means == sorted(means)
    marks = [place[0] for place in reader.page.evaluate(PLACES, ".mean")]
    reaches = reader.page.evaluate(PLACES, ".reach")
    assert len(marks) == len(reaches) == 4
    pixels = (marks[-1] - marks[0]) / (means[-1] - means[0])
    for variant, mark, reach in zip(variants, marks, reaches, strict=True):
        assert mark == pytest.approx(marks[0] + pixels * (variant["mean"] - means[0]), abs=0.5)
        for end, place in zip(variant["interval"], reach, strict=True):
            assert place == pytest.approx(marks[0] + pixels * (end - means[0]), abs=0.5)
    assert reader.page.locator("#variants-table circle.seed").count() == 12


def test_a_row_says_by_how_much_it_is_worse_and_whether_that_is_significant(tab: Any, tmp_path: Path) -> None:
    values = {"lstm": [0.91, 0.92, 0.93], "gru": [0.905, 0.91, 0.93], "gpt": [0.70, 0.71, 0.72]}
    fake_runs.sweep(
        tmp_path / "sweep",
        values,
        metric="accuracy",
        config={"task": {"_target_": "seqtrain.tasks.sentiment.Sentiment"}},
    )
    reader = tab().open(written(tmp_path, "report.html"))
    rows = reader.page.locator("#variants-table tbody tr")
    assert "reference" in rows.nth(0).inner_text()
    close, far = rows.nth(1).inner_text(), rows.nth(2).inner_text()
    assert "worse" in close
    assert "no significant difference" in close
    assert "0.210 worse" in far  # where more is better, less is worse
    assert "no significant difference" not in far
    assert "\nsignificant\n" in far


def test_of_sixty_trials_of_one_seed_twelve_are_seen_until_all_are_asked_for_and_none_has_an_interval(
    tab: Any, tmp_path: Path
) -> None:
    for number in range(60):
        pages.run(tmp_path / f"{number:02d}", dim=64 + 7 * number, records=20, validations=4)
    reader = tab().open(written(tmp_path, "report.html"))
    assert len(reader.page.evaluate(NAMES)) == 12
    assert reader.page.locator("#variants-table .reach").count() == 0
    assert not any(
        "difference" in head or "interval" in head.replace("interval plot", "") for head in reader.page.evaluate(HEADS)
    )
    assert "the order may be due to chance" in reader.page.inner_text("#variants-note")
    more = reader.page.locator("#variants-more")
    assert more.inner_text() == "Show all 60 variants"
    more.focus()
    reader.page.keyboard.press("Enter")
    assert len(reader.page.evaluate(NAMES)) == 60
    assert more.get_attribute("aria-expanded") == "true"
    places = [place[0] for place in reader.page.evaluate(PLACES, "circle.seed")]
    assert places == sorted(places)
    assert len(places) == 60
    reader.filter("name=*/0*")
    reader.settled(f"{NAMES}.length", 10)
    assert "10 of 60 variants pass the filter" in reader.page.inner_text("#variants-note")


def test_a_variant_far_off_and_a_wide_interval_leave_room_for_the_others_and_arrows_say_so(
    tab: Any, tmp_path: Path
) -> None:
    values = {"lstm": [1.50, 1.52], "gru": [1.51, 1.54], "gpt": [1.56, 1.58], "rnn": [90.0, 95.0]}
    fake_runs.sweep(tmp_path / "sweep", values)
    reader = tab().open(written(tmp_path, "report.html"))
    marks = [place[0] for place in reader.page.evaluate(PLACES, ".mean")]
    assert len(marks) == 3  # the fourth is an arrow
    assert marks[2] - marks[0] > 40
    last = reader.page.locator("#variants-table tbody tr").nth(3)
    assert last.locator("[data-beyond='1']").count() >= 1
    assert "92.5" in last.inner_text()  # its numbers are not cut
    assert "Arrow: the value is beyond the axis" in reader.page.inner_text("#variants-note")


def test_baselines_are_rows_in_order_below_the_variants(tab: Any, tmp_path: Path) -> None:
    pages.sweep(tmp_path / "sweep", seeds=2, records=20, baselines={"validation": BASELINES})
    reader = tab().open(written(tmp_path, "report.html"))
    names = reader.page.locator("#variants-table .baselines th[scope=row]").all_inner_texts()
    assert [name.split("\n")[0] for name in names] == ["bigram", "unigram"]
    assert "2.2000" in reader.page.locator("#variants-table .baselines tr").nth(1).inner_text()


def test_the_first_screen_answers_what_a_reader_asks_first(tab: Any, tmp_path: Path) -> None:
    pages.sweep(tmp_path / "sweep", records=60)
    reader = tab().open(written(tmp_path, "report.html"))
    asked = reader.page.locator("#groups dt").all_inner_texts()
    assert asked == ["Which is best?", "Is it sure?", "What did it cost?", "What differs?", "Is it overfitting?"]
    for place in range(5):
        box = reader.page.locator("#groups dd").nth(place).bounding_box()
        assert box["y"] + box["height"] < HEIGHT
    box = reader.page.locator("#variants-table tbody tr").nth(3).bounding_box()
    assert box["y"] + box["height"] < HEIGHT  # and the table of four variants stands in it as well


def test_one_run_has_the_page_of_several_with_one_row_and_no_verdict(tab: Any, tmp_path: Path) -> None:
    pages.run(tmp_path / "run", records=60, baselines={"validation": BASELINES}, splits=["test"])
    reader = tab().open(written(tmp_path, "report.html"))
    assert reader.page.inner_text("#conclusion-title") == "This run"
    words = reader.page.inner_text("#groups")
    assert "better than" in words
    assert "there is only one variant" in words
    assert "beats" not in words
    assert reader.page.locator("#variants-table tbody:not(.baselines) tr").count() == 1
    assert not reader.page.locator("#costs").is_visible()
    assert reader.page.locator("#variants-table .baselines [data-beyond]").count() == 0  # all stand on the axis


def test_a_running_run_shows_how_far_it_is_and_a_failed_one_why_and_what_goes_on(tab: Any, running: Path) -> None:
    folder = running.parent
    pages.run(folder / "done", records=30)
    failed = unfinished(folder / "lost", "failed", seed=3, reason="the disk is full")
    reader = tab().open(written(folder, "report.html")).drawn("table")
    rows = reader.page.locator("table.going tbody tr")
    first, second = rows.nth(0).inner_text(), rows.nth(1).inner_text()
    assert "failed: the disk is full" in first
    assert f"seqtrain resume {failed}" in first
    assert "step 300 of 600 (50%)" in second
    assert "of training left" in second
    assert "of training left" not in first
    assert "resume" not in second
    assert rows.nth(1).locator("progress").evaluate("bar => bar.value") == 0.5
    assert "no: 1 finished, 1 failed, 1 running" in reader.page.inner_text("#groups")
    assert reader.page.evaluate(ROWS) == 3


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_is_never_wider_than_the_window(tab: Any, running: Path, width: int) -> None:
    pages.sweep(running.parent / "sweep", records=20, baselines={"validation": BASELINES})
    unfinished(running.parent / "lost", "failed", seed=4, reason="word" * 60)
    reader = tab(viewport={"width": width, "height": HEIGHT}).open(written(running.parent, "report.html"))
    reader.page.click("#legend summary")
    assert "Pareto front" in reader.page.inner_text("#legend")
    reader.drawn("curves", "costs", "table", "samples", "diff", "environment")
    assert reader.page.evaluate(SIDEWAYS) == 0
    for section in ("curves", "costs"):
        box = reader.page.locator(f"#{section}-plot .plot-container").bounding_box()
        assert 0.85 * width - 64 < box["width"] <= width


def test_names_and_reasons_of_strangers_are_shown_and_do_nothing(tab: Any, tmp_path: Path) -> None:
    words = {
        "baseline_words": {HOSTILE: {"knows": HOSTILE}},
        "baselines": {"validation": {HOSTILE: {"bits_per_byte": 3.0}}},
        "versions": {HOSTILE: HOSTILE},
    }
    path = pages.run(tmp_path / "a", records=20, config={"init_from": HOSTILE, "model.kind": HOSTILE}, **words)
    pages.run(tmp_path / "b", records=20, config={"model.kind": "b"}, **words)
    unfinished(tmp_path / HOSTILE.replace("/", ""), "failed", reason=HOSTILE, trust=[HOSTILE])
    pages.sample(path, 99_999, HOSTILE)
    reader = tab().open(written(tmp_path, "report.html")).drawn("table", "samples", "diff", "environment")
    for place in ("#variants-table .baselines", "table.going", "#samples-table"):
        assert HOSTILE in reader.page.locator(place).inner_text()
    assert reader.page.locator("main img, main script").count() == 0
