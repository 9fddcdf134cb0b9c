"""Trackio gets what metrics.jsonl has, and standard output stays for results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

READ = """
import json, trackio
(run,) = trackio.Api().runs("p")
print(json.dumps([run.name, run.config, trackio.SQLiteStorage.get_logs("p", run.name)]))
"""
LOG = """
import sys
from pathlib import Path
from seqtrain.runs.summary import Summary
from seqtrain.training.loggers.trackio_logger import TrackioLogger
logger = TrackioLogger(project="p", directory=Path("run"), config={"seed": 7, "run_dir": "run"})
for step in (1, 2):
    logger.log_metrics({"step": step, "time": 1.0, "train/loss": 1 / step}, step)
logger.log_text("samples", "a `text`", 2)
logger.end(Summary.from_plain({"status": "finished", "steps": 2, "metrics": {"validation/loss": 0.5}}))
assert not logger.broken
"""


def _said(code: str, folder: Path) -> str:
    environment = os.environ | {"TRACKIO_DIR": str(folder / "trackio"), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.long
def test_trackio_gets_records_texts_and_the_summary_and_writes_no_results(tmp_path: Path) -> None:
    assert _said(LOG, tmp_path) == ""
    name, config, rows = json.loads(_said(READ, tmp_path))
    assert (name, config["seed"]) == ("run", 7)
    assert [(row["step"], row["train/loss"]) for row in rows if "train/loss" in row] == [(1, 1.0), (2, 0.5)]
    assert [row["final/validation/loss"] for row in rows if "final/validation/loss" in row] == [0.5]
    assert [row["step"] for row in rows if "samples" in row] == [2]
