"""What Python shows of a run: short, true, and never an error of its own."""

from __future__ import annotations

from pathlib import Path

import seqtrain
from seqtrain.runs.directory import Run
from tests.support import fake_runs
from tests.support.untrained_runs import NEXT_TOKEN, make_run


def test_a_run_opened_for_use_says_what_it_is_and_what_it_reached(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", *NEXT_TOKEN)
    trained = seqtrain.load(path, checkpoint="last")
    assert repr(trained).startswith(f"Trained({path}: no training is known, GPT on next_token, ")
    Run(path).update_summary(status="finished", steps=1200, metrics={"validation": {"loss": 1.5, "<b>": 2.0}})
    assert repr(trained).splitlines()[1:] == ["  validation: 1.5000 loss after 1,200 steps"]
    shown = trained._repr_html_()
    assert "<td>validation</td><td>1.5000</td><td>2.0000</td>" in shown
    assert "<b>" not in shown


def test_a_run_says_its_status_also_where_its_summary_is_damaged(tmp_path: Path) -> None:
    path = fake_runs.run(tmp_path / "run")
    assert repr(Run(path)) == f"Run({path}, status: finished)"
    (path / "summary.json").write_text("{")
    assert repr(Run(path)) == f"Run({path}, status: cannot be read)"
    assert repr(Run(tmp_path / "none")) == f"Run({tmp_path / 'none'}, status: unknown)"
