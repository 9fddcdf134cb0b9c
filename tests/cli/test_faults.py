"""What a user can mend ends with exit code 2 and one line that names it, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import open_dict

from seqtrain.config import check, preflight
from seqtrain.errors import UserError


def test_every_fault_of_a_stage_is_told_at_once(tmp_path: Path, seqtrain) -> None:
    wrong = ("model.dmi=64", "+trainerx=gpu", "trainer.max_steps=abc", "tokenizer=bpee", "data.batch_size=-1", "[=")
    answer = seqtrain("train", *wrong, cwd=tmp_path)
    errors = [line.partition(":")[2].strip() for line in answer.err.splitlines()]
    assert answer.rc == 2
    assert sorted(error.partition(":")[0] for error in errors) == sorted(word.lstrip("+") for word in wrong)


def test_every_fault_of_the_preflight_is_told_at_once() -> None:
    wrong = ["trainer.devices=all", "trainer.num_nodes=2", "tbptt.k1=7", "data.path=/nowhere"]
    with pytest.raises(UserError) as raised:
        preflight.check_machine_and_data(check.compose(["data=text", *wrong]).config)
    assert [line.partition(":")[0] for line in raised.value.lines] == wrong


SOUND = (
    ["model.dropout=0", "optimizer.lr=1e-3", "optimizer.betas=[0.9,0.95]", "trainer.grad_clip=null"],
    ["optimizer.amsgrad=true", "+optimizer.maximize=false"],
    ["model.dim=${data.batch_size}", "logger.wandb.tags=[a,b]", "callbacks.samples=null"],
    ["~callbacks.samples", "~experiment", "experiment=null", "+model=gpt"],
    ["logger=[wandb,tensorboard]", 'run_dir="2024"', "model={dim:32,num_layers:2}"],
)


def test_what_is_sound_is_accepted() -> None:
    for overrides in SOUND:
        check.compose(overrides)


def test_a_composed_config_passes_the_check_by_itself() -> None:
    composed = check.compose(["model=gpt"])
    check.check_config(composed.config)
    composed.config.model.norm = "both"
    with pytest.raises(UserError, match=r"model.norm=both: expected pre or post$"):
        check.check_config(composed.config)


def test_what_a_config_lacks_is_named() -> None:
    composed = check.compose([])
    with open_dict(composed.config):
        del composed.config["tbptt"], composed.config["trainer"]["grad_clip"], composed.config["data"]["batch_size"]
    with pytest.raises(UserError) as raised:
        check.check_config(composed.config)
    lacking = [line.partition(": missing")[0] for line in raised.value.lines if ": missing" in line]
    assert sorted(lacking) == ["data.batch_size", "tbptt", "trainer.grad_clip"]


def test_a_cold_interpreter_refuses_a_wrong_key_without_torch(tmp_path: Path) -> None:
    program = (
        "import sys; from seqtrain.cli.main import main; code = main(['train', 'model.dmi=64']); "
        "print(sorted({'torch', 'numpy', 'pytorch_lightning', 'datasets', 'wandb'} & set(sys.modules))); sys.exit(code)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "[]\n")
    assert answer.stderr == "error: model.dmi=64: model=lstm has no option dmi; did you mean dim?\n"
