"""Laws of the pictures that loggers are sent: drawn once for all of them, and only where one shows pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqtrain.inference import forecast_plot
from seqtrain.runs.shown import Samples, Table
from seqtrain.training.callbacks import samples as shown
from seqtrain.training.loggers.base import Guarded, RunLogger
from tests.support.shown_runs import fan


class Keeps(RunLogger):
    """A logger that keeps names of pictures, and their first bytes, read when they are sent."""

    def __init__(self, folder: Path) -> None:
        super().__init__("Keeps", folder)
        self.images: dict[str, bytes] = {}

    def _metrics(self, metrics: Any, step: int) -> None: ...

    def _text(self, name: str, text: str, step: int) -> None: ...

    def _image(self, name: str, path: Path, step: int) -> None:
        self.images[name] = path.read_bytes()[:4]

    def _end(self, figures: Any) -> None: ...


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The pictures that were drawn."""
    found: list[Path] = []
    draw = forecast_plot.draw_small_fan

    def count(fan: Any, path: Path) -> None:
        found.append(path)
        draw(fan, path)

    monkeypatch.setattr(forecast_plot, "draw_small_fan", count)
    return found


SAMPLES = Samples("", Table(("text",), (("a",), ("b",), ("c",))), (fan(1.0), None, fan(2.0)))


def test_each_forecast_is_drawn_once_and_sent_to_every_logger(tmp_path: Path, drawn: list[Path]) -> None:
    one, other = Keeps(tmp_path), Keeps(tmp_path)
    shown.log_samples([one, other], SAMPLES, 30)
    assert one.images == other.images == {"sample_1": b"\x89PNG", "sample_3": b"\x89PNG"}
    assert len(drawn) == 2
    assert not any(path.exists() for path in drawn)


def test_nothing_is_drawn_where_no_logger_shows_pictures(tmp_path: Path, drawn: list[Path]) -> None:
    broken = Keeps(tmp_path)
    broken.broken = True
    shown.log_samples([], SAMPLES, 30)
    shown.log_samples([Guarded(Keeps(tmp_path), tmp_path), broken], SAMPLES, 30)
    shown.log_samples([Keeps(tmp_path)], Samples("", None), 30)
    assert drawn == []


def test_a_picture_that_cannot_be_drawn_costs_a_line_and_the_others_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = forecast_plot.draw_small_fan

    def fail(fan: Any, path: Path) -> None:
        if path.stem == "sample_1":
            raise MemoryError("no room")
        draw(fan, path)

    monkeypatch.setattr(forecast_plot, "draw_small_fan", fail)
    run_logger = Keeps(tmp_path)
    shown.log_samples([run_logger], SAMPLES, 30)
    assert list(run_logger.images) == ["sample_3"]
    assert "the picture of sample 1 could not be drawn: no room" in "".join(capsys.readouterr())
