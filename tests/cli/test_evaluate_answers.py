"""Laws of `evaluate`: its numbers are those of the answers that the run gives to the text of the split asked for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

import seqtrain
from seqtrain.cli.evaluate import evaluate
from seqtrain.runs import checkpoint
from tests.support.untrained_runs import STEP, make_run

# Of each split another text, another share of letters that take two bytes, and another number of rows.
TEXTS = {
    "train": "the street was too long for it\n" * 3,
    "validation": "the animal was tired and slow\n",
    "test": "déjà vu: déjà, déjà! à la fin\n",
}
LABELLED = {
    "train": [("the animal was tired", "bad"), ("a film", "fair"), ("good street", "good")],
    "validation": [("a film that was not good", "good"), ("long", "bad"), ("slow and long", "bad")],
    "test": [("déjà vu", "bad"), ("the animal", "fair"), ("it was not good", "fair"), ("tired", "good"), ("a", "bad")],
}
PAIRS = {
    "train": [("a film", "the animal was tired")],
    "validation": [("the street was long", "a film that was good"), ("slow", "tired")],
    "test": [("déjà vu", "a film that was not good"), ("the animal was slow", "it was too long for it")],
}


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))


def table(folder: Path, heads: tuple[str, str], rows: dict[str, list[tuple[str, str]]]) -> list[str]:
    """Writes a tsv of each split; gives the options that name them."""
    for split, pairs in rows.items():
        lines = ["\t".join(row) + "\n" for row in (heads, *pairs)]
        (folder / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    return [
        f"data.path={folder}/train.tsv",
        *(f"data.{each}_path={folder}/{each}.tsv" for each in ("validation", "test")),
    ]


def small(folder: Path, *overrides: str) -> Path:
    return make_run(folder / "run", *overrides, "trainer.accelerator=cpu", "trainer.precision=32-true", "logger=none")


def metrics(run: Path, split: str, **options: Any) -> dict[str, float]:
    """What evaluate finds, told of the run as it is."""
    found = evaluate(str(run), split, options.get("checkpoint", "last"), options.get("batch_size"))
    assert found["split"] == split
    return found["metrics"]


def text_run(folder: Path, *overrides: str) -> Path:
    for split, text in TEXTS.items():
        (folder / f"{split}.txt").write_text(text, encoding="utf-8")
    paths = [
        f"data.path={folder}/train.txt",
        *(f"data.{each}_path={folder}/{each}.txt" for each in ("validation", "test")),
    ]
    return small(folder, *overrides, "data=text", *paths)


def test_bits_per_byte_are_of_the_bytes_of_the_split_that_was_asked_for(tmp_path: Path) -> None:
    run = text_run(tmp_path, "task=next_token", "model=gru", "tokenizer=char", "data.eval_lanes=1", "tbptt.k2=8")
    for split, text in TEXTS.items():
        found, scored = metrics(run, split), seqtrain.load(run).score(text)
        bits = math.fsum(token["bits"] for token in scored["tokens"])
        assert len(scored["tokens"]) == len(text)
        assert scored["bits_per_byte"] == pytest.approx(bits / len(text.encode()), rel=1e-9), split
        assert found["bits_per_byte"] == pytest.approx(scored["bits_per_byte"], rel=1e-5), split
        assert found["loss"] == pytest.approx(scored["loss"], rel=1e-5)
        assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))


def test_the_checkpoint_that_was_asked_for_is_measured(tmp_path: Path) -> None:
    run = text_run(tmp_path, "task=next_token", "model=gru", "tokenizer=char", "data.eval_lanes=1", "tbptt.k2=8")
    folder = run / "checkpoints"
    saved = checkpoint.load(folder / checkpoint.step_name(STEP))
    weights = {name: weight.roll(1) for name, weight in saved["state_dict"].items()}
    checkpoint.save(saved | {"state_dict": weights, "global_step": 3}, folder / checkpoint.BEST)
    answers = {which: evaluate(str(run), "test", which, None) for which in ("best", "last")}
    assert {which: answer["step"] for which, answer in answers.items()} == {"best": 3, "last": STEP}
    assert abs(answers["best"]["metrics"]["loss"] - answers["last"]["metrics"]["loss"]) > 0.01


def test_accuracy_and_loss_of_labels_are_those_of_the_answers(tmp_path: Path) -> None:
    split, paths = "test", table(tmp_path, ("text", "label"), LABELLED)
    run = small(
        tmp_path, "task=sentiment", "model=gru", "tokenizer=char", "data=labelled", *paths, "data.batch_tokens=256"
    )
    texts, labels = zip(*LABELLED[split], strict=True)
    answers = seqtrain.load(run).classify(texts)
    right = [answer["label"] == label for answer, label in zip(answers, labels, strict=True)]
    nats = [-math.log(answer["probabilities"][label]) for answer, label in zip(answers, labels, strict=True)]
    for size in (None, 1):
        found = metrics(run, split, batch_size=size)
        assert found["accuracy"] == pytest.approx(sum(right) / len(right))
        assert found["loss"] == pytest.approx(math.fsum(nats) / len(nats), rel=1e-5)


@pytest.mark.long
def test_pseudo_perplexity_is_that_of_the_scores_of_the_first_texts(tmp_path: Path) -> None:
    split, paths = "test", table(tmp_path, ("text", "label"), LABELLED)
    model = ("model=bert", "model.num_layers=1", "model.num_heads=2", "tokenizer=char")
    run = small(tmp_path, "task=masked_lm", "task.pseudo_examples=2", *model, "data=text", *paths)
    scores = [seqtrain.load(run).score(text) for text, _ in LABELLED[split][:2]]
    nats = [token["bits"] * math.log(2) for score in scores for token in score["tokens"]]
    assert metrics(run, split)["pseudo_perplexity"] == pytest.approx(math.exp(math.fsum(nats) / len(nats)), rel=1e-4)


def test_bleu_and_chrf_are_those_of_the_translations_as_they_are_read(tmp_path: Path) -> None:
    split, paths = "test", table(tmp_path, ("source", "target"), PAIRS)
    columns = ("data.source_column=source", "data.target_column=target")
    model = ("model=rnn_encoder_decoder", "tokenizer=char")
    run = small(tmp_path, "task=translation", *model, "data=parallel", *columns, *paths)
    sources, references = zip(*PAIRS[split], strict=True)
    written = seqtrain.load(run).translate(sources)
    found = metrics(run, split)
    assert found["chrf"] == pytest.approx(sacrebleu.corpus_chrf(written, [references]).score)
    assert found["chrf"] > 0
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(written, [references]).score)
