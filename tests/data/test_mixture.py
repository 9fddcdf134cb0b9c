"""Laws of mixtures: the token of a place follows from the place alone, and the weights are kept."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqtrain.data.sources.text import Text
from seqtrain.data.sources.tokens import Tokens
from seqtrain.data.token_store import mixture
from seqtrain.data.token_store.mixture import Mixture
from seqtrain.data.token_store.prepare import Order, prepare
from seqtrain.data.token_store.tokens import MappedTokens, Part, TokenArray
from seqtrain.data.tokenizers.recipes import BPE, Char
from tests.conftest import Seqtrain
from tests.support.refused import refusal
from tests.support.tiny import GPT, assert_twins, corpus, newest_step, wait_until

SIZES = (1003, 370, 45)  # the largest is no multiple of a block
WEIGHTS = (10, 5, 1)
BLOCK = 8


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[TokenArray]:
    """Tokens that say where they are: the store in the thousands, then the place."""
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    found: list[TokenArray] = []
    for number, size in enumerate(SIZES):
        (2000 * number + np.arange(size)).astype("<u2").tofile(tmp_path / f"{number}.bin")
        found.append(MappedTokens([Part(tmp_path / f"{number}.bin", "<u2", 0, size)], 10_000))
    return found


def test_each_store_is_read_in_order_over_and_over_and_each_once_at_least(stores: list[TokenArray]) -> None:
    mixed = Mixture(stores, WEIGHTS, BLOCK)
    tokens = mixed[:]
    assert len(tokens) == len(mixed)
    for number, (size, share) in enumerate(zip(SIZES, mixed.shares(), strict=True)):
        mine = tokens[tokens // 2000 == number] - 2000 * number
        assert np.array_equal(mine, np.arange(len(mine)) % size)
        assert share == len(mine) / size >= 1
    # The epoch is no longer than that takes: one store has no block more than it needs.
    assert min(mixed.counts * BLOCK - SIZES) < BLOCK


def test_a_token_follows_from_its_place_alone(stores: list[TokenArray]) -> None:
    whole = Mixture(stores, WEIGHTS, BLOCK)[:]
    places = np.random.default_rng(0).integers(0, len(whole), (6, 9))
    assert np.array_equal(Mixture(stores, WEIGHTS, BLOCK)[places], whole[places])
    handed_over = pickle.loads(pickle.dumps(Mixture(stores, WEIGHTS, BLOCK)))  # to a process of data.workers
    assert np.array_equal(handed_over[places], whole[places])


def test_the_weights_hold_in_every_part_of_an_epoch_and_blocks_are_whole(stores: list[TokenArray]) -> None:
    mixed = Mixture(stores, WEIGHTS, BLOCK)
    owners = (mixed[:] // 2000).reshape(-1, BLOCK)
    assert (owners == owners[:, :1]).all()
    assert len(owners) > 100
    for number, weight in enumerate(WEIGHTS):
        seen = np.cumsum(owners[:, 0] == number)
        due = np.arange(1, len(owners) + 1) * weight / sum(WEIGHTS)
        assert np.abs(seen - due).max() <= 1.5  # blocks
    gaps = np.diff(np.flatnonzero(owners[:, 0] == 1))
    assert len(set(gaps.tolist())) > 1  # no fixed pattern


def test_documents_begin_where_a_block_or_a_document_of_its_store_does(
    stores: list[TokenArray], monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = [np.array([0, 3, 500, 501, 1003]), np.array([0, 370]), np.array([0, 20, 45])]
    for block in (BLOCK, 25 * BLOCK):  # the second one is more than four times the last store
        mixed = Mixture(stores, WEIGHTS, block)
        owner, place = mixed.origin(np.arange(len(mixed)))
        begins = [at for at in range(len(mixed)) if at % block == 0 or place[at] in offsets[owner[at]]]
        for at_once in (1, 3 * BLOCK, 1 << 24):
            monkeypatch.setattr(mixture, "MAX_TOKENS_AT_ONCE", at_once)
            assert np.concatenate(list(mixed.documents(offsets))).tolist() == begins, (block, at_once)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the stores `a`, `b`, of one tokenizer, and `c`, of another."""
    folder = corpus(tmp_path_factory.mktemp("mixed"))
    (folder / "other.txt").write_text("other lines than those, of other things\n" * 200)
    tokenizer = BPE(size=300).train([(folder / "corpus.txt").read_text()])
    for name, path, made_by in (
        ("a", "corpus.txt", tokenizer),
        ("b", "other.txt", tokenizer),
        ("c", "other.txt", None),
    ):
        source = Text(path=str(folder / path), split_by="position")
        order = Order(source, Char(), made_by, {}, processes=1, shard_tokens=10**6, sample=10**6)
        prepare(folder / name, order, lambda line: None)
    return folder


@pytest.fixture
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Works in the folder of the stores."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SEQTRAIN_CACHE", str(folder / "cache"))


RUN = (*GPT, "tbptt.k2=8", "data.batch_size=4", "data.eval_lanes=4", "model.dim=16", "logger=none", "callbacks=none")
MIX = ("data=tokens", "data.mix=[a:3,b:1]", "data.mix_block=64")


@pytest.mark.long
def test_a_run_of_a_mixture_that_is_killed_and_resumed_ends_with_the_same_bits(
    folder: Path, seqtrain: Seqtrain
) -> None:
    words = ("train", *RUN, *MIX, "trainer.max_steps=40", "trainer.checkpoint_every=5", "trainer.validate_every=15")
    words += ("trainer.log_every=1",)
    whole = seqtrain(*words, "run_dir=whole", cwd=folder)
    assert whole.rc == 0, whole.err
    assert "75.0% of the tokens are from a" in whole.err
    assert "25.0% of the tokens are from b" in whole.err
    child = seqtrain.start(*words, "run_dir=killed", cwd=folder)
    wait_until(lambda: newest_step(folder / "killed") >= 12, child, "step 12")
    child.kill()
    assert child.wait() == -9
    assert seqtrain("resume", "killed", cwd=folder).rc == 0
    assert_twins(folder / "whole", folder / "killed")
    summary = json.loads((folder / "whole/summary.json").read_text())
    assert summary["data"]["mix"] == {"a": 3.0, "b": 1.0}


@pytest.mark.usefixtures("_inside")
def test_validation_of_a_mixture_is_that_of_each_store_once() -> None:
    mixed = Tokens(mix=["a:3", "b:1"]).corpus("validation")
    parts = [Tokens(path=name).corpus("validation") for name in ("a", "b")]
    assert mixed.tokens[:].tolist() == [*parts[0].tokens[:].tolist(), *parts[1].tokens[:].tolist()]
    assert len(mixed.documents) == sum(len(part.documents) - 1 for part in parts) + 1
    assert mixed.num_bytes == sum(part.num_bytes for part in parts)
    one, other = (Tokens(path=name).store for name in ("a", "b"))
    shared = replace(other, splits={**other.splits, "validation": one.splits["validation"]})
    mixed = mixture.mix_stores([one, shared], [1, 1], 64).splits["validation"]
    assert mixed.tokens[:].tolist() == one.splits["validation"].tokens[:].tolist(), "both have it: it is read once"


@pytest.mark.usefixtures("_inside")
def test_a_mixture_that_cannot_be_is_refused() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"mix": ["a:3", "c:1"]}, "a and c have different tokenizers"),
        ({"mix": ["a:3"]}, "data.mix: expected 2 to 256 stores, found 1"),
        ({"mix": ["a", "b:1"]}, "data.mix: a: expected FOLDER:WEIGHT"),
        ({"mix": ["a:0", "b:1"]}, "data.mix: a:0: expected FOLDER:WEIGHT"),
        ({"mix": ["a:1", "b:1"], "path": "a"}, "data.path and data.mix: both set the data; leave one out"),
        ({"mix": ["a:1", "b:1", "a:2"]}, "data.mix: a and a contain the same tokens"),
        ({"mix": ["a:1e-9", "b:1"]}, "data.mix: an epoch that reads each store once has "),
        ({}, "give the folder of a store as data.path, or several"),
    ]
    for options, words in refused:
        assert words in refusal(lambda options=options: Tokens(**options).check()), options
