"""The page of gates in a real Chromium: a chosen unit and token show what every gate did there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from seqtrain.inference.gate_pictures import write_page
from seqtrain.inference.gates import Gates
from tests.support.chromium import MARKS, browser, tab

FIXTURES = (browser, tab)  # pytest finds them by their names here
pytestmark = MARKS

# Of two units the second holds longer.
UPDATE = torch.tensor([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]])
HIDDEN = torch.tensor([[0.5, -0.5], [0.25, -0.25], [1.5, -1.0]])
LAYERS = [Gates("layer 1", "gru", ["who", "<b>", " "], {"reset": 1 - UPDATE, "update": UPDATE, "hidden": HIDDEN})]


@pytest.mark.parametrize(("row", "unit"), [(0, 1), (1, 0)])
def test_a_chosen_unit_shows_its_values_at_each_token(row: int, unit: int, tab: Any, tmp_path: Path) -> None:
    assert write_page(LAYERS, tmp_path / "gates.html", "title") == ""
    reader = tab()
    reader.page.goto(f"file://{tmp_path / 'gates.html'}")
    assert reader.page.locator("#gate").input_value() == "update"  # the one that says how long a unit holds
    reader.page.select_option("#unit", index=row)
    for place in range(3):
        reader.page.locator("#tokens button").nth(place).click()
        cells = "[...document.querySelectorAll('#values tr')].map(row => [...row.cells].map(cell => cell.textContent))"
        expected = []
        for name, shown in (("reset", "reset gate"), ("update", "update gate"), ("hidden", "hidden")):
            expected.append([shown, f"{LAYERS[0].values[name][place, unit]:.3f}"])
        assert reader.page.evaluate(cells) == expected
        assert reader.page.locator("#here").inner_text().startswith(f"unit {unit + 1} just after")
    titles = "[...document.querySelectorAll('#tokens > *')].map(token => token.title)"
    assert reader.page.evaluate(titles) == [f"{value:.3f}" for value in UPDATE[:, unit].tolist()]
    # The map is painted: the longer a unit holds, the higher it stands.
    pixel = "[...document.getElementById('map').getContext('2d').getImageData(1, 1, 1, 1).data]"
    assert reader.page.evaluate(pixel)[3] == pytest.approx(0.9 * 255, abs=2)
