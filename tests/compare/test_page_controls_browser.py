"""No control of the report leaves the page, in a real Chromium: each is clicked, and nothing is asked of anybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support import pages
from tests.support.chromium import MARKS, Reader, browser, tab, written

FIXTURES = (browser, tab)  # pytest finds them by their names here
pytestmark = MARKS

SECTIONS = ("curves", "charts", "costs", "table", "samples", "diff", "environment")
OURS = ("file:", "data:", "blob:")
# What may be pressed and has not been, by its words and where it stands: tables are made anew when they are sorted.
PRESS = """() => {
  window.pressed ??= new Set();
  const kinds = 'a, button, input, select, summary, form, area, [role=button], .modebar-btn';
  const all = [...document.querySelectorAll(kinds)];
  const text = each => each.textContent.replace(/[↑↓]/g, '').trim();
  const label = each => each.getAttribute('aria-label') || each.dataset.title || text(each);
  const words = each => each.tagName + ' ' + (each.getAttribute('id') || label(each).slice(0, 60));
  const place = each => each.closest('[id]:not(button, a)')?.id + ' ' + words(each);
  // Links to files of the runs, beside the page, are no way out: they are looked at, and not followed.
  const isLink = each => each.getAttribute('href') && !each.getAttribute('href').startsWith('#');
  const left = all.filter(each => !window.pressed.has(place(each)) && !(isLink(each) && each.protocol === 'file:'));
  // What takes controls away comes last.
  const next = left.find(each => !words(each).includes('Remove')) || left[0];
  if (!next) return null;
  const found = words(next);
  window.pressed.add(place(next));
  if (next.tagName === 'FORM') next.requestSubmit();
  else next.click();
  return found;
}"""
MOST_PRESSES = 400


def pressed_all(reader: Reader) -> tuple[list[str], list[str]]:
    """Presses every control; gives what was pressed, and each way out of the page that was tried."""
    left: list[str] = []
    context = reader.page.context
    context.on("page", lambda page: left.append(f"a new window {page.url}"))
    reader.page.on("framenavigated", lambda frame: left.append(f"went to {frame.url}"))
    context.on("request", lambda request: None if request.url.startswith(OURS) else left.append(request.url))
    # A link to anywhere else is a way out, also where the browser has no network to follow it.
    outward = "[...document.querySelectorAll('[href], [action], [src]')].flatMap(each => ['href', 'action', 'src']"
    outward += ".map(name => each.getAttribute(name)).filter(url => url && !ours(url)))"
    ours = "url => ['file:', 'data:', 'blob:'].includes(new URL(url, location.href).protocol)"
    outward = f"(ours => {outward})({ours})"
    address, pressed = reader.page.url.partition("#")[0], []
    while len(pressed) < MOST_PRESSES and (words := reader.page.evaluate(PRESS)) is not None:
        pressed.append(words)
        reader.page.evaluate("last")
        left += reader.page.evaluate(outward)
    reader.page.wait_for_timeout(300)
    assert reader.page.url.partition("#")[0] == address
    # The skip link and the choices change what stands behind #, and nothing else.
    return pressed, [each for each in left if not each.startswith(f"went to {address}#")]


def opened(tab: Any, folder: Path) -> Reader:
    for seed in (1, 2):
        pages.run(folder / str(seed), seed=seed, records=30)
    return tab().open(written(folder, "report.html")).drawn(*SECTIONS)


def test_no_control_of_the_page_leaves_it_or_asks_anything(tab: Any, tmp_path: Path) -> None:
    pressed, left = pressed_all(opened(tab, tmp_path))
    assert left == []
    assert {"BUTTON theme", "BUTTON usual", "SELECT adding", "FORM choices", "BUTTON Zoom"} <= set(pressed)
    assert sum("Download plot" in each for each in pressed) >= 6  # of each figure
    assert sum("Remove the chart" in each for each in pressed) >= 4
    assert len(pressed) < MOST_PRESSES


def test_a_newer_plotly_brings_no_button_into_the_page(tab: Any, tmp_path: Path) -> None:
    reader = opened(tab, tmp_path)
    titles = "[...new Set([...document.querySelectorAll('.modebar-btn')].map(each => each.dataset.title))]"
    shown = set(reader.page.evaluate(titles))
    assert shown == {"Download plot as a PNG", "Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"}
