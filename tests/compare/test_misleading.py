"""The cases in which a comparison could mislead, each through the command, with the exact sentence that it gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seqtrain.cli.main import main
from seqtrain.tasks.sentiment import Sentiment
from tests.support import fake_runs
from tests.support.fake_runs import seeds

BPE = {"tokenizer._target_": "seqtrain.data.tokenizers.recipes.BPE"}
SENTIMENT: dict[str, Any] = {
    "config": {"task": {"_target_": "seqtrain.tasks.sentiment.Sentiment"}},
    **{"metric": "accuracy", "context": {"max_length": 64}, "hashes": fake_runs.HASHES | {"labels": "f" * 32}},
    **Sentiment.said(),
}
TRANSLATION: dict[str, Any] = {
    **{"config": fake_runs.TRANSLATION, "metric": "bleu", "context": {"max_length": 64}},
    **{"signatures": {"bleu": "tok:13a"}, "hashes": fake_runs.HASHES},
}


def told(capsys: pytest.CaptureFixture[str], *words: str | Path) -> list[dict[str, Any]]:
    """The groups that `seqtrain compare` tells of."""
    assert main(["compare", "--json", *map(str, words)]) == 0
    return json.loads(capsys.readouterr().out)["groups"]


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The one line with which the command refuses."""
    assert main(["compare", *map(str, words)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_leak_stays_refused_whatever_else_is_folded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leak = {"validation": {"train": {"share": 1.0, "kind": "documents", "asked": 50}}}
    other = fake_runs.HASHES | {"train": "e" * 32}
    seeds(tmp_path, "a", 1.0, 1.01)
    seeds(tmp_path, "b", 2.0, 2.01, hashes=other, model="gpt")
    seeds(tmp_path, "c", 0.1, 0.2, hashes=other, leaks=leak, model="rnn")
    _, leaked = told(capsys, tmp_path, "--across", "train")
    assert [sentence.partition(":")[0] for sentence in leaked["verdict"]] == ["not compared"]


def test_a_code_change_is_told_apart_where_it_is_asked_for_and_said_where_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds(tmp_path, "before", 1.5, 1.51, 1.52, code=["1" * 40])
    seeds(tmp_path, "after", 1.2, 1.21, 1.22, code=[f"{'2' * 40}+0badcafe"])
    (folded,) = told(capsys, tmp_path)
    assert folded["caveats"] == [
        "lstm: its runs are of commits 2222222+0badcafe and 1111111; --by commit separates them"
    ]
    (apart,) = told(capsys, tmp_path, "--by", "commit")
    assert apart["caveats"] == []
    assert [name["name"] for name in apart["variants"]] == ["lstm commit=2222222+0badcafe", "lstm commit=1111111"]


def test_an_extended_run_is_not_folded_with_those_that_were_planned_so_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longer = {"trainer.max_steps": 200}
    seeds(tmp_path, "fresh", 1.5, 1.51, config=longer)
    change = "trainer.max_steps: 100 -> 200 at step 100"
    fake_runs.run(tmp_path / "extended", 1.6, seed=3, config=longer, extended=[change])
    (found,) = told(capsys, tmp_path)
    assert [(variant["name"], len(variant["values"])) for variant in found["variants"]] == [
        *(("lstm", 2), ("lstm extended=100->200", 1))
    ]
    assert found["caveats"] == [
        f"lstm extended=100->200: extended ({change}): until then its schedule was that of the shorter training, so it "
        "is a variant apart from runs that were planned at this length"
    ]
    assert found["verdict"][-1] == (
        "no conclusion: how lstm extended=100->200 1.600 bits per byte would do with other seeds; "
        "3 seeds would be a start"
    )


def test_devices_1_and_2_are_one_variant_and_its_seconds_carry_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for devices in (1, 2):
        place = {"config": {"trainer.devices": devices}, "world_size": devices, "cpu": f"CPU {devices}", "cores": 4}
        fake_runs.run(tmp_path / str(devices), 1.5 + devices / 100, seed=devices, **place)
    seeds(tmp_path, "gpt", 2.0, 2.01, model="gpt", cpu="CPU 1", cores=4, world_size=1)
    (found,) = told(capsys, tmp_path, "--x", "seconds")
    assert [(variant["name"], len(variant["values"])) for variant in found["variants"]] == [("lstm", 2), ("gpt", 2)]
    assert found["caveats"] == [
        "seconds and tokens/s are of different machines or layouts: trainer.devices 1 and 2, cpu CPU 1 and CPU 2, "
        "processes 1 and 2"
    ]


def test_a_slow_variant_is_left_out_by_name_and_nothing_is_concluded_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for model, value in (("lstm", 1.5), ("gpt", 1.7)):
        for seed in (1, 2):
            past = (2.5 + seed / 100, 2.4, 2.3, 2.2)
            final = value + seed / 100
            fake_runs.run(tmp_path / f"{model}{seed}", final, model=model, seed=seed, values=past, tokens_a_second=50.0)
    seeds(tmp_path, "slow", 2.0, 2.01, model="gru", values=(), tokens_a_second=50.0, config={"model.dim": 512})
    (found,) = told(capsys, tmp_path, "--x", "seconds")
    assert found["verdict"][0] == (
        "left out: gru dim=512 reached only 20 of 100 seconds: whether it is better or worse than the others is not "
        "concluded; --against 'gru dim=512' compares all of them there"
    )
    assert found["verdict"][1].startswith("lstm beats gpt by 0.200 bits per byte")
    assert "at equal seconds (100)" in found["verdict"][1]
    assert not any("gru" in sentence for sentence in found["verdict"][1:])
    assert not any("gru" in line for line in found["remarks"])
    (asked,) = told(capsys, tmp_path, "--x", "seconds", "--against", "gru dim=512")
    assert not any(sentence.startswith("left out") for sentence in asked["verdict"][1:])
    assert [sentence.partition(" by ")[0] for sentence in asked["verdict"]] == [
        *("best: gru dim=512, ahead of all 2 others", "gru dim=512 beats gpt", "gru dim=512 beats lstm")
    ]
    assert all("at equal seconds (20)" in sentence for sentence in asked["verdict"][1:])


def test_one_slow_seed_leaves_its_variant_out_whole_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for model in ("lstm", "gpt", "gru"):
        seeds(tmp_path, model, 1.5, 1.6, model=model, values=(3.0,) * 4)
    fake_runs.run(tmp_path / "gru-3", 2.0, model="gru", seed=3)
    (found,) = told(capsys, tmp_path, "--x", "tokens")
    assert found["verdict"][0].startswith(f"left out: gru reached only 1,000 of 5,000 tokens ({tmp_path.name}/gru-3): ")
    # Half of all variants are never left out.
    seeds(tmp_path, "rnn", 1.5, 1.6, model="rnn")
    (found,) = told(capsys, tmp_path, "--x", "tokens")
    assert not any(sentence.startswith("left out") for sentence in found["verdict"])
    assert sorted(len(variant["values"]) for variant in found["variants"]) == [2, 2, 2, 3]


# -- groups --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("both", [SENTIMENT, TRANSLATION], ids=["accuracy", "BLEU"])
def test_whole_answers_to_the_same_examples_compare_across_tokenizers_lengths_and_beams(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], both: dict[str, Any]
) -> None:
    altered = {"config": both["config"] | BPE, "context": {"max_length": 128}}
    beams = ""
    if both is TRANSLATION:
        altered["config"] = altered["config"] | {"task.beam": 5}
        beams = ", beam 1 and 5"
    altered["hashes"] = both["hashes"] | {"tokenizer": "e" * 32}
    seeds(tmp_path, "a", 0.5, 0.51, **both)
    seeds(tmp_path, "b", 0.8, 0.81, **{**both, **altered})
    (found,) = told(capsys, tmp_path)
    unit = "accuracy" if both is SENTIMENT else "BLEU"
    assert found["notes"] == [
        f"{unit} counts whole answers to the same examples, so runs of 2 tokenizers, max_length 64 and 128{beams} are "
        "compared"
    ]
    assert "tokenizer=bpe" in found["variants"][0]["name"]
    assert "tokenizer=bpe" in found["verdict"][0]
    assert " beats " in found["verdict"][0]
    # A loss per token is of other tokens.
    assert len(told(capsys, tmp_path, "--metric", "loss")) == 2


UNLIKE: dict[str, tuple[dict[str, Any], str]] = {
    "another rule of counting": ({"signatures": {"accuracy": "balanced"}}, "the metric is computed in another way"),
    "another direction": (
        {"measures": {"accuracy": SENTIMENT["measures"]["accuracy"] | {"better": "min"}}},
        "the metric is better in another direction: min, not max",
    ),
    "another unit": (
        {"measures": {"accuracy": SENTIMENT["measures"]["accuracy"] | {"unit": "percent right"}}},
        "the metric has another unit: percent right, not accuracy",
    ),
}


def test_answers_that_were_not_counted_alike_stand_apart_and_the_reason_is_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, (altered, reason) in UNLIKE.items():
        fake_runs.run(tmp_path / kind / "1", 0.5, **SENTIMENT)
        fake_runs.run(tmp_path / kind / "2", 0.6, **{**SENTIMENT, **altered})
        _, second = told(capsys, tmp_path / kind)
        assert reason in second["reason"][0], kind
        assert len(second["reason"]) == 1, kind
        assert bool(second["remedy"]) == (kind != "another direction"), kind


# -- across --------------------------------------------------------------------------------------------------------


def test_across_says_in_the_first_line_what_the_verdict_does_not_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds(tmp_path, "a", 1.0, 1.01)
    hashes = fake_runs.HASHES | {"validation": "e" * 32}
    seeds(tmp_path, "b", 2.0, 2.01, hashes=hashes, config={"data.path": "other.txt"})
    assert [group["remedy"] for group in told(capsys, tmp_path)] == [
        *("", "--across validation compares them anyway, and says what the result does not mean")
    ]
    (found,) = told(capsys, tmp_path, "--across", "validation")
    assert found["verdict"][0] == (
        "across validation: each was measured on its own text, and a better number may come from easier text: the "
        "sentences below compare numbers, not models"
    )
    # Two texts are no two seeds, though their paths are no setting.
    assert [variant["name"] for variant in found["variants"]] == [
        *("lstm validation=corpus.txt@bbbbbbbb", "lstm validation=other.txt@eeeeeeee")
    ]


def test_across_folds_only_where_nothing_else_keeps_runs_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds(tmp_path, "a", 1.0, 1.01)
    unlike = {"hashes": fake_runs.HASHES | {"train": "e" * 32}, "context": {"eval_lanes": 8, "carry": True}}
    seeds(tmp_path, "b", 2.0, 2.01, model="gpt", **unlike)
    _, second = told(capsys, tmp_path, "--across", "train")
    assert second["remedy"].startswith("--across train,context compares them anyway")
    (found,) = told(capsys, tmp_path, "--across", "train,context")
    start = "across train, context: a difference may come from the training text"
    assert found["verdict"][0].startswith(start)
    assert main(["compare", "--markdown", str(tmp_path), "--across", "train,context"]) == 0
    assert start.capitalize() in capsys.readouterr().out


def test_a_key_that_is_unknown_or_keeps_nothing_apart_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_runs.run(tmp_path / "1")
    fake_runs.run(tmp_path / "2", hashes=fake_runs.HASHES | {"validation": "e" * 32})
    for key, line in {
        "tokeniser": "no such condition; known: task, ",
        "nosuch": "no such condition; known: ",
        "tokenizer": "separates no runs here; leave it out",
        "task": "runs of different tasks cannot be compared",
    }.items():
        said = refused(capsys, tmp_path, "--across", key)
        assert said.startswith(f"error: --across {key}: {line}")
        assert said.count("known:") <= 1, key


# -- baselines -----------------------------------------------------------------------------------------------------


def test_a_best_variant_that_is_no_better_than_what_knows_little_is_said_to_be_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for bigram, is_said in ((1.4, True), (1.51, True), (1.6, False)):
        known = {"validation": {"bigram": {"bits_per_byte": bigram}}}
        seeds(tmp_path / str(bigram), "a", 1.50, 1.51, 1.52, baselines=known)
        seeds(tmp_path / str(bigram), "b", 1.90, 1.91, 1.92, model="gpt", baselines=known)
        (group,) = told(capsys, tmp_path / str(bigram))
        sentence = f"no variant is better than bigram ({bigram:.4g}), on the same data: the best is lstm (1.51)"
        assert (sentence in group["caveats"]) == is_said, bigram
        assert any("lstm beats gpt" in line for line in group["verdict"])
