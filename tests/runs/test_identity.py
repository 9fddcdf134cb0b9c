"""Laws of what a run is: nothing that changes its numbers changes between two of its steps without a word."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import seqtrain as package
from seqtrain.config.options import TrainerOptions
from seqtrain.errors import UserError
from seqtrain.experiment.resume import resume
from seqtrain.runs.checkpoint import load, save, step_name
from seqtrain.runs.directory import Run
from seqtrain.runs.identity import TRAINER, decisive
from tests.conftest import REPOSITORY
from tests.support import tiny
from tests.training.test_checkpoint_check import moments, trained

STEP = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds `run`, a finished run of four steps, and what a kill after its third step would have left."""
    folder = tiny.corpus(tmp_path_factory.mktemp("identity"), lines=60)
    run = Run(trained(folder, "callbacks=none"))
    run.update_summary(status="running")
    (run.checkpoints / step_name(STEP)).rename(folder / step_name(STEP))
    return folder


@pytest.fixture
def killed(folder: Path, tmp_path: Path) -> Path:
    """A copy of the run as if it had been killed after its third step."""
    return shutil.copytree(folder / "run", tmp_path / "run")


def edit(run: Path, **values: Any) -> None:
    """Sets values in config.yaml, as a person may: `trainer__grad_clip` is trainer.grad_clip."""
    path = run / "config.yaml"
    config = yaml.safe_load(path.read_text())
    for name, value in values.items():
        *groups, key = name.split("__")
        node = config
        for group in groups:
            node = node[group]
        node[key] = value
    path.write_text(yaml.safe_dump(config))


# -- the table -------------------------------------------------------------------------------------------------------


def test_every_option_of_the_trainer_is_identity_or_said_or_free() -> None:
    files = (REPOSITORY / "conf" / "trainer").glob("*.yaml")
    keys = {key for path in files for key in yaml.safe_load(path.read_text())} - {"defaults"}
    assert keys == TRAINER.keys() == set(TrainerOptions.__dataclass_fields__)
    assert set(TRAINER.values()) == {"identity", "said", "free"}


EDITS: dict[str, Any] = {
    "trainer__strategy": "fsdp",
    "trainer__precision": "bf16-mixed",
    "trainer__deterministic": True,
    "trainer__compile": "blocks",
    "trainer__eval_precision": "training",
    "trainer__accumulate": 1,
    "trainer__grad_clip": 0.5,
    "trainer__validate_every": 2,
    "trainer__on_nonfinite": "skip",
    "seed": 2,
    "layer_decay": 0.5,
    "freeze": ["embed"],
    "budget": "flops:1e9",
    "model__dropout": 0.1,
    "task__tied": False,
    "data__lanes": 2,
    "data__eval_lanes": 2,
    "tbptt__k2": 4,
    "tbptt__reset": "document",
    "optimizer__lr": 0.1,
    "optimizer__betas": [0.9, 0.99],
    "schedule__final": 0.5,
    "tokenizer___target_": "seqtrain.data.tokenizers.recipes.Byte",
    "callbacks__early_stopping": {
        **{"_target_": "pytorch_lightning.callbacks.EarlyStopping", "monitor": "validation/loss", "mode": "min"},
        **{"patience": 3, "min_delta": 0.0},
    },
}


def test_a_config_that_was_edited_after_a_kill_trains_no_other_run(killed: Path) -> None:
    identity = {name for name, kind in TRAINER.items() if kind == "identity"}
    assert identity == {key.removeprefix("trainer__") for key in EDITS if key.startswith("trainer__")}
    written, before = (killed / "config.yaml").read_bytes(), (killed / "metrics.jsonl").read_bytes()
    for key, value in EDITS.items():
        (killed / "config.yaml").write_bytes(written)
        edit(killed, **{key: value})
        with pytest.raises(UserError) as fault:
            resume(str(killed), [], ())
        (line,) = fault.value.lines
        assert key.replace("__", ".", 1) in line
        assert (killed / "metrics.jsonl").read_bytes() == before, key
        assert Run(killed).summary.status == "running", key


def test_what_changes_no_number_or_is_said_makes_no_other_run(killed: Path) -> None:
    before = Run(killed).identity
    free = {f"trainer__{name}": 7 for name, kind in TRAINER.items() if kind != "identity"}
    free |= {"data__workers": 2, "data__eval_batch_size": 2, "data__path": "elsewhere.txt"}
    free |= {"run_dir": "x", "init_from": "moved", "logger": {"x": {}}}
    free |= {"callbacks__curves": {"_target_": "seqtrain.training.callbacks.curves.Curves"}}
    for key, value in free.items():
        edit(killed, **{key: value})
        assert Run(killed).identity == before, key


def test_a_callback_of_a_users_is_part_of_the_run() -> None:
    config = {"callbacks": {"mine": {"_target_": "mine.Noise", "scale": 1}}, "data": {}, "trainer": {}}
    assert decisive(config) == {"callbacks.mine._target_": "mine.Noise", "callbacks.mine.scale": 1}


# -- resume ----------------------------------------------------------------------------------------------------------


def test_a_limit_that_was_edited_by_hand_extends_the_run_as_an_override_does(
    killed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(killed, trainer__max_steps=5)
    resume(str(killed), [], ())
    assert "trainer.max_steps: 4 -> 5\n" in capsys.readouterr().err
    assert Run(killed).summary.steps == 5


def test_a_run_goes_on_with_fewer_lanes_at_a_time_in_evaluation(
    killed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resume(str(killed), ["data.eval_batch_size=1"], ())
    assert "data.eval_batch_size: None -> 1\n" in capsys.readouterr().err
    assert Run(killed).summary.steps == STEP


def test_what_lowers_the_memory_of_training_is_for_a_new_run(killed: Path) -> None:
    for key in ("trainer.accumulate=2", "data.batch_size=2", "tbptt.k2=4"):
        with pytest.raises(UserError, match="cannot change in a resumed run"):
            resume(str(killed), [key], ())


def test_a_run_without_a_checkpoint_begins_again_as_it_began_only(killed: Path) -> None:
    shutil.rmtree(killed / "checkpoints")
    edit(killed, trainer__grad_clip=0.5)
    with pytest.raises(UserError, match=r"config\.yaml was edited, which would make it another run"):
        resume(str(killed), [], ())
    edit(killed, trainer__grad_clip=1.0)
    resume(str(killed), [], ())
    assert Run(killed).summary.steps == STEP


@pytest.mark.long
def test_what_the_bits_depend_on_is_said_where_it_differs_from_the_checkpoints(
    killed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = killed / "checkpoints" / step_name(3)
    saved = load(path)
    assert saved["seqtrain"]["where"]["torch"] == torch.__version__
    saved["seqtrain"]["where"] |= {"torch": "2.0.1", "threads": 99, "processes": 3, "machine": "another"}
    save(saved, path)
    resume(str(killed), [], ())
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"since {path} was written: ")]
    assert len(lines) == 1
    for word in ("torch '2.0.1' -> ", "threads 99 -> ", "processes 3 -> 1", "machine 'another' -> "):
        assert word in lines[0]


def test_a_refused_checkpoint_leaves_config_summary_and_records_as_they_were(killed: Path) -> None:
    saved = load(killed / "checkpoints" / step_name(3))
    moments(saved).update(exp_avg=torch.zeros(1))
    save(saved, killed / "checkpoints" / step_name(3))
    before = {path.name: path.read_bytes() for path in killed.glob("*.*") if path.is_file()}
    with pytest.raises(UserError, match="exp_avg is float32 of 1") as fault:
        resume(str(killed), ["trainer.max_steps=6"], ("seqtrain", "resume"))
    assert len(fault.value.lines) == 1
    assert {path.name: path.read_bytes() for path in killed.glob("*.*") if path.is_file()} == before


def test_a_step_beyond_what_the_run_may_have_is_refused(killed: Path) -> None:
    saved = load(killed / "checkpoints" / step_name(3))
    save(saved | {"global_step": 99_999_999}, killed / "checkpoints" / step_name(99_999_999))
    with pytest.raises(UserError, match=r"trainer\.max_steps=4: run .* is already at step 99999999"):
        resume(str(killed), [], ())
    edit(killed, trainer__max_steps=None, trainer__max_epochs=1)
    with pytest.raises(UserError, match=r"allow \d+ steps, but checkpoint .* is already at step 99999999"):
        resume(str(killed), [], ())


# -- the checkpoints of another run ------------------------------------------------------------------------------------


def other(saved: dict[str, Any]) -> None:
    saved["seqtrain"]["run"]["config"]["seed"] = 9


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (other, "seed was 9 when it was written and is 1 in config.yaml"),
        (lambda saved: saved["seqtrain"]["run"]["hashes"].update(train="0" * 32), "a run whose train differs"),
        (lambda saved: saved["seqtrain"]["run"].update(parent="other"), "began with other weights"),
        (lambda saved: saved["seqtrain"]["run"].pop("config"), "does not say which run wrote it"),
        (lambda saved: saved.pop("seqtrain"), "does not say which run wrote it"),
    ],
)
def test_no_command_opens_a_checkpoint_of_another_run(
    killed: Path, change: Callable[[dict[str, Any]], Any], says: str
) -> None:
    if "weights" in says:
        Run(killed).update_summary(parent="one")
    for path in (killed / "checkpoints").glob("*.ckpt"):
        saved = load(path)
        change(saved)
        save(saved, path)
    for checkpoint in ("best", "last"):
        with pytest.raises(UserError, match=says):
            package.load(killed, checkpoint=checkpoint)


def test_the_best_checkpoint_is_of_the_step_that_the_summary_says(killed: Path) -> None:
    run = Run(killed)
    run.update_summary(status="finished")
    package.load(killed)
    (killed / "checkpoints" / "best.ckpt").unlink()
    shutil.copy(killed / "checkpoints" / step_name(3), killed / "checkpoints" / "best.ckpt")
    with pytest.raises(UserError, match=r"is from step 3, but the best step in summary\.json is 4"):
        package.load(killed)


def test_a_weight_that_is_no_number_is_said(killed: Path) -> None:
    for path in (killed / "checkpoints").glob("*.ckpt"):
        saved = load(path)
        saved["state_dict"]["model.embed.weight"][0, 0] = float("nan")
        save(saved, path)
    with pytest.raises(UserError, match=r"model\.embed\.weight.* contains nan or inf"):
        package.load(killed)


def test_the_parent_of_a_run_is_known_by_its_weights(folder: Path, tmp_path: Path) -> None:
    parent = shutil.copytree(folder / "run", tmp_path / "parent")
    tiny.corpus(tmp_path, lines=60)
    child = trained(tmp_path, "callbacks=none", f"init_from={parent}")
    known = Run(child).summary.parent
    assert load(child / "checkpoints" / step_name(3))["seqtrain"]["run"]["parent"] == known
    shutil.rmtree(child / "checkpoints")
    Run(child).update_summary(status="running")
    for path in (parent / "checkpoints").glob("*.ckpt"):
        saved = load(path)
        saved["state_dict"]["model.embed.weight"][0, 0] += 1
        save(saved, path)
    with pytest.raises(UserError, match=r"init_from=.*: its weights or tokenizers have changed since the run began"):
        resume(str(child), [], ())
