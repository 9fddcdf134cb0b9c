"""The charts of the report in a real Chromium: several at once, smoothed, clipped, grouped, read at one x."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from seqtrain.runs.directory import METRICS
from tests.support import pages
from tests.support.chromium import MARKS, Reader, address, browser, tab, written

FIXTURES = (address, browser, tab)  # pytest finds them by their names here
pytestmark = MARKS

TITLES = "[...document.querySelectorAll('#charts-grid h3')].map(each => each.textContent)"
DRAWN = "document.querySelector('#curves-plot').data"
RANGE = "document.querySelector('#curves-plot').layout.yaxis.range"
POINTS = "document.querySelector('#costs-plot').data[1]"
NOTE, CLIPPED = "#curves-note", "#curves-clipped"


def changed(run: Path, change: Any) -> None:
    """Rewrites the records of a run; `change` is given each of them and its place."""
    lines = []
    for place, line in enumerate((run / METRICS).read_text().splitlines()):
        record = json.loads(line)
        change(record, place)
        lines.append(json.dumps(record) + "\n")
    (run / METRICS).write_text("".join(lines))


def settled(reader: Reader) -> Reader:
    """Waits until all that was chosen is drawn."""
    reader.page.wait_for_timeout(50)
    reader.page.evaluate("last")
    return reader


def smooth(reader: Reader, percent: float) -> None:
    reader.page.fill("#smooth", str(percent))
    settled(reader)


# -- several charts ----------------------------------------------------------------------------------------------


def test_the_grid_opens_with_the_usual_charts_and_those_of_the_machine(tab: Any, tmp_path: Path) -> None:
    for seed in (1, 2):
        run = pages.run(tmp_path / str(seed), seed=seed, records=20)
        changed(run, lambda record, place: record.update({"system/cpu_percent": 90 + place, "system/memory_mb": 800}))
    reader = tab().open(written(tmp_path, "report.html")).drawn("charts")
    assert reader.page.evaluate(TITLES) == [
        "loss (nats a token), validation",
        "gradient norm",
        "learning rate",
        "tokens per second",
        "CPU (%; 100: one core is busy), system",
        "memory (MB), system",
    ]
    empty = "[...document.querySelectorAll('#charts-grid .plot')].filter(each => !each.data.length).length"
    assert reader.page.evaluate(empty) == 0


def test_charts_are_added_and_removed_and_a_reload_keeps_them(tab: Any, address: str) -> None:
    reader = tab().open(address).drawn("charts")
    before = reader.page.evaluate(TITLES)
    reader.choose("adding", "train/accuracy")
    reader.settled(TITLES, [*before, "accuracy, train"])
    reader.page.click("[aria-label='Remove the chart of learning rate']")
    kept = [title for title in [*before, "accuracy, train"] if title != "learning rate"]
    reader.settled(TITLES, kept)
    reader.page.click("[aria-label='log y of gradient norm']")
    reader.page.reload()
    reader.drawn("curves", "charts").settled(TITLES, kept)
    place = (
        "[...document.querySelectorAll('#charts-grid figure')].find(each => each.dataset.metric === 'gradient_norm')"
    )
    assert reader.page.evaluate(f"{place}.querySelector('.plot').layout.yaxis.type") == "log"
    for _ in kept:
        reader.page.click("#charts-grid [aria-label^='Remove']")
        settled(reader)
    reader.page.reload()
    reader.drawn("curves", "charts").settled(TITLES, [])
    assert reader.page.is_visible("#charts-empty")
    reader.page.click("#usual")
    reader.settled(TITLES, before)


def test_training_stands_dotted_beside_validation_until_it_is_left_out(tab: Any, address: str) -> None:
    dotted = f"{DRAWN}.filter(each => each.line.dash === 'dot' && each.line.width < 1.5 && !each.marker).length"
    reader = tab().open(address)
    assert reader.page.evaluate(dotted) == 4
    assert "Thin dotted lines: the same metric on training" in reader.page.inner_text(NOTE)
    reader.page.check("#alone")
    reader.settled(dotted, 0)
    assert "training" not in reader.page.inner_text(NOTE)


# -- smoothing ---------------------------------------------------------------------------------------------------


def smoothed(reader: Reader, x: list[float], y: list[float], half: float, weights: list[float] | None = None) -> list:
    line = {"x": x, "y": y, "weights": weights or [1] * len(x)}
    return reader.page.evaluate("([line, half]) => smoothed(line, half, null).y", [line, half])


def test_smoothing_keeps_what_is_level_and_pulls_no_end_to_zero_or_to_one_point(tab: Any, address: str) -> None:
    reader, x = tab().open(address), [float(place) for place in range(100)]
    assert smoothed(reader, x, [3.0] * 100, 10) == pytest.approx([3.0] * 100)
    # One wrong point at the start is a small part of what follows at once.
    late = smoothed(reader, x, [100.0] + [1.0] * 99, 10)
    assert late[0] < 10
    assert late[40] < 1.5
    # Two points far apart are left as they are.
    assert smoothed(reader, [0, 1000], [5.0, 1.0], 10) == pytest.approx([5.0, 1.0])
    # What rises evenly is not drawn behind itself.
    assert smoothed(reader, x, x, 5)[50] == pytest.approx(50, abs=0.01)


def test_runs_that_record_ten_times_as_often_are_smoothed_alike(tab: Any, address: str) -> None:
    chance, reader = random.Random(0), tab().open(address)
    often = [place / 10 for place in range(10_001)]
    curve = [4 * math.exp(-each / 300) + chance.gauss(0, 0.1) for each in often]
    many = smoothed(reader, often, curve, 40)
    few = smoothed(reader, often[::10], curve[::10], 40)
    worst = max(abs(one - other) for one, other in zip(many[::10], few, strict=True))
    assert worst < 0.08  # by counting points, the first would be smoothed a tenth as much: 0.3


def test_a_smoothed_line_of_a_thinned_curve_is_the_mean_of_all_records_not_of_their_extremes(
    tab: Any, tmp_path: Path
) -> None:
    run = pages.run(tmp_path / "one", records=2000)
    changed(run, lambda record, place: record.update({"gradient_norm": 100.0 if place % 50 == 7 else 1.0}))
    norms = [json.loads(line)["gradient_norm"] for line in (run / METRICS).read_text().splitlines()]
    reader = tab().open(written(tmp_path, "report.html"))
    reader.choose("metric", "gradient_norm")
    reader.choose("outliers", "shown")
    smooth(reader, 20)
    middle = reader.page.evaluate(f"{DRAWN}.at(-1).y.at(100)")
    assert middle == pytest.approx(sum(norms) / len(norms), rel=0.15)  # that of the extremes is 50


def test_what_is_smoothed_says_so_and_the_raw_lines_stay_faint(tab: Any, address: str) -> None:
    reader = tab().open(address).drawn("charts")
    raw = reader.page.evaluate(f"{DRAWN}.filter(each => each.text)")
    means = reader.page.evaluate(f"{DRAWN}.filter(each => each.marker).map(each => each.y)")
    assert "Smoothed" not in reader.page.inner_text(NOTE)
    smooth(reader, 5)
    assert "Smoothed: a point is the mean of the points around it, with weights that halve every 30 of x" in (
        reader.page.inner_text(NOTE)
    )
    assert reader.page.inner_text("#smooth-value") == "halves every 30"
    faint = reader.page.evaluate(f"{DRAWN}.filter(each => each.text)")
    ours = [each["y"] for each in raw if each["line"].get("dash") != "dot"]
    assert [each["y"] for each in faint if each["line"]["width"] == 1] == ours
    assert reader.page.evaluate(f"{DRAWN}.filter(each => each.marker).map(each => each.y)") != means
    reader.page.reload()
    reader.drawn("curves")
    assert reader.page.input_value("#smooth") == "5"


# -- outliers ----------------------------------------------------------------------------------------------------


def outside(reader: Reader) -> int:
    """How many drawn points of single runs lie outside the picture."""
    code = """async () => {
      const [low, high] = document.querySelector('#curves-plot').layout.yaxis.range;
      const found = await lines(shownRuns(), chosen.metric, chosen.axis);
      return found.flatMap(each => each.y).filter(y => y < low || y > high).length;
    }"""
    return reader.page.evaluate(code)


def test_values_that_hide_the_rest_are_clipped_and_counted_and_come_back(tab: Any, tmp_path: Path) -> None:
    pages.sweep(tmp_path, records=60)

    def spike(record: dict[str, Any], place: int) -> None:
        if place == 30 and "validation/bits_per_byte" not in record:
            record["train/bits_per_byte"] = 1e6 + place

    changed(tmp_path / "003", spike)
    reader = tab().open(written(tmp_path, "report.html"))
    reader.choose("metric", "train/bits_per_byte")
    settled(reader)
    counted = outside(reader)
    assert counted >= 1
    words = reader.page.inner_text(CLIPPED)
    assert words.startswith(f"Clipped: {counted} of 720 drawn points, of ")
    assert words.endswith("outside the plot (1,000,000).")
    assert reader.page.evaluate(RANGE)[1] < 100
    reader.choose("outliers", "shown")
    reader.settled(f"document.querySelector('{CLIPPED}').textContent", "")
    assert outside(reader) == 0
    assert reader.page.evaluate(RANGE)[1] > 1e6


def test_a_picture_in_which_all_is_seen_is_not_clipped(tab: Any, address: str) -> None:
    reader = tab().open(address).drawn("charts")
    for metric in ("validation/bits_per_byte", "train/loss", "lr", "gradient_norm", "tokens_per_second"):
        reader.choose("metric", metric)
        settled(reader)
        assert reader.page.inner_text(CLIPPED) == ""
        assert outside(reader) == 0


def test_what_is_clipped_drags_no_smoothed_line(tab: Any, tmp_path: Path) -> None:
    run = pages.run(tmp_path / "one", records=100)
    changed(run, lambda record, place: record.update({"gradient_norm": 1e9 if place == 50 else 1 + place / 1000}))
    reader = tab().open(written(tmp_path, "report.html"))
    reader.choose("metric", "gradient_norm")
    smooth(reader, 5)
    assert max(reader.page.evaluate(f"{DRAWN}.at(-1).y.filter(y => y !== null)")) < 2
    assert "and are left out of smoothed lines" in reader.page.inner_text(CLIPPED)


# -- groups ------------------------------------------------------------------------------------------------------


def test_runs_are_grouped_by_any_key_and_a_band_over_unlike_runs_is_called_no_interval(
    tab: Any, tmp_path: Path
) -> None:
    for place, (model, dim) in enumerate((model, dim) for model in ("lstm", "gru") for dim in (128, 256, 512)):
        run = {"name": None, "label": "wide" if dim == 512 else "slim", "tags": ["a"] if model == "gru" else []}
        pages.run(tmp_path / str(place), model=model, dim=dim, records=30, config={"run": run})
    reader = tab().open(written(tmp_path, "report.html"))
    keys = reader.page.evaluate("[...document.querySelectorAll('#by option')].map(each => each.value)")
    assert {"variant", "model", "model.dim", "label", "tag"} <= set(keys)
    assert "confidence interval" not in reader.page.inner_text(NOTE)
    reader.choose("by", "model.dim")
    settled(reader)
    legend = "[...document.querySelectorAll('#curves-legend span')].map(each => each.textContent.trim())"
    assert reader.page.evaluate(legend) == ["dim=128 (2 runs)", "dim=256 (2 runs)", "dim=512 (2 runs)"]
    assert reader.page.evaluate(f"{DRAWN}.filter(each => each.fill).length") == 3
    note = reader.page.inner_text(NOTE)
    assert "Coloured and grouped by dim." in note
    assert "a band is the range of what was tried, not the spread of seeds, and not a confidence interval" in note
    for key, words in {
        "label": ["label=slim (4 runs)", "label=wide (2 runs)"],
        "tag": ["tag=a (3 runs)", "tag=none (3 runs)"],
    }.items():
        reader.choose("by", key)
        reader.settled(legend, words)


# -- one x, all groups -------------------------------------------------------------------------------------------


def test_one_pointer_reads_all_variants_at_its_x_and_marks_it_in_all_charts(tab: Any, address: str) -> None:
    reader = tab().open(address).drawn("charts", "curves")
    box = reader.page.locator("#curves-plot .nsewdrag").bounding_box()
    low, high = reader.page.evaluate("document.querySelector('#curves-plot').layout.xaxis.range")
    at = 300.0  # a step that every run validated at
    left = box["x"] + box["width"] * (at - low) / (high - low)
    reader.page.mouse.move(left, box["y"] + box["height"] / 2)
    crosses = "[...document.querySelectorAll('.cross')].filter(each => !each.hidden).length"
    assert reader.page.evaluate(crosses) == 1 + len(reader.page.evaluate(TITLES))
    rows = reader.page.evaluate("[...document.querySelectorAll('#reading tr')].map(row => row.innerText.split('\\t'))")
    assert len(rows) == 4
    said = [float(row[2].split()[0]) for row in rows]
    assert all("(mean of 3)" in row[2] for row in rows)
    assert all(row[3].startswith("training ") for row in rows)
    code = f"{DRAWN}.filter(each => each.marker).map(each => each.y[each.x.indexOf({at:.0f})])"
    assert said == pytest.approx(sorted(reader.page.evaluate(code)), abs=0.02)  # best first; a pixel is a step
    # Arrow keys read it, too.
    reader.page.focus("#curves-plot")
    reader.page.keyboard.press("ArrowRight")
    first = reader.page.inner_text("#reading p")
    reader.page.keyboard.press("ArrowRight")
    assert reader.page.locator("#reading tr").count() == 4
    assert reader.page.inner_text("#reading p") != first


def test_a_mean_over_fewer_runs_than_a_variant_has_is_said_where_it_is_read(tab: Any, tmp_path: Path) -> None:
    pages.run(tmp_path / "long", records=60)
    pages.run(tmp_path / "short", seed=2, records=30, status="running")
    reader = tab().open(written(tmp_path, "report.html"))
    words = reader.page.evaluate("readAt('curves-plot', 500).map(row => amount(row.value))")
    assert len(words) == 1
    assert words[0].endswith("(1 of 2 runs reach this x)")


# -- baselines ---------------------------------------------------------------------------------------------------


def test_baselines_are_dashed_lines_that_do_not_stretch_the_picture_and_are_said_outside_it(
    tab: Any, address: str
) -> None:
    reader = tab().open(address)
    before = reader.page.evaluate(RANGE)
    baselines = [
        {"name": "<b>xz</b>", "value": 2.4},
        {"name": "uniform", "value": 80.0},
        {"name": "none", "value": None},
        {"name": "bigram", "values": {"bits_per_byte": 2.9, "loss": 4.4}},
    ]
    reader.page.evaluate(
        "found => { for (const group of data.groups) group.baselines = found; refresh('curves'); }", baselines
    )
    settled(reader)
    shapes = reader.page.evaluate("document.querySelector('#curves-plot').layout.shapes")
    assert [(each["y0"], each["y1"], each["line"]["dash"]) for each in shapes] == [
        (2.4, 2.4, "dash"),
        (2.9, 2.9, "dash"),
    ]
    assert reader.page.evaluate(RANGE) == before
    assert "<b>xz</b>: 2.4" in reader.page.inner_text("#curves-plot")
    assert reader.page.inner_text(CLIPPED) == "Baselines outside the plot: uniform 80."
    for metric, count in {"validation/loss": 1, "train/loss": 0}.items():
        reader.choose("metric", metric)
        reader.settled("document.querySelector('#curves-plot').layout.shapes.length", count)


# -- the metric against an option --------------------------------------------------------------------------------


def search(folder: Path) -> None:
    """Write trials of a search: a learning rate of every size, models, and an option that one model lacks."""
    chance = random.Random(0)
    for number in range(20):
        model = chance.choice(["lstm", "gru", "gpt"])
        config: dict[str, Any] = {"optimizer.lr": round(10 ** chance.uniform(-5, -1), 6)}
        if model != "gpt":
            config["model.dropout"] = chance.choice([0.0, 0.2])
        without = {"metrics": {}} if number == 7 else {}
        pages.run(folder / f"{number:02d}", model=model, records=10, validations=2, config=config, **without)


def test_the_metric_stands_against_any_option_that_is_a_number(tab: Any, tmp_path: Path) -> None:
    search(tmp_path)
    reader = tab().open(written(tmp_path, "report.html")).drawn("costs")
    reader.choose("cost", "=optimizer.lr")
    settled(reader)
    axis = "document.querySelector('#costs-plot').layout.xaxis"
    rates = reader.page.evaluate("data.runs.map(run => [run.settings['optimizer.lr'], run.final])")
    drawn = reader.page.evaluate(f"{POINTS}.x.map((x, k) => [x, {POINTS}.y[k]])")
    assert drawn == [each for each in rates if each[1] is not None]
    assert "Left out: 1 run without the metric, or without lr." in reader.page.inner_text("#costs-note")
    reader.page.check("#logcost")
    reader.settled(f"{axis}.type", "log")
    assert "=model" not in reader.page.evaluate(
        "[...document.querySelectorAll('#cost option')].map(each => each.value)"
    )
    reader.page.reload()
    reader.drawn("curves", "costs")
    assert reader.page.input_value("#cost") == "=optimizer.lr"


def test_a_colour_of_a_group_stays_when_the_filter_changes(tab: Any, address: str) -> None:
    reader = tab().open(address)
    reader.choose("by", "seed")
    settled(reader)
    colour = f"{DRAWN}.filter(each => each.marker).map(each => each.line.color)[0]"
    before = reader.page.evaluate(colour)  # the last seed is drawn first, below the others
    reader.filter("seed=3")
    reader.settled(f"{DRAWN}.filter(each => each.marker).length", 1)
    assert reader.page.evaluate(colour) == before
