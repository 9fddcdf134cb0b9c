"""A real Chromium (Debian's, driven by Playwright) and its reader, for the tests of the report."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqtrain.compare.entries import read
from seqtrain.compare.page import report
from seqtrain.compare.verdict import conclusions
from tests.support import fake_runs, pages

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HEIGHT = 900
LIMIT = 20_000  # milliseconds that anything may take

MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; as root: apt-get install chromium"),
]

AXIS = "document.querySelector('#curves-plot').layout.xaxis.title.text"
ROWS = "document.querySelectorAll('#runs tbody tr').length"


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
    wrong = [each for reader in readers for each in reader.wrong]
    assert not wrong, wrong


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report on four models with three seeds each, and on one run that is not like them."""
    folder = tmp_path_factory.mktemp("runs")
    pages.sweep(folder / "sweep", records=60)
    pages.run(folder / "unlike", records=60, hashes={**fake_runs.HASHES, "validation": "e" * 32})
    return written(folder, "report.html")


def written(folder: Path, name: str, **options: Any) -> str:
    report.write(folder / name, conclusions(read([folder]), **options), title="a report", **options)
    return f"file://{folder / name}"
