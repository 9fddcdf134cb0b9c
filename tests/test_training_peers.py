"""The comparison with peers trains what it says: the same batches, models of the same size, in turns."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.peers import bare_gpt, bare_lstm, ours, turns
from benchmarks.peers.cases import CASES, Case, data_of, given, loader_of
from benchmarks.peers.training import Side, alternate
from tests.conftest import REPOSITORY

SIZES = {"dim": 16, "num_layers": 2, "num_heads": 2, "length": 8}
SMALL = "model.dim=16 model.num_layers=2 data.batch_size=4 tbptt.k2=8 trainer.max_steps=2"
GPT = dataclasses.replace(
    CASES["bare_gpt"],
    ours=f"{CASES['bare_gpt'].ours} {SMALL} model.num_heads=2 model.attention_window=7 model.max_length=8",
    sizes=SIZES,
)
LSTM = dataclasses.replace(
    CASES["bare_lstm"], ours=f"{CASES['bare_lstm'].ours} {SMALL}", sizes={"dim": 16, "num_layers": 2}
)
PEERS = {"gpt": (GPT, bare_gpt.train), "lstm": (LSTM, bare_lstm.train)}


def reports_of_peer(name: str, folder: Path, *, bf16: bool = False) -> list[dict[str, Any]]:
    """What a bare loop reports of one turn of two steps."""
    case, train = PEERS[name]
    reports: list[dict[str, Any]] = []
    train(turns.Work(given(case, folder, steps=2), bf16=bf16, commands=["2"], report=reports.append))
    return reports


def reports_of_ours(case: Case, folder: Path, precision: str) -> list[dict[str, Any]]:
    """What our side reports of two turns of one step; the second is said when a third step is asked for, so never."""
    reports: list[dict[str, Any]] = []
    ours.train(case.config(folder, precision), folder, reports.append, ["1", "1"])
    return reports


@pytest.mark.long
@pytest.mark.parametrize("name", PEERS)
def test_both_sides_train_models_of_the_same_size(name: str, tmp_path: Path) -> None:
    theirs, own = reports_of_peer(name, tmp_path), reports_of_ours(PEERS[name][0], tmp_path, "32-true")
    assert own[0]["parameters"] == theirs[0]["parameters"]
    assert own[1]["seconds"] > 0
    assert theirs[1]["seconds"] > 0
    assert theirs[1]["trained"]


def test_a_peer_whose_weights_stay_or_are_no_numbers_was_not_trained(tmp_path: Path) -> None:
    for value in (None, float("nan")):
        reports: list[dict[str, Any]] = []
        work = turns.Work(given(GPT, tmp_path, steps=1), bf16=False, commands=["1"], report=reports.append)
        model = torch.nn.Linear(1, 1)
        work.ready(model)
        for _ in work:
            if value is not None:
                torch.nn.init.constant_(model.weight, value)
        assert reports[1]["trained"] is False, value


def test_the_peer_is_given_the_batches_that_we_train_on(tmp_path: Path) -> None:
    batches = given(GPT, tmp_path, steps=3)["batches"]
    own = loader_of(data_of(GPT.config(tmp_path, "32-true")))
    for theirs, ours_ in zip(batches, own, strict=False):
        assert torch.equal(theirs["tokens"], ours_.tokens)
        assert torch.equal(theirs["targets"], ours_.targets)
    assert len(batches) == 3


@pytest.mark.long
def test_translators_are_given_our_sentences_under_their_numbers(tmp_path: Path) -> None:
    case = CASES["opennmt"]
    theirs = given(case, tmp_path, steps=1)["batches"][0]
    batch = next(iter(loader_of(data_of(case.config(tmp_path, "32-true")))))
    for lane, length in enumerate(batch.lengths.tolist()):
        source = theirs["source"][lane]
        assert (source[: length - 1] - 4).tolist() == batch.tokens[lane, : length - 1].tolist()
        assert source[length - 1] == turns.END
        assert (source[length:] == turns.PADDING).all()
        wanted = batch.targets[lane][batch.targets[lane] >= 0][:-1] + 4
        target = theirs["target"][lane]
        told = [turns.START, *wanted.tolist(), turns.END]
        assert target[: len(told)].tolist() == told
        assert (target[len(told) :] == turns.PADDING).all()


def test_a_turn_has_as_many_steps_as_it_is_told() -> None:
    handed: list[int] = []
    said: list[int] = []
    for batch in turns.Turns(range(10), ["2", "3"], lambda report: said.append(len(handed))):
        handed.append(batch)
    assert handed == [0, 1, 2, 3, 4]
    assert said == [2, 5]


@pytest.mark.long
def test_two_processes_take_turns_and_the_first_turn_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    torch.save(given(LSTM, tmp_path, steps=4), tmp_path / "given.pt")
    arguments = [str(tmp_path / "given.pt"), "float32"]
    sides = [Side.start(name, sys.executable, "bare_lstm", arguments, tmp_path) for name in ("left", "right")]
    try:
        for side in sides:
            assert side.read()["parameters"] > 0
        alternate(*sides, warm=1, steps=1, repeats=2)
        assert [len(side.times) for side in sides] == [2, 2]
    finally:
        for side in sides:
            side.end()
