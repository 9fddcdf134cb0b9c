"""Models made only to be asked start nothing that takes a second."""

from __future__ import annotations

import subprocess
import sys

import pytest

MAKE = """
import sys
from seqtrain.config import check
from seqtrain.training.model_and_task import on_meta
from seqtrain.training.model_and_task import make_model

with on_meta():
    model = make_model(check.compose(["model={name}", *{overrides}]).config, 50, target_vocab_size={target})
assert all(weight.is_meta for weight in model.parameters())
assert "torch._dynamo" not in sys.modules, "torch's compiler was imported"
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["lstm", "gpt", "bert", "encoder_decoder"])
def test_a_model_on_the_meta_device_is_made_without_torch_s_compiler(name: str) -> None:
    target = 50 if name == "encoder_decoder" else None
    overrides = ["task=translation"] if target else []
    code = MAKE.format(name=name, overrides=overrides, target=target)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
