"""Laws of `seqtrain sync`: what stands in metrics.jsonl arrives, as a new run each time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from seqtrain.cli import sync
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.sweeps.folder import Asked, Sweep
from tests.conftest import Seqtrain
from tests.support import tiny, wandb_tools
from tests.support.pictures import PNG
from tests.training.test_loggers import events

CONFIG = {
    "model": {"_target_": "seqtrain.models.recurrent.LSTM", "dim": 8},
}
MINE = ("logger.wandb.project=mine", "logger.wandb.tags=[first]", "logger.wandb.x=seconds")
SUMMARY = {"status": "finished", "steps": 4, "best": {"step": 4}, "flops_per_token": 3.0}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wandb_tools.alone(monkeypatch, tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")


def _record(step: int, **values: float) -> dict[str, Any]:
    return {"step": step, "tokens": 64 * step, "seconds": float(step), "read": "00", **values}


def _run(path: Path, **summary: Any) -> Run:
    """A run that was interrupted after step 3, went on from step 2, and ended at step 4."""
    run = Run.create(path)
    run.write_config(CONFIG)
    for step in (1, 2, 3):
        run.append(_record(step, **{"train/loss": 9.0 if step == 3 else 1 / step}))
    run.mark_resume(2)
    for step in (3, 4):
        run.append(_record(step, **{"train/loss": 1 / step}))
    run.append(_record(4, **{"validation/loss": 0.5}))
    run.append({"note": 1.0})  # what has no step is no point
    for step in (2, 4):
        (run.samples / f"step-{step:08d}.txt").write_text(f"after {step}")
    (run.plots / "learning_curve.png").write_bytes(PNG)
    run.update_summary(**(SUMMARY | {"measures": {"loss": {"better": "min"}}} | summary))
    run.close()
    return run


def _standing(run: Run) -> list[dict[str, Any]]:
    records = [record for record in run.metrics() if "step" in record]
    return [{name: value for name, value in record.items() if name not in ("read", "time")} for record in records]


def _sync(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert sync.main([*words]) == 0
    return capsys.readouterr().out


@pytest.mark.long
def test_a_run_is_replayed_into_a_new_run_of_wandb_each_time(tmp_path: Path, capsys) -> None:
    run = _run(tmp_path / "run")
    said = _sync(str(run.path), *MINE, capsys=capsys)
    assert said == f"{run.path} to W&B: records 5, samples 2, plots 1\n"
    (path,) = wandb_tools.files(run.path)
    found = wandb_tools.read_file(path)
    points = found.points()
    assert [point.pop("flops") for point in points] == [3.0 * record["tokens"] for record in _standing(run)]
    assert found.places() == [1, 2, 5, 6, 7], "places in metrics.jsonl, the resume among them"
    assert points == _standing(run)
    assert [name for row in found.rows for name in ("samples.path", "learning_curve.path") if name in row] == [
        *("samples.path", "samples.path", "learning_curve.path")
    ]
    expected = {"name": "run", "project": "mine", "tags": ["first"], "job_type": "train"}
    assert expected.items() <= found.about.items()
    assert (found.axis, found.exit_code, found.summary["status"]) == ("seconds", 0, "finished")
    _sync(str(run.path), capsys=capsys)
    (other,) = set(wandb_tools.files(run.path)) - {path}
    again = wandb_tools.read_file(other)
    assert again.about["id"] != found.about["id"]
    assert again.places() == [1, 2, 5, 6, 7]


def test_tensorboard_shows_the_numbers_of_every_run_of_a_sweep_once(tmp_path: Path, capsys) -> None:
    sweep = Sweep.create(tmp_path / "sweep", Asked(overrides=()))
    runs = [_run(sweep.plan(number, [f"seed={number}"], f"seed={number}").path) for number in range(2)]
    for _ in range(2):
        said = _sync(str(sweep.path), "logger=tensorboard", "--json", capsys=capsys)
        counts = {"to": "TensorBoard", "records": 5, "samples": 2, "plots": 1}
        assert [json.loads(line) for line in said.splitlines()] == [{"run": str(run.path), **counts} for run in runs]
    for run in runs:
        assert len([*run.path.glob("tensorboard/*")]) == 2, "one of them for the HPARAMS tab"
        found = events(run.path)
        for name in ("train/loss", "validation/loss"):
            points = [(record["step"], record[name]) for record in _standing(run) if name in record]
            assert found[name] == [(step, pytest.approx(value, rel=1e-6)) for step, value in points]  # float32
        assert {"samples/text_summary", "summary/text_summary", "learning_curve"} <= found.keys()


def test_what_cannot_be_sent_is_one_line_and_the_others_are_sent(tmp_path: Path, capsys) -> None:
    sweep = Sweep.create(tmp_path / "sweep", Asked(overrides=()))
    runs = [_run(sweep.plan(number, [], str(number)).path) for number in range(3)]
    (runs[0].path / "plots" / "learning_curve.png").write_bytes(b"no picture")
    (runs[1].path / "config.yaml").write_text("a: &x 1\nb: *x\n")
    assert sync.main([str(sweep.path)]) == 2
    out, err = capsys.readouterr()
    assert out == f"{runs[2].path} to W&B: records 5, samples 2, plots 1\n"
    assert [line[:5] for line in err.splitlines()] == ["error"] * 2
    assert err.startswith(f"error: {runs[0].path}: not sent, W&B failed: ")


def test_a_sweep_that_has_not_begun_is_a_fault(tmp_path: Path) -> None:
    sweep = Sweep.create(tmp_path / "sweep", Asked(overrides=()))
    sweep.plan(0, ["seed=1"], "seed=1")
    with pytest.raises(UserError, match=r"no trial of this sweep has begun; `seqtrain resume .*sweep` runs them"):
        sync.main([str(sweep.path)])


def test_a_stranger_s_run_names_no_server_and_no_project(tmp_path: Path, capsys) -> None:
    run = _run(tmp_path / "run")
    theirs = {"mlflow": {"tracking_uri": "http://theirs"}, "wandb": {"project": "theirs", "entity": "theirs"}}
    run.write_config(CONFIG | {"logger": theirs})
    _sync(str(run.path), capsys=capsys)
    (path,) = wandb_tools.files(run.path)
    assert wandb_tools.read_file(path).about["project"] == "seqtrain"


def test_a_mode_that_cannot_be_is_told_for_each_run(tmp_path: Path, capsys) -> None:
    run = _run(tmp_path / "run")
    assert sync.main([str(run.path), "logger.wandb.mode=online"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: logger.wandb.mode=online: there is no API key: set one with `wandb login`"
    )


OPTIONS = (
    *(option for option in tiny.OPTIONS if not option.startswith("logger=")),
    *("trainer.max_steps=6", "trainer.validate_every=3"),
)


@pytest.mark.long
def test_wandb_sync_sends_a_sweep_that_was_offline_whole(tmp_path: Path, seqtrain: Seqtrain) -> None:
    tiny.corpus(tmp_path)
    answer = seqtrain("train", "-m", *OPTIONS, "seed=1,2", "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    again = seqtrain("resume", "sweep/000", "trainer.max_steps=9", cwd=tmp_path)
    assert again.rc == 0, again.err
    runs = [Run.open(tmp_path / "sweep" / name) for name in ("000", "001")]
    recorded = [path for run in runs for path in wandb_tools.files(run.path)]
    assert len(recorded) == 3
    with wandb_tools.host() as server:
        environment = {**os.environ, **wandb_tools.environment(server)}
        program = [sys.executable, "-m", "wandb", "sync", "--yes", *(str(path.parent) for path in recorded)]
        done = subprocess.run(program, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    assert len(server.runs) == 2
    for run, seed in zip(runs, (1, 2), strict=True):
        found = server.runs[(run.path / "wandb_id").read_text()]
        assert (found.about["group"], found.about["name"]) == ("sweep", f"seed={seed}")
        points = [{name: point[name] for name in point if name != "flops"} for point in found.points()]
        assert points == _standing(run)
        assert found.config["model"] == "lstm"
        assert found.config["options"] == yaml.safe_load((run.path / "config.yaml").read_text())
        assert found.places()[-1] == sum(1 for _ in run.records())


@pytest.mark.long
def test_the_command_of_the_readme_runs_under_wandb_s_sweep_agent(tmp_path: Path, seqtrain: Seqtrain) -> None:
    from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

    tiny.corpus(tmp_path)
    given = {"model": {"value": "gru"}, "model.dim": {"value": 8}, "optimizer.lr": {"value": 0.003}}
    (tmp_path / "given.yaml").write_text(yaml.safe_dump(given))
    words = create_sweep_command_args({"args": given})["args_no_hyphens"]
    fixed = [option for option in OPTIONS if not option.startswith("model.")]
    environment = wandb_tools.agent("theirs", tmp_path / "given.yaml")
    answer = seqtrain("train", *fixed, *words, "run_dir=run", cwd=tmp_path, env=environment)
    assert answer.rc == 0, answer.err
    found = wandb_tools.read_file(wandb_tools.files(tmp_path / "run")[0])
    assert (found.about["id"], found.about["sweep"], found.about["project"]) == ("theirs", "swept", "agents")
    assert (tmp_path / "run" / "wandb_id").read_text() == "theirs"
    assert found.config["options"]["task"]["_target_"].endswith("NextToken")
    assert (found.config["model"], found.config["model.dim"], found.config["optimizer.lr"]) == ("gru", 8, 0.003)
    assert len(found.points()) == len(Run.open(tmp_path / "run").metrics())
