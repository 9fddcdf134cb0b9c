"""A folder of the hub from end to end by the command line: inspect, fine-tune, kill, resume, evaluate, predict."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

import pytest

from tests.conftest import Seqtrain
from tests.support.hub_folders import FAMILIES, save

ROWS = [("good film the cat sat", "yes"), ("bad film the dog ran", "no"), ("a good mat", "yes"), ("bad far dog", "no")]
SMALL = (
    "data=labelled",
    "data.path=rows.tsv",
    "data.batch_tokens=64",
    "data.max_length=16",
    "trainer.validate_every=3",
)
PLAIN = ("logger=none", "trainer.accelerator=cpu", "trainer.precision=32-true", "trainer.checkpoint_every=2")


def write_rows(folder: Path) -> None:
    lines = [f"{text}\t{label}" for text, label in ROWS * 10]
    (folder / "rows.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")


def run(seqtrain: Seqtrain, cwd: Path, *words: str) -> str:
    answer = seqtrain(*words, cwd=cwd)
    assert answer.rc == 0, answer.err
    return answer.out + answer.err


def test_a_folder_of_the_hub_is_fine_tuned_killed_resumed_evaluated_and_used(
    seqtrain: Seqtrain, tmp_path: Path
) -> None:
    save("bert", tmp_path / "bert")
    write_rows(tmp_path)
    about = json.loads(run(seqtrain, tmp_path, "inspect", "bert", "--json"))
    assert (about["model_type"], about["model"], about["options"]["norm_eps"]) == ("bert", "bert", 1e-12)
    # Nothing of the model is typed: its options, its tokenizer and its weights come from the folder.
    train = ("train", "task=sentiment", "init_from=bert", *SMALL, *PLAIN, "trainer.max_steps=8")
    said = run(seqtrain, tmp_path, *train, "run_dir=whole")
    assert "model: from bert, with its options" in said
    assert "tokenizer: from bert" in said
    assert "init_from: loaded" in said
    child = seqtrain.start(*train, "run_dir=killed", cwd=tmp_path)
    while not list((tmp_path / "killed/checkpoints").glob("step-*.ckpt")):
        assert child.poll() is None
        time.sleep(0.01)
    child.kill()
    child.wait()
    run(seqtrain, tmp_path, "resume", "killed")
    hashes = [run(seqtrain, tmp_path, "export", name, "--output", f"{name}-out") and
              (tmp_path / f"{name}-out/model.safetensors").read_bytes() for name in ("whole", "killed")]  # fmt: skip
    assert hashes[0] == hashes[1]
    assert "accuracy" in run(seqtrain, tmp_path, "evaluate", "whole")
    assert "yes" in run(seqtrain, tmp_path, "predict", "whole", "good cat")
    # The same tokenizer without the weights, to compare with.
    scratch = [word for word in train if not word.startswith("init_from")]
    given = ("tokenizer=given", "tokenizer.path=bert")
    said = run(seqtrain, tmp_path, *scratch, "model=bert", "model.dim=16", *given, "run_dir=scratch")
    assert "tokenizer: from bert" in said
    assert "init_from" not in said
    tokenizers = [(tmp_path / f"{name}/tokenizer.json").read_bytes() for name in ("whole", "scratch")]
    assert tokenizers[0] == tokenizers[1]
    assert "whole" in run(seqtrain, tmp_path, "compare", "whole", "scratch")


def test_a_folder_of_the_hub_is_used_as_it_is(seqtrain: Seqtrain, tmp_path: Path) -> None:
    for family in ("bert", "gpt2"):
        save(family, tmp_path / family)
    assert "  1: " in run(seqtrain, tmp_path, "predict", "bert", "the [MASK] sat")
    assert len(run(seqtrain, tmp_path, "predict", "gpt2", "the", "--length", "5", "--greedy")) > 4
    answer = seqtrain("predict", save("distilbert", tmp_path / "bare").name, "the [MASK] sat", cwd=tmp_path)
    assert (answer.rc, answer.out) == (2, "")
    assert answer.err.startswith(
        "error: this folder of the hub has no head that could fill masks; fine-tune it with init_from, "
    )


def test_typed_options_win_over_those_of_the_folder_and_one_that_does_not_fit_is_refused(
    seqtrain: Seqtrain, tmp_path: Path
) -> None:
    save("gpt2", tmp_path / "gpt2")
    (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 200)
    train = (
        "train",
        "init_from=gpt2",
        "data=text",
        "data.path=text.txt",
        "data.split_by=position",
        "data.batch_size=2",
        *PLAIN,
    )
    short = ("trainer.max_steps=2", "tbptt=windows", "tbptt.k2=8")
    run(seqtrain, tmp_path, *train, *short, "model.dropout=0.3", "run_dir=one")
    config = (tmp_path / "one/config.yaml").read_text()
    assert "dropout: 0.3" in config
    assert "activation: gelu_tanh" in config
    answer = seqtrain(*train, *short, "model.dim=32", cwd=tmp_path)
    assert (answer.rc, answer.out) == (2, "")
    assert "model.dim=32 here, but that run's model has 16; set model.dim=16" in answer.err


@pytest.mark.long
@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in ("bert", "gpt2")])
def test_every_other_family_begins_a_training(family: str, seqtrain: Seqtrain, tmp_path: Path) -> None:
    save(family, tmp_path / family)
    write_rows(tmp_path)
    asked = ("task=sentiment", *SMALL)
    if family == "marian":  # with the head that it came with
        asked = ("task=translation", "task.tied=false", "data.size=2000", "data.batch_tokens=256", "data.max_length=32")
    said = run(seqtrain, tmp_path, "train", f"init_from={family}", *asked, *PLAIN, "trainer.max_steps=2")
    assert "init_from: loaded" in said
    assert ("new: nothing; left behind: nothing" in said) == (family == "marian"), said


def test_what_the_front_page_says_of_a_folder_of_the_hub_runs_as_it_is_typed(
    seqtrain: Seqtrain, tmp_path: Path
) -> None:
    from transformers import AutoModel

    save("bert", tmp_path / "MiniLM")
    write_rows(tmp_path)
    (tmp_path / "rows.tsv").rename(tmp_path / "reviews.tsv")
    page = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    block = next(part for part in page.split("```") if "seqtrain inspect" in part)
    commands = [
        shlex.split(line, comments=True)[1:] for line in block.splitlines() if "MiniLM" in line or "tuned" in line
    ]
    assert [words[0] for words in commands] == ["inspect", "train", "export"]
    for words in commands:
        small = (*SMALL[2:], *PLAIN, "trainer.max_steps=6") if words[0] == "train" else ()
        run(seqtrain, tmp_path, *words, *small)
    assert "lr: 0.001" in (tmp_path / "outputs/tuned/config.yaml").read_text()  # 5e-5 is of weights that all learn
    assert type(AutoModel.from_pretrained(tmp_path / "tuned")).__name__ == "BertModel"
