"""Laws of attention's maps: what a run shows of a text is where its model looks."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import matplotlib.image
import pytest
import torch
from torch import nn

from seqtrain import UserError
from seqtrain.api import Trained
from seqtrain.cli import main
from seqtrain.inference import attention_maps, gates
from seqtrain.inference.attention_maps import ATTENDING, Seen, draw
from seqtrain.models.layers.recorder import recording
from seqtrain.runs.directory import Run
from seqtrain.tasks.translation import model_inputs
from seqtrain.training.callbacks.attention import AttentionMaps
from seqtrain.training.loggers.base import RunLogger
from seqtrain.training.splits import StreamData
from tests.support.model_cases import cases, starting
from tests.support.pictures import saved_figures
from tests.support.untrained_runs import MASKED, NEXT_TOKEN, SENTIMENT, TEXTS, TRANSLATION, double, make_run

RECURRENT = ("task=translation", "model=rnn_encoder_decoder", "tokenizer=char", "model.num_layers=2")
PREFIX = ("task=translation", *NEXT_TOKEN[1:])
WINDOW = (*NEXT_TOKEN, "model.attention_window=5")
RUNS = {
    "bert": MASKED,
    "gpt": NEXT_TOKEN,
    "window": WINDOW,
    "pair": TRANSLATION,
    "recurrent": RECURRENT,
    "prefix": PREFIX,
    "gru": SENTIMENT,
}
MAPPED = [name for name in RUNS if name != "gru"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: make_run(folder / name, *overrides) for name, overrides in RUNS.items()}


@pytest.fixture(scope="module")
def trained(runs: dict[str, Path]) -> dict[str, Trained]:
    return {name: double(path) for name, path in runs.items()}


# -- maps --------------------------------------------------------------------------------------------------------


def test_each_row_shares_one_among_its_tokens_and_none_looks_at_a_later_one(trained: dict[str, Trained]) -> None:
    for name in MAPPED:
        maps = trained[name].attention(TEXTS[0], *target(name))
        assert maps
        for seen in maps:
            assert seen.weights.shape[1:] == (len(seen.queries), len(seen.keys)), name
            ones = torch.ones(seen.weights.shape[:2], dtype=torch.double)
            torch.testing.assert_close(seen.weights.sum(-1), ones, rtol=0, atol=1e-9)
        causal = [seen for seen in maps if re.fullmatch(r"layer \d self", seen.name)]
        assert len(causal) == (0 if name == "recurrent" else 2), name
        for seen in causal if name != "bert" else ():
            assert not seen.weights.triu(1).any(), name
            assert seen.weights.diagonal(dim1=1, dim2=2).gt(0).all(), name
        if name == "window":
            assert not causal[0].weights.tril(-6).any()
            assert causal[0].weights[:, 10, 5].gt(0).all()


def target(name: str) -> tuple[str, ...]:
    return (TEXTS[1],) if name in ("pair", "prefix", "recurrent") else ()


def test_tokens_are_named_as_the_run_reads_them(trained: dict[str, Trained]) -> None:
    (first, *_) = trained["bert"].attention("the animal [MASK] tired")
    assert first.queries == first.keys
    assert (first.keys[0], first.keys[-1], first.keys.count("[mask]")) == ("[start]", "[sep]", 1)
    (first, *_) = trained["gpt"].attention("tired")
    assert first.keys == ["[start]", *"tired"]
    (cross, *_, source) = trained["pair"].attention("tired", "a film")
    assert (cross.name, cross.queries, cross.keys) == ("layer 1 cross", ["[start]", *"a film"], [*"tired", "[sep]"])
    assert (source.name, source.queries, source.keys) == ("layer 2 source self", cross.keys, cross.keys)
    (cross,) = trained["recurrent"].attention("tired", "a film")
    assert (cross.queries, cross.keys) == (["[start]", *"a film"], [*"tired", "[sep]"])
    (first, *_) = trained["prefix"].attention("tired", "a film")
    assert first.keys == [*"tired", "[sep]", "[start]", *"a film"]


def test_a_target_is_named_in_its_own_vocabulary(trained: dict[str, Trained]) -> None:
    for name in ("pair", "recurrent"):
        opened = trained[name].opened
        ours = opened.tokenizer
        theirs = SimpleNamespace(
            vocab_size=ours.vocab_size, start=ours.start, encode=ours.encode, token_text=lambda token: f"de {token}"
        )
        preprocessor = SimpleNamespace(tokenizer=ours, target_tokenizer=theirs, series=None)
        first, *_ = Trained(dataclasses.replace(opened, preprocessor=preprocessor)).attention("tired", "a film")
        assert first.queries == ["[start]", *(f"de {token}" for token in ours.encode("a film"))], name
        assert first.keys == [*"tired", "[sep]"], name


def test_a_translation_shows_its_own_greedy_target(trained: dict[str, Trained]) -> None:
    for name in ("pair", "recurrent"):
        run = trained[name]
        (written,) = run.translate(["it was"], beam=1)
        own, given = run.attention("it was"), run.attention("it was", written)
        assert written
        assert own[0].queries == ["[start]", *written] == given[0].queries
        torch.testing.assert_close(own[0].weights, given[0].weights)


def test_a_source_is_drawn_only_if_all_of_it_is_translated(tmp_path: Path) -> None:
    run = double(make_run(tmp_path / "learned", *PREFIX, "model.positions=learned", "model.max_length=16"))
    (first, *_) = run.attention("it was", "a film")
    assert first.keys == [*"it was", "[sep]", "[start]", *"a film"]
    with pytest.raises(UserError, match="has 8 tokens, but the model has only 7 positions"):
        run.attention("the film")


def test_what_is_recorded_is_what_the_model_computes_without_it(trained: dict[str, Trained]) -> None:
    for name in MAPPED:
        run = trained[name]
        tokens = torch.tensor([run.tokenizer.encode(TEXTS[0]).tolist()])
        state = run.model.begin(tokens) if target(name) else None
        plain, _ = run.model(tokens, state)
        with recording():
            recorded, _ = run.model(tokens, state)
        torch.testing.assert_close(recorded, plain, rtol=0, atol=1e-9)


def test_a_target_of_no_use_is_refused_and_models_that_attend_are_named(trained: dict[str, Trained]) -> None:
    with pytest.raises(UserError, match="target: task=next_token has no target text"):
        trained["gpt"].attention("a", "b")
    attending = set()
    # Whether a model attends is a matter of its kind, and of a recurrent decoder's `attention`.
    for case in (case for case in cases() if not case.is_mixture):
        model = case.make()
        with recording() as maps, torch.no_grad():
            model(torch.zeros(1, 2, dtype=torch.long), starting(model, 1))
        attending |= {case.name} if maps else set()
    assert attending == {name.partition(" ")[0] for name in ATTENDING}


# -- pictures ----------------------------------------------------------------------------------------------------


def some_maps(layers: int, heads: int, queries: int, keys: int) -> list[Seen]:
    weights = torch.rand(heads, queries, keys).softmax(-1)
    words = [[f"{side}{index}" for index in range(count)] for side, count in (("q", queries), ("k", keys))]
    return [Seen(f"layer {layer + 1} cross", weights, *words) for layer in range(layers)]


def test_a_picture_says_what_it_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "maps.png"
    monkeypatch.setattr(attention_maps, "MAX_MAPS", 2)
    monkeypatch.setattr(attention_maps, "MAX_TOKENS", 30)
    monkeypatch.setattr(attention_maps, "MAX_PIXELS", 900)
    assert draw(some_maps(2, 2, 3, 30), path, "title") == ""
    assert draw(some_maps(4, 3, 3, 40), path, "title") == "2 of 4 maps, 1 of 3 heads, 10 of 40 tokens"
    height, width, _ = matplotlib.image.imread(path).shape
    assert 890 <= max(height, width) <= 901


def test_a_picture_names_tokens_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = saved_figures(monkeypatch)
    words, title = ["$\\frac{$", " ", "日本", "a" * 40], "a $formula_ that is none"
    draw([Seen("layer 1 self", torch.eye(len(words))[None], words, words)], tmp_path / "maps.png", title)
    values = {name: torch.rand(len(words), 3) for name in gates.DRAWN["gru"]}
    gates.draw([gates.Gates("layer 1", "gru", words, values)], tmp_path / "gates.png", title)
    drawn = [axes for figure in figures for axes in figure.axes]
    written = [label.get_text() for axes in drawn for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]]
    for word in ("$\\frac{$", "␣", "日本", "a" * 13 + "…"):
        assert written.count(word) == 2 + len(gates.DRAWN["gru"])


# -- the command -------------------------------------------------------------------------------------------------


def test_the_command_writes_the_files_that_their_names_ask_for(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opening, maps = tmp_path / "gates.png", tmp_path / "look.PNG"
    args = ["predict", str(runs["recurrent"]), TEXTS[0], "--gates", str(opening), "--attention", str(maps), "--json"]
    assert main.main(args) == 0
    looked, opened = map(json.loads, capsys.readouterr().out.splitlines())
    assert (looked["attention"], looked["maps"]) == (str(maps), ["cross"])
    assert (opened["gates"], opened["layers"][-1]) == (str(opening), "decoder layer 2")
    assert opening.read_bytes().startswith(b"\x89PNG")
    assert maps.read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
@pytest.mark.parametrize("name", ["gpt", "gru"])
def test_a_training_ends_with_a_picture_where_its_model_attends(
    name: str, trained: dict[str, Trained], tmp_path: Path
) -> None:
    run = trained[name]
    corpus = SimpleNamespace(tokens=run.tokenizer.encode(TEXTS[0] * 9))
    words = run.opened.preprocessor
    data: Any = SimpleNamespace(corpora={"validation": corpus}, tokenizer=words.tokenizer, preprocessor=words)
    data.look_at = functools.partial(StreamData.look_at, data)
    learner: Any = nn.Module()
    learner.device = torch.device("cpu")
    learner.model = run.model
    learner.train()
    run_logger, folder = mock.Mock(spec=RunLogger), Run.create(tmp_path / "run")
    trainer: Any = SimpleNamespace(is_global_zero=True, loggers=[run_logger], global_step=5)
    try:
        AttentionMaps(run=folder, data=data).on_fit_end(trainer, learner)
        assert learner.training
        assert run.model.training
    finally:
        run.model.eval()
    picture = tmp_path / "run" / "plots" / "attention.png"
    assert run_logger.log_image.call_args_list == ([mock.call("attention", picture, 5)] if name == "gpt" else [])
    assert picture.parent.exists() == (name == "gpt")


def test_a_picture_of_a_pair_names_each_token_in_its_own_vocabulary(trained: dict[str, Trained]) -> None:
    def tokenizer(language: str) -> SimpleNamespace:
        return SimpleNamespace(vocab_size=9, token_text=lambda token: f"{language}{token}")

    data = SimpleNamespace(
        preprocessor=SimpleNamespace(tokenizer=tokenizer("en"), target_tokenizer=tokenizer("de"), series=None),
        look_at=lambda model, split, limit: model_inputs(model, [1, 2, 3], [4, 5]),
    )
    callback: Any = SimpleNamespace(data=data)
    both = ["en1", "en2", "en3", "en4", "en5"]
    expected = {"pair": (["de4", "de5"], both[:3]), "recurrent": (["de4", "de5"], both[:3]), "prefix": (both, both)}
    for name, names in expected.items():
        learner: Any = SimpleNamespace(model=trained[name].model, device=torch.device("cpu"))
        first, *_ = AttentionMaps._maps(callback, learner)
        assert (first.queries, first.keys) == names, name
