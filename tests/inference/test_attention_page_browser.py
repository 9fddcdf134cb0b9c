"""The page of attention in a real Chromium: a chosen token shows the keys that it looks at, head by head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from seqtrain.inference.attention_maps import Seen, write_page
from tests.support.chromium import MARKS, browser, tab

FIXTURES = (browser, tab)  # pytest finds them by their names here
pytestmark = MARKS

SELF = torch.tensor([[[0.75, 0.25], [0.1, 0.9]]])
CROSS = torch.tensor([[[0.7, 0.2, 0.1], [0.05, 0.15, 0.8]], [[0.1, 0.6, 0.3], [0.25, 0.5, 0.25]]])
MAPS = [
    Seen("layer 1 cross", CROSS, ["who", "looks"], ["at", "these", "here"]),
    Seen("layer 2 self", SELF, ["who", "looks"], ["who", "looks"]),
]


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (0, 1), (0, "mean"), (1, 0)])
def test_a_chosen_token_shows_what_it_looks_at(layer: int, head: int | str, tab: Any, tmp_path: Path) -> None:
    assert write_page(MAPS, tmp_path / "maps.html", "title") == ""
    reader = tab()
    reader.page.goto(f"file://{tmp_path / 'maps.html'}")
    reader.choose("layer", str(layer))
    weights, keys = MAPS[layer].weights, MAPS[layer].keys
    place = 0 if head == "mean" else int(head) + (len(weights) > 1)  # by its place: its value is another's label
    reader.page.select_option("#head", index=place)
    for query, name in enumerate(MAPS[layer].queries):
        reader.page.locator("#queries button").nth(query).click()
        row = weights.mean(0)[query] if head == "mean" else weights[int(head), query]
        best = [[keys[key], f"#{key + 1}", f"{100 * row[key]:.1f}%"] for key in row.argsort(descending=True).tolist()]
        cells = "[...document.querySelectorAll('#best tr')].map(row => [...row.cells].map(cell => cell.textContent))"
        assert reader.page.evaluate(cells) == best
        assert f"“{name}”" in reader.page.locator("#most").inner_text()
        painted = "queries" if layer else "keys"
        titles = f"[...document.querySelectorAll('#{painted} > *')].map(token => token.title)"
        assert reader.page.evaluate(titles) == [f"{100 * share:.1f}%" for share in row.tolist()]
