"""What summary.json says of a sitting is of this sitting alone."""

from __future__ import annotations

from pathlib import Path
from signal import SIGTERM

import pytest

from seqtrain.config import check
from seqtrain.experiment.story import Attempt, Experiment
from seqtrain.experiment.written_config import plain_config
from seqtrain.runs.directory import Run
from seqtrain.training.callbacks.signals import Interrupted
from tests.support.examples import DATA


def test_who_is_interrupted_when_all_is_written_has_ended_as_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = check.compose(["task=next_token", *DATA["next_token"], "logger=none", "callbacks=none"]).config
    for status in ("finished", "pruned"):
        run = Run.create(tmp_path / status, config=plain_config(config))

        def leave(*_: object, run: Run = run, status: str = status) -> None:
            run.update_summary(status=status)
            raise Interrupted(SIGTERM)

        monkeypatch.setattr("seqtrain.experiment.story.read_run_data", leave)
        with pytest.raises(Interrupted):
            Experiment(run, config, Attempt(command=("seqtrain",))).train()
        assert Run(run.path).summary.status == status
