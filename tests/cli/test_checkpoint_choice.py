"""Laws of the commands that open a run: they take its best checkpoint, and its last one where that is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from pyarrow import parquet

import seqtrain
from seqtrain.cli import main
from seqtrain.runs import checkpoint
from tests.support.untrained_runs import NEXT_TOKEN, STEP, TEXTS, make_run

BEST_STEP = 3


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose best and last checkpoints hold other weights."""
    path = make_run(tmp_path_factory.mktemp("runs") / "run", *NEXT_TOKEN)
    folder = path / "checkpoints"
    saved = checkpoint.load(folder / checkpoint.step_name(STEP))
    weights = {name: weight.roll(1) for name, weight in saved["state_dict"].items()}
    checkpoint.save(saved | {"state_dict": weights, "global_step": BEST_STEP}, folder / checkpoint.BEST)
    return path


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    name = checkpoint.BEST if step == BEST_STEP else checkpoint.step_name(STEP)
    return checkpoint.load(run / "checkpoints" / name)["state_dict"]


def opened(run: Path, step: int) -> seqtrain.Trained:  # type: ignore[name-defined]
    """The run with the weights of that step, which are put in here."""
    trained = seqtrain.load(run)
    for name, module in (("model", trained.model), ("task", trained.task)):
        own = {key.partition(".")[2]: value for key, value in weights(run, step).items() if key.startswith(f"{name}.")}
        module.load_state_dict(own)
    return trained


def test_predict_and_python(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, step in (((), BEST_STEP), (("--checkpoint", "best"), BEST_STEP), (("--checkpoint", "last"), STEP)):
        assert main.main(["predict", str(run), TEXTS[0], "--score", "--json", *options]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["loss"] == pytest.approx(opened(run, step).score(TEXTS[0])["loss"], rel=1e-6), options
        trained = seqtrain.load(run, checkpoint=options[-1]) if options else seqtrain.load(run)  # type: ignore[arg-type]
        assert trained.opened.step == step
        for name, weight in weights(run, step).items():
            if name.startswith("model."):
                assert torch.equal(trained.model.state_dict()[name.removeprefix("model.")], weight), name


@pytest.mark.parametrize(("options", "step"), [((), BEST_STEP), (("--checkpoint", "last"), STEP)])
def test_embed_and_search(
    run: Path, options: tuple[str, ...], step: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, vectors = tmp_path / "lines.txt", tmp_path / "vectors.parquet"
    lines.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    assert main.main(["embed", str(run), "--input", str(lines), "--output", str(vectors), *options]) == 0
    expected = opened(run, step).embed(TEXTS)
    found = torch.tensor(parquet.read_table(vectors).column("embedding").to_pylist())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    capsys.readouterr()
    assert main.main(["search", str(run), TEXTS[0], "--corpus", str(lines), "--json", *options]) == 0
    best = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    cosines = torch.nn.functional.cosine_similarity(expected.double(), expected[:1].double())
    order = cosines.argsort(descending=True).tolist()
    assert [found["text"] for found in best] == [TEXTS[place] for place in order]
    assert [found["score"] for found in best] == pytest.approx(cosines[order].tolist(), abs=1e-5)
    lines.write_text("\x1b[31mred\n", encoding="utf-8")
    assert main.main(["search", str(run), TEXTS[0], "--corpus", str(lines), *options]) == 0
    assert capsys.readouterr().out.endswith("  \\u001b[31mred\n")
