"""Runs as ONNX files: onnxruntime computes what the model computes and writes the same text."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import seqtrain
from seqtrain.cli.main import main
from seqtrain.hub import onnx_export
from seqtrain.inference.opened import open_run
from tests.support.hub_folders import save
from tests.support.untrained_runs import make_run

BLOCKS = ("model.num_layers=2", "model.num_heads=2")
LANGUAGE = {
    "lstm": ("model=lstm", "model.num_layers=2", "tokenizer=word"),
    "gru": ("model=gru", "tokenizer=char"),
    "rnn": ("model=rnn", "model.num_layers=2", "tokenizer=byte"),
    "gpt": ("model=gpt", *BLOCKS, "model.attention_window=9", "tokenizer.size=270"),
    "min_gru": ("model=min_gru", "model.num_layers=2", "tokenizer=char"),
}
STEP_ALONE = ("min_gru",)
"""Models whose length is fixed once they are traced."""

long = pytest.mark.long


def exported(run: Path, folder: Path) -> dict[str, Any]:
    """What onnx.json says of the exported run."""
    assert main(["export", str(run), "--output", str(folder), "--format", "onnx"]) == 0
    return json.loads((folder / "onnx.json").read_text())


def session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(path))


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in ("gpt",) else [long]) for name in LANGUAGE])
def test_a_language_model_scores_and_writes_alike_in_onnxruntime(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", "task=next_token", *LANGUAGE[name])
    folder, trained = tmp_path / "out", seqtrain.load(run)
    about = exported(run, folder)
    said = "".join(capfd.readouterr())
    free = name not in STEP_ALONE
    assert set(about["files"]) == {"step.onnx", *(["read.onnx"] if free else [])}
    assert (f"{onnx_export.READ}: left out: " in said) is not free
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o644 for path in folder.iterdir())
    model, task, start = trained.model, trained.opened.task, trained.tokenizer.start
    for file in about["files"]:
        runner = session(folder / file)
        names = about["files"][file]
        for batch, length in ((1, 1), (2, 1)) if file == "step.onnx" else ((1, 5), (3, 12)):
            state = model.initial(batch)
            fed = [value.numpy() for value in state.values()]
            for seed in range(2):
                tokens = torch.randint(start + 1, (batch, length), generator=torch.Generator().manual_seed(seed))
                found = runner.run(None, dict(zip(names["inputs"], [tokens.numpy(), *fed], strict=True)))
                with torch.no_grad():
                    hidden, state = model(tokens, state)
                    assert torch.allclose(torch.from_numpy(found[0]), task.logits(model, hidden), 1e-5, 1e-5)
                fed = found[1:]
                for name_of_output, value in zip(names["outputs"][1:], fed, strict=True):
                    of = state[name_of_output.removeprefix("next_")]
                    assert np.allclose(value, of.numpy(), 1e-5, 1e-5), name_of_output
    (answer,) = trained.predict(["the animal"], length=100, temperature=0.0)
    code = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert code
    written = code[1].replace('"the"', '"the animal"')
    assert len(written.splitlines()) <= 18
    shown = subprocess.run([sys.executable, "-c", written], cwd=folder, capture_output=True, timeout=120)
    assert (shown.stdout.decode(), shown.stderr) == (f"{answer['prompt']}{answer['text']}\n", b"")


EXAMPLES = {
    "masked_lm": ("task=masked_lm", "model=bert", *BLOCKS, "tokenizer=char"),
    "labels": ("task=sentiment", "model=bert", *BLOCKS, "tokenizer=word", "task.pool=mean"),
    "of_a_decoder": ("task=sentiment", "model=gpt", *BLOCKS, "tokenizer=char", "model.attention_window=9"),
}


@pytest.mark.parametrize(
    "name", ["masked_lm", pytest.param("labels", marks=long), pytest.param("of_a_decoder", marks=long)]
)
def test_texts_read_whole_have_the_scores_of_the_task(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *EXAMPLES[name])
    about, trained = exported(run, tmp_path / "out"), seqtrain.load(run)
    model, task, tokenizer = trained.model, trained.opened.task, trained.tokenizer
    assert about["files"]["read.onnx"] == {"inputs": ["tokens", "lengths"], "outputs": ["scores"]}
    assert (about["before"], about["after"]) == ([tokenizer.start], [tokenizer.separator])
    assert about["labels"] == list(getattr(task, "labels", ()))
    for batch, length in ((2, 6), (3, 40)):
        tokens = torch.randint(tokenizer.vocab_size, (batch, length), generator=torch.Generator().manual_seed(batch))
        lengths = torch.tensor([length, length - 3, 2][:batch])
        fed = {"tokens": tokens.numpy(), "lengths": lengths.numpy()}
        (scores,) = session(tmp_path / "out" / "read.onnx").run(None, fed)
        with torch.no_grad():
            if about["labels"]:
                expected = task.logits(model, task.pooled(model, tokens, lengths))  # type: ignore[operator]
            else:
                expected = task.logits(model, model.encode(tokens, lengths))
        assert torch.allclose(torch.from_numpy(scores), expected, 1e-5, 1e-5)


def test_the_card_and_onnx_json_tell_how_values_are_scaled_for_a_forecast(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal([5.0, -40.0], [1.0, 9.0], (80, 2))
    np.savetxt(tmp_path / "a.csv", values, delimiter=",", header="load,price", comments="")
    small = ("model.dim=4", "data.max_length=8", "task.horizon=3", "trainer.max_steps=1", "logger=none")
    series = ("task=forecast", "model=gru", "data=series", f"data.path={tmp_path / 'a.csv'}", "data.channels=together")
    assert main(["train", *series, *small, "task.distribution=point", f"run_dir={tmp_path / 'run'}"]) == 0
    about, trained = exported(tmp_path / "run", tmp_path / "out"), seqtrain.load(tmp_path / "run")
    card = (tmp_path / "out/README.md").read_text()
    assert "`values` are (value - mean) / std of `onnx.json`, one channel for each of `columns`, in this order" in card
    assert not any(word in card for word in ("token", "Texts", "period"))
    assert (about["columns"], about["masked"], about["features"]) == (["load", "price"], [False, False], [])
    mean, std = np.array(about["mean"]), np.array(about["std"])
    runner, state = session(tmp_path / "out/step.onnx"), list(trained.model.initial(1).values())
    scores: Any = None
    for row in ((values - mean) / std)[-8:].astype(np.float32):
        fed = zip(about["files"]["step.onnx"]["inputs"], [row[None, None], *map(np.asarray, state)], strict=True)
        scores, *state = runner.run(None, dict(fed))
    assert "(3, 2) steps ahead and channels; a forecast is (`scores` + the last scaled value) * std + mean" in card
    found, table = scores.reshape(3, 2) * std + values[-1], trained.forecast(tmp_path / "a.csv")
    assert np.allclose(found, np.stack([table["load"], table["price"]], 1), 1e-5)


def test_a_file_that_fails_beside_the_model_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(onnx_export, "TOLERANCE", -1.0)
    run = make_run(tmp_path / "run", "task=next_token", "model=lstm", "tokenizer=char")
    assert main(["export", str(run), "--output", str(tmp_path / "out"), "--format", "onnx"]) == 2
    line = capfd.readouterr().err.strip().splitlines()[-1]
    assert "step.onnx: left out: its outputs in onnxruntime differ" in line
    assert "read.onnx: left out" in line
    assert not (tmp_path / "out").exists()
    unknown = RuntimeError("No ONNX function found for <OpOverload(op='aten.cummax', overload='default')>. Failure ...")
    assert onnx_export._reason(unknown) == "has no operator for aten.cummax"


def test_without_the_packages_one_line_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", "task=next_token", "model=lstm", "tokenizer=char")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["export", str(run), "--output", str(tmp_path / "out"), "--format", "onnx"]) == 2
    assert "--format onnx needs onnxruntime: pip install 'seqtrain[onnx]'" in capsys.readouterr().err


@long
def test_a_model_of_the_hub_speaks_in_the_ids_of_its_own_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    opened = open_run(save("bert", tmp_path / "in"))
    kept, _ = onnx_export.save(opened.model, opened.task, opened.preprocessor, "".join, tmp_path / "out")
    assert kept == ["read.onnx"]
    theirs = torch.from_numpy(opened.tokenizer.theirs)  # type: ignore[attr-defined]
    tokens = torch.tensor([[opened.tokenizer.start, 5, opened.tokenizer.mask, 7]])
    fed = {"tokens": theirs[tokens].numpy(), "lengths": np.array([4])}
    scores: Any = session(tmp_path / "out" / "read.onnx").run(None, fed)[0]
    with torch.no_grad():
        ours = opened.task.logits(opened.model, opened.model.encode(tokens))
    size = opened.tokenizer.vocab_size
    assert torch.allclose(torch.from_numpy(scores)[..., theirs[:size]], ours, 1e-5, 1e-5)
    assert np.isneginf(scores[..., theirs[size:].numpy()]).all()
