"""Adapters from end to end: train, kill, resume, evaluate, predict, export, begin again; and a parent that is gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seqtrain.runs.checkpoint import load
from tests.conftest import Seqtrain
from tests.journeys.walk import SMALL, Walk, assert_twins, figures

ROWS = [("good film the cat sat", "yes"), ("bad film the dog ran", "no"), ("a good mat", "yes"), ("bad far dog", "no")]
TEXT = ("data=text", "data.path=t.txt", "data.split_by=position", "tokenizer=char", "tbptt.k2=16")
LABELLED = ("task=sentiment", "data=labelled", "data.path=rows.tsv", "data.batch_tokens=64", "data.test_fraction=0.2")


@pytest.mark.parametrize(
    "model", [("model=gpt", "model.num_layers=2"), pytest.param(("model=lstm",), marks=pytest.mark.long)]
)
def test_adapters_are_trained_killed_resumed_and_used(
    model: tuple[str, ...], seqtrain: Seqtrain, tmp_path: Path
) -> None:
    walk = Walk(seqtrain, tmp_path)
    (tmp_path / "t.txt").write_text("the cat sat on the mat and the dog ran. " * 100)
    (tmp_path / "rows.tsv").write_text("\n".join(["text\tlabel", *(f"{a}\t{b}" for a, b in ROWS * 10)]) + "\n")
    walk.train("parent", *TEXT, *SMALL, *model)
    words = (
        *LABELLED,
        *[word for word in SMALL if word != "model.dim=16"],
        "init_from=parent",
        "adapter=lora",
        "adapter.rank=2",
    )
    whole, killed = walk.train("whole", *words), walk.train_killed("killed", *words)
    assert_twins(whole, killed)
    saved = load(whole / "checkpoints/best.ckpt")["state_dict"]
    assert all("parametrizations" in name or name.startswith("task.") for name in saved)
    assert walk.evaluate("whole", "validation") == figures(whole)
    # What leaves is a model without adapters, in which another training may begin.
    answer = walk.type("predict", "whole", "good cat")
    walk.type("export", "whole", "--output", "merged")
    walk.train("child", *LABELLED, *words[len(LABELLED) : -3], "init_from=whole")
    # The run keeps what it adapts: its parent may go on, or away.
    (tmp_path / "parent").rename(tmp_path / "moved")
    assert walk.type("predict", "merged", "good cat") == answer
    assert walk.type("predict", "whole", "good cat") == answer
    for cause in ("are not the original ones", "are missing"):
        shutil.rmtree(whole / "parent")
        if cause == "are not the original ones":
            walk.type("export", "child", "--output", "whole/parent")
        refused = seqtrain("predict", "whole", "good cat", cwd=tmp_path)
        assert (refused.rc, refused.out) == (2, "")
        assert refused.err.startswith(f"error: whole/parent: the weights that the adapters of this run change {cause}")
    refused = seqtrain("resume", "whole", "trainer.max_steps=19", cwd=tmp_path)
    assert refused.rc == 2
    assert "error: run parent does not exist" in refused.err
    assert refused.err.endswith("; restore whole/parent, which contains the weights that the adapters change\n")
