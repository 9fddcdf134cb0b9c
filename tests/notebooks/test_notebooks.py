"""Laws of notebooks/: they run from top to bottom, in a folder that holds nothing, and keep no output."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
PATIENCE = 600  # seconds that a cell may take
EACH = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


@EACH
def test_a_notebook_keeps_no_output_that_could_grow_old(path: Path) -> None:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 3
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []


@pytest.fixture
def executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seqtrain_environment: dict[str, str]) -> Any:
    """Runs a notebook in an empty folder; gives the outputs of its cells, by their first line of code."""
    nbclient = pytest.importorskip("nbclient", reason="there is no nbclient: pip install -e '.[test]'")
    nbformat = pytest.importorskip("nbformat")
    for name in ("SEQTRAIN_CACHE", "OMP_NUM_THREADS", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, seqtrain_environment[name])

    def run(path: Path) -> dict[str, Any]:
        notebook = nbformat.read(path, as_version=4)
        surroundings = {"metadata": {"path": str(tmp_path)}}
        nbclient.NotebookClient(notebook, timeout=PATIENCE, kernel_name="python3", resources=surroundings).execute()
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        return {cell.source.splitlines()[-1]: cell.outputs for cell in code}

    return run


def data(outputs: list[Any]) -> dict[str, Any]:
    """What a cell shows at its end."""
    return outputs[-1]["data"]


@pytest.mark.long
def test_the_notebook_on_comparisons_trains_compares_and_draws(executed: Any, tmp_path: Path) -> None:
    shown = executed(REPOSITORY / "notebooks" / "compare.ipynb")
    compared = data(shown["compared"])
    assert compared["text/plain"].startswith("Compared(4 runs: 4 finished; 2 variants; bits per byte of validation)")
    assert "<table" in compared["text/html"]
    figure = data(shown['compared.plot("validation/loss", x="tokens")'])["application/vnd.plotly.v1+json"]
    # Each model comes with a learning rate of its own; it was not typed, so no name holds it.
    assert {trace["legendgroup"] for trace in figure["data"]} == {"rnn", "lstm"}
    # A bar of its own, drawn over: one output, whatever was drawn.
    bars = [each for each in shown["run"] if "60/60" in each.get("data", {}).get("text/plain", "")]
    assert len(bars) == 1
    assert data(shown["run"])["text/plain"].startswith("Trained(one_more: finished, GRU on next_token")
    assert "gru" in shown["print(together)"][0]["text"]
    assert len(list((tmp_path / "sweep").glob("00*/summary.json"))) == 4


@pytest.mark.long
def test_the_tour_shows_what_the_theory_says(executed: Any) -> None:
    shown = executed(REPOSITORY / "notebooks" / "tour.ipynb")
    assert "<table" in data(shown["compared"])["text/html"]
    differences = ast.literal_eval(data(shown["differences"])["text/plain"])
    assert set(differences) == {"lstm", "gpt"}
    assert max(differences.values()) < 1e-5  # of float32
    # What a cell says stands before the pictures that it leaves open.
    assert shown["ahead"][0]["data"]["text/plain"] == "0.0"
    assert shown["beyond"][0]["data"]["text/plain"] == "0.0"
    pictures = [outputs for outputs in shown.values() if any("image/png" in each.get("data", {}) for each in outputs)]
    assert len(pictures) == 4
    verdict = shown['memory["verdict"]'][0]["data"]["text/plain"]
    assert "effective context" in verdict
