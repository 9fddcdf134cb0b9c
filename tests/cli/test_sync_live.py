"""Laws of loggers live and by `seqtrain sync`: a run that was recorded without any looks the same once it is synced."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from seqtrain.inference.opened import open_run
from seqtrain.runs.directory import Run
from tests.conftest import Seqtrain
from tests.support import examples, wandb_tools

OPTIONS = (
    *("task=sentiment", "data=labelled", "data.path=labelled.tsv", "tokenizer=word", "model=lstm", "model.dim=8"),
    *("trainer.max_steps=6", "trainer.validate_every=3", "trainer.log_every=2", "callbacks=default"),
    *("logger=[wandb,tensorboard,mlflow]", "logger.wandb.log_model=true", "logger.mlflow.log_model=true"),
)
OF_LOGGERS = ("wandb", "wandb_id", "tensorboard", "mlflow_id")

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, seqtrain: Seqtrain) -> tuple[Path, Path]:
    """A run that sent all it recorded while it trained, and the same recorded run, synced to all three afterwards."""
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    folder = examples.files(tmp_path_factory.mktemp("live"))
    answer = seqtrain("train", *OPTIONS, "run_dir=live/run", cwd=folder)
    assert answer.rc == 0, answer.err
    assert "failed" not in answer.err
    live, later = folder / "live" / "run", folder / "later" / "run"
    shutil.copytree(live, later, ignore=lambda at, names: OF_LOGGERS)
    answer = seqtrain("sync", str(later), *OPTIONS[-3:], cwd=folder)
    assert answer.rc == 0, answer.err
    return live, later


def _is_said(name: str) -> bool:
    """Whether an entry of W&B's says what was sent, not when its process got it or where it put a file."""
    return name not in ("_step", "_runtime") and not name.startswith("_wandb") and not name.endswith("path")


def _rows(found: wandb_tools.Recorded) -> list[str]:
    rows = []
    for row in found.rows:
        kept = {name: value for name, value in row.items() if _is_said(name)}
        rows.append(json.dumps(kept, sort_keys=True))
    return sorted(rows)


def _wandb(run: Path) -> wandb_tools.Recorded:
    (path,) = wandb_tools.files(run)
    return wandb_tools.read_file(path)


def test_wandb_gets_the_same_rows_live_and_by_sync(folders: tuple[Path, Path]) -> None:
    live, later = map(_wandb, folders)
    assert _rows(live) == _rows(later)
    assert live.config == later.config
    assert (live.axis, live.exit_code) == (later.axis, later.exit_code)
    known = {name: value for name, value in live.summary.items() if _is_said(name)}
    assert known == {name: value for name, value in later.summary.items() if _is_said(name)}


def test_wandb_has_a_table_of_predictions_a_confusion_matrix_of_each_validation_and_plain_names(
    folders: tuple[Path, Path],
) -> None:
    found = _wandb(folders[1])
    assert (found.config["model"], found.config["task"], found.config["data"]) == ("lstm", "sentiment", "labelled")
    assert found.config["options"]["model"]["dim"] == 8
    (table, *_) = sorted(folders[1].glob("wandb/*run-*/files/media/table/samples_table*.json"))
    content = json.loads(table.read_text())
    assert content["columns"] == ["step", "text", "label", "predicted", "probability", "right"]
    for row in content["data"]:
        assert row[5] == (row[2] == row[3])
    assert len([*folders[1].glob("wandb/*run-*/files/media/images/confusion_*.png")]) == 2


def _points(run: Path) -> dict[str, list[tuple[int, float, float]]]:
    """Step, value and time of all that TensorBoard's own reader finds of a run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    read.Reload()
    points: dict[str, list[Any]] = {}
    for tag in read.Tags()["scalars"]:
        points[tag] = [(each.step, each.value, each.wall_time) for each in read.Scalars(tag)]
    for tag in read.Tags()["images"]:
        points[tag] = [(each.step, each.encoded_image_string, each.wall_time) for each in read.Images(tag)]
    for tag in read.Tags()["tensors"]:
        points[tag] = [(each.step, str(each.tensor_proto)) for each in read.Tensors(tag)]
    return points


def test_tensorboard_gets_the_same_points_at_the_same_times_live_and_by_sync(folders: tuple[Path, Path]) -> None:
    live, later = map(_points, folders)
    assert live.keys() == later.keys()
    about = "config/text_summary"  # live it goes before the first step, by sync with the first record
    for name in live.keys() - {about}:
        assert live[name] == later[name], name
    recorded = [record["time"] for record in Run(folders[0]).metrics() if "validation/loss" in record]
    assert [point[2] for point in live["validation/loss"]] == pytest.approx(recorded, abs=1e-3)


def _hparams(run: Path) -> tuple[dict[str, Any], list[str]]:
    """What the HPARAMS tab reads of a run: hyperparameters, and the names of its metrics."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    HParamsPluginData: Any = vars(plugin_data_pb2)["HParamsPluginData"]

    read = EventAccumulator(str(run / "tensorboard"))
    read.Reload()
    found = read._plugin_to_tag_to_content["hparams"]
    start = HParamsPluginData.FromString(found["_hparams_/session_start_info"]).session_start_info
    about = HParamsPluginData.FromString(found["_hparams_/experiment"]).experiment
    values = {name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()}
    return values, [metric.name.tag for metric in about.metric_infos]


def test_tensorboard_s_hparams_are_those_of_the_run_with_its_final_figures(folders: tuple[Path, Path]) -> None:
    live, later = map(_hparams, folders)
    assert live == later
    values, metrics = live
    assert (values["model"], values["model.dim"], values["seed"]) == ("lstm", 8, 1)
    assert not [name for name in values if name.startswith("logger")]
    summary, points = Run(folders[0]).summary, _points(folders[0])
    assert set(metrics) <= points.keys(), "the tab shows the last point of each of these names"
    assert points["best/validation/accuracy"][-1][1] == pytest.approx(summary.best["validation"]["accuracy"])
    assert not [path for path in (folders[0] / "tensorboard").iterdir() if path.is_dir()], "no run below the run"


@pytest.fixture(scope="module")
def stores(folders: tuple[Path, Path]) -> list[tuple[Any, str]]:
    """MLflow's client and the run's identity there, of each."""
    from mlflow import MlflowClient

    found = []
    for run in folders:
        client = MlflowClient(f"sqlite:///{run.parent / 'mlflow.db'}")
        found.append((client, (run / "mlflow_id").read_text()))
    return found


def _told(client: Any, identity: str) -> dict[str, Any]:
    run = client.get_run(identity)
    metrics = {}
    for name in run.data.metrics:
        points = client.get_metric_history(identity, name)
        metrics[name] = sorted((each.step, each.value, each.timestamp) for each in points)
    tags = {name: value for name, value in run.data.tags.items() if not name.startswith("mlflow.")}
    files: list[str] = []
    for entry in client.list_artifacts(identity):
        files += [entry.path, *(below.path for below in client.list_artifacts(identity, entry.path))]
    about = (run.info.status, run.info.end_time)
    return {"metrics": metrics, "params": run.data.params, "tags": tags, "files": sorted(files), "about": about}


def test_mlflow_gets_the_same_points_at_the_same_times_live_and_by_sync(
    folders: tuple[Path, Path], stores: list[tuple[Any, str]]
) -> None:
    live, later = (_told(*store) for store in stores)
    assert live == later
    for record in Run(folders[0]).metrics():
        for name in record.keys() - {"step", "time", "read"}:
            point = (record["step"], record[name], int(record["time"] * 1000))
            assert point in later["metrics"][name], (name, point)


def test_the_model_that_mlflow_was_sent_is_the_best_one_and_opens(
    stores: list[tuple[Any, str]], tmp_path: Path
) -> None:
    client, identity = stores[1]
    opened = open_run(client.download_artifacts(identity, "model", str(tmp_path)))
    best = Run(tmp_path / "model").summary.best["step"]
    assert opened.step == best
