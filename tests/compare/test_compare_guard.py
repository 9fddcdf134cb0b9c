"""What may not be compared stands apart, each kind of unlikeness by itself; what is compared, does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seqtrain.compare.entries import read
from seqtrain.compare.groups import groups
from seqtrain.compare.verdict import conclusions
from seqtrain.tasks.next_token import NextToken
from tests.support import fake_runs

OTHER = "d" * 32
BLEU = {
    "metric": "bleu",
    "monitor": ["bleu", "max"],
    "config": fake_runs.TRANSLATION,
    "signatures": {"bleu": "tok:13a"},
}

LOSS = BLEU | {"compared_by": "loss"}

UNLIKE: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    # name: (what both runs are, what is altered in one, what the reason says)
    "task": (
        {},
        {"config": {"task._target_": "seqtrain.tasks.masked_lm.MaskedLM"}, "context": {"max_length": 64}},
        "another task: masked_lm, not next_token",
    ),
    "validation text": ({}, {"hashes": fake_runs.HASHES | {"validation": OTHER}}, "the files themselves have changed"),
    "training text": ({}, {"hashes": fake_runs.HASHES | {"train": OTHER}}, "other training text: the files themselves"),
    "split rule": ({}, {"config": {"data.split_by": "document"}}, "data.split_by"),
    "lanes of evaluation": ({}, {"context": {"eval_lanes": 8, "carry": True}}, "eval_lanes=8, not eval_lanes=4"),
    "state over cuts": ({}, {"context": {"eval_lanes": 4, "carry": False}}, "carry=False, not carry=True"),
    "cut of examples": (
        LOSS | {"context": {"max_length": 32}},
        {"context": {"max_length": 64}},
        "max_length=64, not max_length=32",
    ),
    "tokenizer": (LOSS, {"hashes": fake_runs.HASHES | {"tokenizer": OTHER}}, "another tokenizer: made from other text"),
    "target tokenizer": (
        LOSS,
        {"hashes": fake_runs.HASHES | {"target_tokenizer": OTHER}},
        "another tokenizer: made from other text",
    ),
    "labels": (BLEU, {"hashes": fake_runs.HASHES | {"labels": OTHER}}, "another set of labels"),
    "signature": (BLEU, {"signatures": {"bleu": "tok:intl"}}, "bleu=tok:intl, not bleu=tok:13a"),
    "an option of a task of one's own": ({}, {"config": {"task.window": 3}}, "window=3"),
    "text behind <unk>": (
        {"hashes": fake_runs.HASHES | {"tokenizer": OTHER}},
        {"unknown": {"validation": 31}},
        "one that hides 31 tokens of validation behind <unk>, not one that hides nothing",
    ),
    "no text behind <unk>": (
        {"unknown": {"validation": 31}},
        {"hashes": fake_runs.HASHES | {"tokenizer": OTHER}, "unknown": {"validation": 0}},
        "one that hides nothing behind <unk>, not one that hides 31 tokens of validation behind <unk>",
    ),
}

LIKE: dict[str, dict[str, Any]] = {
    "model": {"model": "gpt"},
    "size": {"config": {"model.dim": 64}},
    "seed": {"seed": 2},
    "optimizer": {"config": {"optimizer._target_": "torch.optim.SGD", "optimizer.lr": 1.0}},
    "budget": {"config": {"trainer.max_steps": 9}, "values": (2.0, 1.9)},
    "precision": {"config": {"trainer.precision": "bf16-mixed"}},
    "truncation that evaluation does not see": {"config": {"tbptt.k2": 64, "tbptt.k1": 64}},
    "lanes of training": {"config": {"data.batch_size": 64}},
    "batches of evaluation": {"config": {"data.eval_batch_size": 1}},
    "where the same text lies": {"config": {"data.path": "elsewhere.txt"}},
    "a tied head": {"config": {"task.tied": False}},
    "how a task trains": {"config": {f"task.{name}": "another" for name in NextToken.trained_by}},
}


def test_runs_that_are_unlike_stand_apart_with_the_reason(tmp_path: Path) -> None:
    for kind, (both, altered, reason) in UNLIKE.items():
        fake_runs.run(tmp_path / kind / "1", **both)
        fake_runs.run(tmp_path / kind / "2", seed=2, **both)
        fake_runs.run(tmp_path / kind / "3", seed=3, **{**both, **altered})
        first, second = groups(read([tmp_path / kind]))
        assert [entry.path.name for entry in first.entries] == ["1", "2"], kind
        assert [entry.path.name for entry in second.entries] == ["3"], kind
        assert len(second.reason) == 1, kind
        assert reason in second.reason[0], kind


def test_what_is_compared_keeps_no_runs_apart(tmp_path: Path) -> None:
    for kind, options in LIKE.items():
        fake_runs.run(tmp_path / kind / "1")
        fake_runs.run(tmp_path / kind / "2", **options)
        found = groups(read([tmp_path / kind]))
        assert [len(group.entries) for group in found] == [2], kind
        assert (found[0].metric, found[0].mode) == ("bits_per_byte", "min")


def test_language_models_of_different_tokenizers_meet_in_bits_per_byte_only(tmp_path: Path) -> None:
    for number, tokenizer in enumerate(("c", "d")):
        fake_runs.run(tmp_path / tokenizer, hashes=fake_runs.HASHES | {"tokenizer": tokenizer * 32}, seed=number)
    (together,) = (found.group for found in conclusions(read([tmp_path])))
    assert together.metric == "bits_per_byte"
    assert "bits per byte only" in together.notes[0]
    apart = groups(read([tmp_path]), metric="loss")
    assert [group.metric for group in apart] == ["loss", "loss"]
    assert apart[1].reason == ["another tokenizer: made from other text (--metric bits_per_byte compares them)"]


def test_a_run_that_has_not_said_all_of_itself_stands_with_those_it_may_be_like(tmp_path: Path) -> None:
    early = fake_runs.run(tmp_path / "0", status="interrupted")  # before those that are finished
    fake_runs.run(tmp_path / "1", seed=2, context={"eval_lanes": 8, "carry": True})
    fake_runs.run(tmp_path / "2", seed=2)
    (early / "summary.json").write_text(f'{{"status": "interrupted", "hashes": {{"validation": "{"b" * 32}"}}}}')
    found = groups(read([tmp_path]))  # and it is no bridge between those that are unlike
    assert [[entry.path.name for entry in group.entries] for group in found] == [["0", "1"], ["2"]]


def test_a_run_that_has_only_begun_may_be_like_those_that_hide_text(tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "1", unknown={"validation": 31})
    fake_runs.run(tmp_path / "2", seed=2, status="interrupted", unknown=None)
    (group,) = groups(read([tmp_path]))
    assert len(group.entries) == 2


def test_what_a_run_has_not_said_of_itself_is_no_reason(tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "1")
    begun = fake_runs.run(tmp_path / "2", status="interrupted")
    (begun / "summary.json").write_text(json.dumps({"hashes": fake_runs.HASHES | {"validation": OTHER}}))
    _, apart = groups(read([tmp_path]))
    assert apart.reason == ["other validation text: the files themselves have changed"]
