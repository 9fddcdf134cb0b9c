"""Laws of predict: what a run answers is what its model says, text by text, in order, and bad texts are named."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from seqtrain import UserError
from seqtrain.api import Trained
from seqtrain.cli import main, predict
from seqtrain.tasks import translation
from seqtrain.tasks.next_token import Continue
from tests.support.untrained_runs import MASKED, NEXT_TOKEN, SENTIMENT, TEXTS, TRANSLATION, double, make_run

RUNS = {"masked_lm": MASKED, "sentiment": SENTIMENT, "translation": TRANSLATION, "next_token": NEXT_TOKEN}
WAITING = 10.0  # seconds for a thread that should answer at once


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: make_run(folder / name, *overrides) for name, overrides in RUNS.items()}


@pytest.fixture(scope="module")
def trained(runs: dict[str, Path]) -> dict[str, Trained]:
    return {name: double(path) for name, path in runs.items()}


@pytest.fixture
def ask(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `seqtrain predict` with a run by name; gives exit code, lines of standard output, standard error."""

    def call(name: str, *args: str) -> tuple[int, list[str], str]:
        rc = main.main(["predict", str(runs[name]), *args])
        out, err = capsys.readouterr()
        return rc, out.split("\n")[:-1], err

    return call


# -- what is answered --------------------------------------------------------------------------------------------


def test_probabilities_are_the_heads_softmax_likeliest_first(trained: dict[str, Trained]) -> None:
    run = trained["sentiment"]
    text = TEXTS[1]
    tokenizer = run.tokenizer
    tokens = torch.tensor([[tokenizer.start, *tokenizer.encode(text).tolist(), tokenizer.separator]])
    scores = run.task.logits(run.model, run.task.pooled(run.model, tokens, torch.tensor([tokens.shape[1]])))[0]  # type: ignore[operator]
    expected = dict(zip(("bad", "fair", "good"), scores.softmax(-1).tolist(), strict=True))
    (found,) = run.classify([text])
    assert found["probabilities"] == pytest.approx(expected, abs=1e-9)
    assert list(found["probabilities"].values()) == sorted(expected.values(), reverse=True)
    assert found["label"] == max(expected, key=lambda label: expected[label])


def test_of_a_long_text_the_first_tokens_are_classified_and_that_is_said_once(
    trained: dict[str, Trained], ask: Any, tmp_path: Path
) -> None:
    run = trained["sentiment"]
    longest = run.config["data"]["max_length"] - 2
    long = "the street " * longest
    assert run.classify([long]) == run.classify([long[:longest]])
    (tmp_path / "in.txt").write_text(f"{long}\nshort\n{long}\n")
    rc, out, err = ask("sentiment", "--input", str(tmp_path / "in.txt"))
    assert (rc, len(out)) == (0, 3)
    assert err == f"2 texts are longer than data.max_length={longest + 2} tokens: only their beginning was read\n"


def test_masks_are_filled_with_the_likeliest_and_the_rest_stays_as_written(trained: dict[str, Trained]) -> None:
    run = trained["masked_lm"]
    tokenizer = run.tokenizer
    (found,) = run.fill(["the animal [MASK] tired,  and"], top_k=3)
    row = [tokenizer.start, *tokenizer.encode_masked("the animal [MASK] tired,  and").tolist(), tokenizer.separator]
    hidden, _ = run.model(torch.tensor([row]))
    probs = run.task.logits(run.model, hidden[0, row.index(tokenizer.mask)]).softmax(-1)  # type: ignore[operator]
    best = probs.topk(3)
    assert [each["probability"] for each in found["masks"][0]] == pytest.approx(best.values.tolist(), abs=1e-9)
    assert found["filled"] == f"the animal{tokenizer.decode(best.indices[:1].tolist())} tired,  and"


def test_the_score_of_a_masked_model_hides_each_token_in_turn(trained: dict[str, Trained]) -> None:
    run = trained["masked_lm"]
    tokenizer = run.tokenizer
    ids = tokenizer.encode(TEXTS[0]).tolist()
    expected = []
    for place, token in enumerate(ids):
        row = [tokenizer.start, *ids, tokenizer.separator]
        row[place + 1] = tokenizer.mask
        hidden, _ = run.model(torch.tensor([row]))
        probs = run.task.logits(run.model, hidden[0, place + 1]).log_softmax(-1)  # type: ignore[operator]
        expected.append(-probs[token].item() / math.log(2))
    found = run.score(TEXTS[0])
    assert [token["bits"] for token in found["tokens"]] == pytest.approx(expected, abs=1e-9)
    assert found["loss"] == pytest.approx(sum(expected) * math.log(2) / len(ids))
    assert found["pseudo_perplexity"] == pytest.approx(math.exp(found["loss"]))


def test_a_text_that_spells_a_mask_is_scored_as_it_is_written(trained: dict[str, Trained]) -> None:
    run, text = trained["masked_lm"], "the [MASK] was"
    found = run.score(text)
    tokens = run.tokenizer.encode(text).tolist()
    assert run.tokenizer.mask not in tokens
    assert [token["text"] for token in found["tokens"]] == [run.tokenizer.token_text(token) for token in tokens]
    task: Any = run.task
    nats = task.surprisals(run.model, task.row(run.model, tokens)).tolist()
    assert found["loss"] == pytest.approx(sum(nats) / len(tokens))


def test_translations_come_in_order_and_with_the_beam_that_is_asked_for(trained: dict[str, Trained]) -> None:
    run = trained["translation"]
    for options in ({}, {"beam": 3, "length_penalty": 0.0}):
        together = run.translate(TEXTS, **options)
        assert together == [run.translate([text], **options)[0] for text in TEXTS]
    assert len(set(together)) > 1


@pytest.mark.long
def test_how_many_hypotheses_stand_side_by_side_changes_no_translation(
    trained: dict[str, Trained], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained["translation"]
    for beam in (1, 3):
        together = run.translate(TEXTS, beam=beam)
        with monkeypatch.context() as fewer:
            fewer.setattr(translation, "MAX_HYPOTHESES", 2)  # two lanes at a time, and with a beam of 3 one
            assert run.translate(TEXTS, beam=beam) == together


def test_a_seed_gives_the_same_continuations_however_lines_are_batched(
    ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.txt").write_text("the\na\n" * 4)
    args = ("next_token", "it", "--input", str(tmp_path / "in.txt"), "--seed", "3", "--length", "9", "--json")
    whole = ask(*args)
    monkeypatch.setattr(Continue, "at_a_time", 2)
    assert ask(*args) == whole
    texts = [json.loads(line)["text"] for line in whole[1]]
    assert len(texts) == 9
    assert texts[1] != texts[3]  # the same prompt, another draw


# -- in which order, and what is not answered --------------------------------------------------------------------


def test_bad_lines_are_named_in_their_place_and_the_rest_is_answered(ask: Any, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"a film\n\xff\xfe film\n\nnot good\n")
    rc, out, err = ask("sentiment", "a street", "--input", str(path), "--json")
    answers = [json.loads(line) for line in out]
    assert rc == 2
    assert [(answer.get("line"), answer.get("text"), "error" in answer) for answer in answers] == [
        (None, "a street", False),
        (1, "a film", False),
        (2, None, True),
        (3, None, True),
        (4, "not good", False),
    ]
    assert err.splitlines() == [
        f"error: {path}:2: byte 0 of the line is not UTF-8",
        f"error: {path}:3: contains no text",
    ]
    rc, out, _ = ask("sentiment", "--input", str(path))
    assert (rc, len(out)) == (2, 2)


def test_an_argument_that_has_no_answer_is_named(ask: Any) -> None:
    for name, text, reason in (
        ("masked_lm", "no mask", "has no [MASK] to fill in"),
        ("masked_lm", "[MASK]" + " street" * 600, "tokens, but the model has only 510 positions"),
        ("translation", "", "contains no text"),
        ("sentiment", "\udcff", "not UTF-8"),
    ):
        rc, out, err = ask(name, "the [MASK]", text, "--json")
        first, second = map(json.loads, out)
        assert rc == 2, reason
        assert "error" not in first
        assert second["argument"] == 2
        assert reason in second["error"]
        assert err == f"error: TEXT 2: {second['error']}\n"


def test_a_line_ends_at_a_line_feed_and_nowhere_else(ask: Any, tmp_path: Path) -> None:
    lines = ["one\u2028two", "three\x0bfour\x85", "five\rsix", "last without an end"]
    (tmp_path / "in.txt").write_bytes("\n".join(lines).encode("utf-8-sig"))
    _, out, _ = ask("sentiment", "--input", str(tmp_path / "in.txt"), "--json")
    assert [(json.loads(line)["line"], json.loads(line)["text"]) for line in out] == list(enumerate(lines, 1))


def test_answers_come_before_the_input_ends(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    answers = tmp_path / "answers.txt"

    def answered(count: int) -> None:
        limit = time.monotonic() + WAITING
        while not answers.exists() or answers.read_text().count("\n") < count:
            assert time.monotonic() < limit, f"no answer {count} while the input is open"
            time.sleep(0.01)

    with os.fdopen(reading) as stdin, answers.open("w", encoding="utf-8") as stdout:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        args = [str(runs["sentiment"]), "--input", "-"]
        thread = threading.Thread(target=predict.main, args=(args,), daemon=True)
        thread.start()
        try:
            os.write(writing, b"a film\nand ha")
            answered(1)
            os.write(writing, b"lf a line\n")
            answered(2)
        finally:
            os.close(writing)
            thread.join(WAITING)
    assert not thread.is_alive()
    assert [line.partition(": ")[2] for line in answers.read_text().splitlines()] == ["a film", "and half a line"]


# -- what is refused ---------------------------------------------------------------------------------------------


def test_a_run_of_another_task_says_what_it_can(trained: dict[str, Trained]) -> None:
    for name, use, can in (
        ("sentiment", "fill", "classify"),
        ("sentiment", "score", "classify"),
        ("masked_lm", "translate", "fill, score"),
        ("translation", "classify", "translate"),
        ("masked_lm", "continue_texts", "fill, score"),
    ):
        asked, path = use.partition("_")[0], trained[name].directory
        with pytest.raises(UserError, match=f"^{asked}: not a prediction of run {path}, task={name}; use {can}$"):
            getattr(trained[name], use)("a" if use == "score" else ["a"])


def test_an_output_that_is_the_input_is_refused_and_left_whole(runs: dict[str, Path], tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("never dull , always lively\n")
    for command in ("predict", "embed"):
        written = texts if command == "predict" else tmp_path / "texts.parquet"
        if command == "embed":
            written.symlink_to(texts)
        with pytest.raises(UserError, match="is the input itself"):
            main._run([command, str(runs["sentiment"]), "--input", str(texts), "--output", str(written)])
    assert texts.read_text() == "never dull , always lively\n"


def test_a_line_that_ends_in_cr_lf_is_answered_like_one_that_ends_in_lf(ask: Any, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    answers = []
    for ending in (b"\n", b"\r\n"):
        path.write_bytes(b"not dull but lively" + ending)
        answers.append(ask("sentiment", "--input", str(path), "--json"))
    assert answers[0] == answers[1]
