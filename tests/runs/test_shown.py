"""Laws of what a run keeps of its validations beside numbers: it is read as it was written, or refused in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqtrain.errors import UserError
from seqtrain.runs import shown
from seqtrain.runs.directory import Run
from seqtrain.runs.shown import Confusion, Samples, Table
from tests.support.shown_runs import fan


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run")


def test_samples_are_read_as_they_were_written(run: Run) -> None:
    rows = [{"text": "déjà", "probability": 0.5, "right": True}, {"text": "vu", "right": False}]
    written = shown.write_samples(run, 30, "déjà\nvu", rows)
    table = Table(("text", "probability", "right"), (("déjà", 0.5, True), ("vu", "", False)))
    assert written == shown.read_samples(run, 30) == Samples("déjà\nvu", table)
    assert shown.steps_with_samples(run) == {30}


def test_a_run_of_an_earlier_version_has_text_and_no_table(run: Run) -> None:
    (run.samples / "step-00000030.txt").write_text("words")
    assert shown.read_samples(run, 30) == Samples("words", None)
    assert shown.read_samples(run, 60) is None


def test_confusion_counts_are_read_as_they_were_written(run: Run) -> None:
    counts = Confusion(("no", "yes"), ((3, 1), (0, 2)))
    shown.write_confusion(run, 30, counts)
    assert shown.read_confusion(run, 30) == counts
    assert shown.steps_with_confusion(run) == {30}


SAMPLES: list[Any] = [[], {"columns": ["a"]}, {"columns": ["a"], "rows": [[1, 2]]}, {"columns": [1], "rows": []}]
CONFUSIONS: list[Any] = [{"labels": ["a"], "counts": [[1, 2]]}, {"labels": ["a"], "counts": [["1"]]}, 7]


@pytest.mark.parametrize("content", [*SAMPLES, {"columns": ["a"], "rows": [[{"_type": "file"}]]}])
def test_a_table_that_no_run_writes_is_refused(run: Run, content: Any) -> None:
    shown.write_samples(run, 30, "text", [])
    (run.samples / "step-00000030.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"step-00000030\.json: not what a run writes there; remove it"):
        shown.read_samples(run, 30)


@pytest.mark.parametrize("content", [*CONFUSIONS, {"labels": ["a", "b"], "counts": [[1, 2]]}])
def test_counts_that_no_run_writes_are_refused(run: Run, content: Any) -> None:
    (run.plots / "confusion-00000030.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"confusion-00000030\.json: not what a run writes there; remove it"):
        shown.read_confusion(run, 30)


def test_pictures_of_samples_are_read_as_they_were_written(run: Run) -> None:
    columns = [{"text": "a"}, {"text": "b"}]
    shown.write_samples(run, 30, "text", columns, [None, fan(7.0)])
    found = shown.read_samples(run, 30)
    assert found is not None
    none, kept = found.fans
    assert none is None
    assert kept is not None
    own = fan(7.0)
    assert [kept.title, kept.times.tolist(), kept.history_times.tolist()] == [own.title, [1, 2, 3], [-4, -3, -2, -1, 0]]
    for name in ("history", "median", "truth"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(own, name))
    assert kept.bands.keys() == own.bands.keys()
    for share, ends in own.bands.items():
        np.testing.assert_array_equal(kept.bands[share], ends)


def test_a_forecast_that_diverged_is_a_gap_and_no_fault(run: Run) -> None:
    shown.write_samples(run, 30, "text", [{"text": "a"}], [fan(float("inf"))])
    found = shown.read_samples(run, 30)
    assert found is not None
    assert found.fans[0] is not None
    assert np.isnan(found.fans[0].median).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("history", "12"),
        ("history", [True]),
        ("history", [1e300]),
        ("history", [0.0] * 70_000),
        ("median", []),
        ("median", [1.0]),
        ("truth", [1.0, 2.0]),
        ("bands", {"2": [[1, 2, 3], [1, 2, 3]]}),
        ("bands", {"x": [[1, 2, 3], [1, 2, 3]]}),
        ("bands", {"0.8": [[1, 2, 3]]}),
        ("title", 7),
        ("more", 1),
    ],
)
def test_a_picture_that_no_run_writes_is_refused(run: Run, name: str, value: Any) -> None:
    shown.write_samples(run, 30, "text", [{"text": "a"}], [fan(7.0)])
    path = run.samples / "step-00000030.json"
    content = json.loads(path.read_text())
    content["fans"][0][name] = value
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"step-00000030\.json: not what a run writes there; remove it"):
        shown.read_samples(run, 30)
    # Pictures belong to rows by their place.
    content["fans"] = [None, None]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"step-00000030\.json: not what a run writes there; remove it"):
        shown.read_samples(run, 30)
