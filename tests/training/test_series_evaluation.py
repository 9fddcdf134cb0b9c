"""Evaluation of windows of series reads as many at a time as fit, however few series they are of."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqtrain.config import check
from seqtrain.training.data import make_data

SMALL = ("task=forecast", "model=lstm", "model.dim=4", "data.length=1200", "data.max_length=24", "task.horizon=4")


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))


def test_windows_are_read_by_data_batch_tokens_and_not_by_the_number_of_series() -> None:
    config = check.compose([*SMALL, "data.size=2", "data.batch_tokens=2400"]).config
    data = make_data(config, ("train", "validation"), lambda line: None)
    sizes = [len(batch.tokens) for batch in data.eval_loader("validation")]
    assert max(sizes) == 100
    assert sum(sizes) == len(data.batcher("validation").lengths)  # pyright: ignore[reportAttributeAccessIssue]
