"""Laws of how predict goes on writing: where it stops, how often it is asked, and what a terminal sees meanwhile."""

from __future__ import annotations

import io
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import seqtrain
from seqtrain.api import Trained
from seqtrain.cli import predict
from seqtrain.models.decoding import continue_tokens
from seqtrain.tasks import next_token
from tests.support.hub_folders import reference, save
from tests.support.untrained_runs import NEXT_TOKEN, make_run

BYTES = (*NEXT_TOKEN[:2], "tokenizer=byte", *NEXT_TOKEN[3:])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "next_token", *BYTES)


@pytest.fixture(scope="module")
def run(path: Path) -> Trained:
    return seqtrain.load(path)


class Terminal(io.StringIO):
    """Standard output that a person looks at; keeps what was visible at each flush."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        self.seen.append(self.getvalue())


def written(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let the model write this text, a byte at a time."""

    def tokens(model: Any, logits: Any, prompts: list[list[int]], **options: Any) -> Any:
        return iter([torch.tensor([byte]) for byte in text.encode()])

    monkeypatch.setattr(next_token, "continue_tokens", tokens)


def on_terminal(monkeypatch: pytest.MonkeyPatch, *args: str) -> Terminal:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert predict.main(list(args)) == 0
    return terminal


def one(run: Trained, text: str, **options: Any) -> Any:
    (answer,) = run.predict([text], by="continue", length=40, **options)
    return answer


def test_a_sample_is_the_same_however_many_are_drawn_and_differs_from_the_others(run: Trained) -> None:
    alone, few, many = (
        [one(run, "ab")["text"]],
        one(run, "ab", num_samples=3)["texts"],
        one(run, "ab", num_samples=5)["texts"],
    )
    assert many[:3] == few
    assert few[:1] == alone
    assert len(set(many)) == 5
    assert one(run, "ab", num_samples=5, seed=1)["texts"] != many
    together = [answer["texts"] for answer in run.predict(["ab", "ab"], length=40, num_samples=2)]
    assert together[0] == many[:2]
    assert len({*together[0], *together[1]}) == 4  # two texts draw apart


def test_a_text_ends_before_the_first_stop_text_also_where_it_spans_tokens(run: Trained) -> None:
    whole = one(run, "ab", temperature=1.0)["text"]
    for begin, size in itertools.product(range(1, len(whole) - 5, 3), (1, 2, 5)):
        stop = whole[begin : begin + size]
        assert one(run, "ab", temperature=1.0, stop=(stop, "not there"))["text"] == whole[: whole.index(stop)]


def test_a_model_that_writes_from_the_end_stops_there(tmp_path: Path) -> None:
    run = seqtrain.load(make_run(tmp_path / "run", *BYTES, "task.direction=backward"))
    whole = one(run, "ab")["text"]
    stop = whole[20:22]
    assert one(run, "ab", stop=(stop,))["text"] == whole.rpartition(stop)[2]


def test_no_more_tokens_are_drawn_once_every_text_has_met_its_stop(
    run: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []

    def counted(*args: Any, **options: Any) -> Any:
        for step in continue_tokens(*args, **options):
            steps.append(step)
            yield step

    whole = one(run, "ab")["text"]
    monkeypatch.setattr(next_token, "continue_tokens", counted)
    assert one(run, "ab", stop=(whole[3],))["text"] == whole[: whole.index(whole[3])]
    assert len(steps) < 40


def test_the_repetition_penalty_gives_the_greedy_tokens_of_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    penalty = 1.3
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    model, run = reference("gpt2"), seqtrain.load(save("gpt2", tmp_path / "gpt2"))
    prompt = "abcab"
    tokenizer: Any = run.tokenizer
    tokens = torch.tensor([tokenizer.theirs[[tokenizer.start, *tokenizer.encode(prompt)]].tolist()])
    asked = {"max_new_tokens": 20, "do_sample": False, "suppress_tokens": [256]}
    plain, punished = (
        model.generate(tokens, repetition_penalty=factor, **asked)[0, tokens.shape[1] :] for factor in (1.0, penalty)
    )
    assert plain.tolist() != punished.tolist()
    for factor, expected in ((1.0, plain), (penalty, punished)):
        (answer,) = run.predict([prompt], length=20, temperature=0.0, repetition_penalty=factor)
        assert answer["text"] == tokenizer.decode(tokenizer.ours[expected.numpy()].tolist())


def test_a_terminal_sees_the_text_grow_and_never_half_a_character(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(monkeypatch, "déjà 🎈!")
    terminal = on_terminal(monkeypatch, str(path), "a ")
    assert terminal.getvalue() == "a déjà 🎈!\n"
    parts = ["a ", "a d", "a dé", "a déj", "a déjà", "a déjà ", "a déjà 🎈", "a déjà 🎈!"]
    assert list(dict.fromkeys(terminal.seen))[:8] == parts


def test_a_terminal_never_sees_the_beginning_of_a_stop_text(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(monkeypatch, "one\n\ntwo\n\n\nthree")
    terminal = on_terminal(monkeypatch, str(path), "a ", "--stop", "\n\n\n")
    assert terminal.getvalue() == "a one\n\ntwo\n"
    assert "a one\n" not in terminal.seen
    assert "a one\n\nt" in terminal.seen


def test_bytes_that_never_become_a_character_are_shown_at_the_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tokens(*args: Any, **options: Any) -> Any:
        return iter([torch.tensor([byte]) for byte in (0x61, 0xC3)])

    monkeypatch.setattr(next_token, "continue_tokens", tokens)
    assert on_terminal(monkeypatch, str(path), "a ").getvalue() == "a a\ufffd\n"


def test_what_is_not_one_text_for_a_person_comes_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for extra in (("--json",), ("--num-samples", "2"), ("b",)):
        args = (str(path), "a", "--length", "5", *extra)
        with monkeypatch.context() as patch:
            terminal = on_terminal(patch, *args)
        assert predict.main(list(args)) == 0
        assert terminal.getvalue() == capsys.readouterr().out
        assert len(set(terminal.seen)) == 1, extra


def test_a_terminal_is_given_the_text_that_a_pipe_is_given(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (path.parent / "in.txt").write_text("ab\nc\n")
    args = [str(path), "x", "--input", str(path.parent / "in.txt"), "--length", "20", "--seed", "3"]
    assert predict.main(args) == 0
    assert on_terminal(monkeypatch, *args).getvalue() == capsys.readouterr().out
