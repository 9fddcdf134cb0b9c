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
from seqtrain.runs.shown import Samples, Table
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


REFUSED = r"-00000030\.json: not in the form that a run writes; remove it"
SAMPLES: list[Any] = [
    *([], {"columns": ["a"]}, {"columns": ["a"], "rows": [[1, 2]]}, {"columns": [1], "rows": []}),
    {"columns": ["a"], "rows": [[{"_type": "file"}]]},
]
CONFUSIONS: list[Any] = [
    *({"labels": ["a"], "counts": [[1, 2]]}, {"labels": ["a"], "counts": [["1"]]}, 7),
    {"labels": ["a", "b"], "counts": [[1, 2]]},
]


def test_a_table_or_counts_that_no_run_writes_are_refused(run: Run) -> None:
    shown.write_samples(run, 30, "text", [])
    for content in SAMPLES:
        (run.samples / "step-00000030.json").write_text(json.dumps(content))
        with pytest.raises(UserError, match=f"step{REFUSED}"):
            shown.read_samples(run, 30)
    for content in CONFUSIONS:
        (run.plots / "confusion-00000030.json").write_text(json.dumps(content))
        with pytest.raises(UserError, match=f"confusion{REFUSED}"):
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


FANS: list[tuple[str, Any]] = [
    *(("history", value) for value in ("12", [[1.0]], ["a"], [{}])),
    *(("median", []), ("median", [1.0]), ("truth", [1.0, 2.0]), ("title", 7), ("more", 1)),
    *(("bands", {share: [[1, 2, 3], [1, 2, 3]]}) for share in ("2", "x")),
    ("bands", {"0.8": [[1, 2, 3]]}),
]


def test_a_picture_that_no_run_writes_is_refused(run: Run) -> None:
    shown.write_samples(run, 30, "text", [{"text": "a"}], [fan(7.0)])
    path = run.samples / "step-00000030.json"
    content = json.loads(path.read_text())
    (sound,) = content["fans"]
    # Pictures belong to rows by their place: one row has no two.
    for fans in [*([sound | {name: value}] for name, value in FANS), [None, None]]:
        path.write_text(json.dumps(content | {"fans": fans}))
        with pytest.raises(UserError, match=f"step{REFUSED}"):
            shown.read_samples(run, 30)
