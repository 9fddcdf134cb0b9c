"""Short documents, trained end to end by the command line, cost what each costs when it is read alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import seqtrain as api
from tests.conftest import Seqtrain

MODELS = ("model=lstm", "model=stack model.mixers=gated_delta", "model=gpt model.num_layers=1 model.num_heads=2")


@pytest.mark.parametrize("model", [pytest.param(MODELS[0], marks=pytest.mark.long), MODELS[1], *MODELS[2:]])
def test_the_loss_of_packed_documents_is_that_of_each_alone(model: str, seqtrain: Seqtrain, tmp_path: Path) -> None:
    texts = [f"{n} is {'abc'[n % 3] * (n % 9 + 1)} and {n * n % 97}" for n in range(90)]
    for name, some in (("train", texts[:70]), ("validation", texts[70:80]), ("test", texts[80:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in some))
    given = "data=text data.path=train.jsonl data.validation_path=validation.jsonl data.test_path=test.jsonl"
    cut = "tokenizer=char tbptt=carry tbptt.k2=32 tbptt.reset=document data.batch_size=4 data.eval_lanes=3"
    small = "model.dim=16 trainer.max_steps=12 trainer.validate_every=6 trainer.precision=64-true logger=none"
    options = f"task=next_token {given} {cut} {small} {model} trainer.accelerator=cpu run_dir=run"
    assert seqtrain("train", *options.split(), cwd=tmp_path).rc == 0
    evaluated = seqtrain("evaluate", "run", "--split", "test", "--json", cwd=tmp_path)
    found = json.loads(evaluated.out)["metrics"]["bits_per_byte"]
    run = api.load(tmp_path / "run")
    bits = sum(run.score(text)["bits_per_byte"] * len(text.encode()) for text in texts[80:])
    assert found == pytest.approx(bits / sum(len(text.encode()) for text in texts[80:]), rel=1e-9)
