"""What stands side by side in a real Chromium: samples with their differences, confusion counts, configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import fake_runs, pages, shown_runs
from tests.support.chromium import MARKS, browser, tab, written

FIXTURES = (browser, tab)
pytestmark = MARKS

CELLS = "[...document.querySelectorAll('#samples-table tbody tr')].map(row => [...row.children].map(cell => {0}))"
TEXTS = CELLS.format("cell.textContent")
MARKED = CELLS.format("cell.querySelector('.said')?.innerHTML ?? ''")
SETTINGS = (
    "Object.fromEntries([...document.querySelectorAll('#diff-table tbody tr')].map(row =>"
    " [...row.children].map(cell => cell.textContent)).map(([key, ...values]) => [key, values]))"
)


def tick(reader: Any, *names: str) -> None:
    """Leaves these runs ticked, in this order."""
    ticked = reader.page.locator("#runs tbody input:checked")
    while ticked.count():
        ticked.first.uncheck()
    for name in names:
        reader.page.locator("#runs tbody tr", has_text=name).locator("input").check()


def test_translations_of_one_source_stand_in_a_row_with_what_the_reference_has_not(tab: Any, tmp_path: Path) -> None:
    shown_runs.translations(tmp_path)
    reader = tab().open(written(tmp_path, "report.html")).drawn("table")
    tick(reader, "/gru", "/lstm")
    reader.drawn("samples").settled("document.querySelectorAll('#samples-table thead th').length", 3)
    rows = reader.page.evaluate(MARKED)
    assert [row[1] for row in rows] == [
        "the cat sat on <del>the</del> mat .",
        "i <del>would like</del> <ins>want</ins> a cup of tea <del>,</del> please .",
        "where is the <ins>train</ins> station ?",
    ]
    assert rows[0][2] == "the <del>cat</del> <ins>dog</ins> sat on the mat ."
    assert rows[1][2] == "tea tea tea tea<small>not marked: too unlike, or too long</small>"
    assert rows[2][2] == "(nothing)"
    sources = [row[0] for row in reader.page.evaluate(TEXTS)]
    assert sources == [f"{source}reference: {right}" for source, right in shown_runs.SENTENCES.items()]
    assert "3 of 3 sources shown by all 2 runs" in reader.page.inner_text("#samples-note")
    # Marks can be told without colours.
    marks = "[...document.querySelectorAll('#samples-table ins, #samples-table del')]"
    assert reader.page.evaluate(f"new Set({marks}.map(each => getComputedStyle(each).textDecorationLine)).size") == 2
    reader.choose("step", "50")
    reader.settled(f"{TEXTS}[0][1]", "earlynot marked: too unlike, or too long")


def test_a_prediction_is_marked_where_it_is_not_the_label(tab: Any, tmp_path: Path) -> None:
    shown_runs.sentiments(tmp_path)
    reader = tab().open(written(tmp_path, "report.html")).drawn("table")
    tick(reader, "/1", "/2")
    reader.drawn("samples").settled("document.querySelectorAll('#samples-table thead th').length", 3)
    assert [row[1:] for row in reader.page.evaluate(MARKED)] == [
        ["positive", "positive"],
        ["negative", "<del>negative</del> <ins>positive</ins>"],
    ]


def test_runs_that_show_other_sources_are_not_set_side_by_side(tab: Any, tmp_path: Path) -> None:
    rows = [{"source": "a b", "model": "one"}, {"source": "a  b", "model": "two"}, {"source": "c", "model": "three"}]
    others = [{"source": "a b", "model": "uno"}, {"source": "d", "model": "quattro"}]
    for name, seed, shown in (("x", 1, rows), ("y", 2, others)):
        shown_runs.sampled(fake_runs.run(tmp_path / name, seed=seed), 50, shown)
    reader = tab().open(written(tmp_path, "report.html")).drawn("table")
    tick(reader, "/x", "/y")
    reader.drawn("samples").settled("document.querySelectorAll('#samples-table thead th').length", 3)
    assert [row[0] for row in reader.page.evaluate(TEXTS)] == ["a b", "a  b (2)", "c", "d"]
    empty = [[cell == "not shown by this run" for cell in row[1:]] for row in reader.page.evaluate(TEXTS)]
    assert empty == [[False, False], [False, True], [False, True], [True, False]]
    assert "1 of 4 sources shown by all 2 runs" in reader.page.inner_text("#samples-note")


def test_texts_without_a_reference_are_marked_against_the_first_run_and_keep_their_lines(
    tab: Any, tmp_path: Path
) -> None:
    pages.sample(pages.run(tmp_path / "x", records=5), 999, "All:\nSpeak, speak.\nNow.\n")
    pages.sample(pages.run(tmp_path / "y", records=5, seed=2), 998, "All:\nSpeak, friend.\nNow.\n")
    reader = tab().open(written(tmp_path, "report.html")).drawn("table")
    tick(reader, "/x", "/y")
    reader.drawn("samples").settled("document.querySelectorAll('#samples-table thead th').length", 3)
    (row,) = reader.page.evaluate(MARKED)
    assert row[1:] == ["All:\nSpeak, speak.\nNow.\n", "All:\nSpeak, <del>speak.</del> <ins>friend.</ins>\nNow.\n"]
    note = reader.page.inner_text("#samples-note")
    assert "There is no reference" in note
    assert "newest steps differ" in note


def test_a_confusion_matrix_is_a_table_of_shares_and_counts_and_a_label_without_examples_has_no_share(
    tab: Any, tmp_path: Path
) -> None:
    shown_runs.sentiments(tmp_path)
    fake_runs.run(tmp_path / "bare", 0.7, metric="accuracy", seed=9, config={"task": {"_target_": "a.Sentiment"}})
    reader = tab().open(written(tmp_path, "report.html")).drawn("table")
    tick(reader, "/1", "/2")
    reader.drawn("pictures").settled("document.querySelectorAll('table.confusion').length", 2)
    rows = reader.page.locator("table.confusion").first.locator("tbody tr")
    cells = [row.locator("td").all_inner_texts() for row in rows.all()]
    assert [cell.split() for cell in cells[0]] == [["87.0", "%", "40"], ["10.9", "%", "5"], ["2.2", "%", "1"]]
    assert [cell.split() for cell in cells[2]] == [["none", "0"]] * 3
    assert "111 examples" in reader.page.locator("#confusion-cards article").first.inner_text()
    assert "with callbacks=default" in reader.page.inner_text("#pictures-note")  # of attention nothing was kept


def test_forecasts_of_a_row_are_drawn_on_one_scale_with_gaps_where_values_are_missing(tab: Any, tmp_path: Path) -> None:
    shown_runs.forecasts(tmp_path)
    reader = tab().open(written(tmp_path, "report.html")).drawn("table")
    tick(reader, "/gru", "/lstm")
    reader.drawn("samples").settled("document.querySelectorAll('svg.fan').length", 2)
    words = "[...fan.querySelectorAll('text')].map(text => text.textContent)"
    scales = reader.page.evaluate(f"[...document.querySelectorAll('svg.fan')].map(fan => {words})")
    assert scales[0] == scales[1] == ["-4.09", "24.3", "3 ahead"]
    # Two values, one that is missing, two more: two strokes.
    histories = reader.page.evaluate(
        "[...document.querySelectorAll('svg.fan .history')].map(line => line.getAttribute('d').split('M').length - 1)"
    )
    assert histories == [2, 2]
    bands = reader.page.evaluate(
        "[...document.querySelectorAll('svg.fan')].map(fan => fan.querySelectorAll('[data-share]').length)"
    )
    assert bands == [2, 0]
    assert "blue, the forecast with its intervals" in reader.page.inner_text("#samples-note")
    assert reader.wrong == []


def test_settings_that_differ_stand_side_by_side_and_all_on_a_press(tab: Any, tmp_path: Path) -> None:
    shown_runs.translations(tmp_path)
    reader = tab().open(written(tmp_path, "report.html")).drawn("table")
    tick(reader, "/gru", "/lstm")
    reader.drawn("diff").settled(f"{SETTINGS}['model']", ["gru", "lstm"])
    shown = reader.page.evaluate(SETTINGS)
    assert shown["model.dim"] == ["64", "128"]
    assert all(one != other for one, other in shown.values())
    assert reader.page.inner_text("#diff-note").startswith(f"{len(shown)} of ")
    reader.page.check("#whole")
    reader.settled(f"{SETTINGS}['trainer.max_steps']", ["100", "100"])
    tick(reader)
    reader.settled("document.querySelector('#diff-note').textContent.startsWith('Tick runs')", True)


@pytest.mark.parametrize("count", [2, 5])
def test_of_many_groups_the_page_shows_the_conclusion_of_the_chosen_one(tab: Any, tmp_path: Path, count: int) -> None:
    for place in range(count):
        hashes = {**fake_runs.HASHES, "validation": f"{place}" * 32}
        fake_runs.sweep(tmp_path / f"alpha{place}", {"lstm": (1.5, 1.6), "gru": (1.4 + place, 1.5)}, hashes=hashes)
    reader = tab().open(written(tmp_path, "report.html"))
    assert reader.page.locator("#groups article:visible").count() == (2 if count == 2 else 1)
    reader.choose("group", "1")
    reader.settled("document.querySelector('#groups article.current h3').textContent.startsWith('Group 2:')", True)
    assert reader.page.locator("#groups article.current").is_visible()
