"""The same script of docs/stores.md that cleans and deduplicates, on datatrove's executor for SLURM."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.support.raw_texts import KEPT, cleaned, cleaning_script, write_raw

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
pytest.importorskip("datatrove", reason="needs datatrove: pip install 'datatrove[io,processing]' spacy")
pytest.importorskip("spacy", reason="datatrove needs spacy to find words: pip install spacy")

PATIENCE = 400.0  # seconds: twenty interpreters start cold on two cores


def test_the_script_leaves_the_same_texts_under_slurm(cluster: Cluster, tmp_path: Path) -> None:
    write_raw(tmp_path)
    (tmp_path / "clean.py").write_text(cleaning_script())
    done = subprocess.run(
        [sys.executable, "clean.py", "slurm"],
        **{"cwd": tmp_path, "env": cluster.environment, "capture_output": True, "text": True, "check": False},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    limit = time.monotonic() + PATIENCE
    while waiting := cluster("squeue", "-h", "-o", "%r"):
        said = "\n".join(path.read_text()[-2000:] for path in sorted(tmp_path.glob("logs/*/slurm_logs/*.out")))
        assert "DependencyNeverSatisfied" not in waiting, said  # a stage has failed
        assert time.monotonic() < limit, f"{cluster('squeue')}\n{said}"
        time.sleep(1)
    assert cleaned(tmp_path) == KEPT
