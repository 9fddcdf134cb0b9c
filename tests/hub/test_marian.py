"""Marian in and out: the function of the reference, the bytes that came, and the translations that it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import seqtrain
from seqtrain.cli.main import main
from seqtrain.config.instantiate import plain
from seqtrain.errors import UserError
from seqtrain.hub import leave
from seqtrain.hub.convert import opened
from seqtrain.inference.opened import open_run
from seqtrain.models.layers.positions import sinusoids
from tests.support.hub_folders import reference, save
from tests.support.model_cases import assert_near
from tests.support.untrained_runs import make_run

SMALL = ("model.num_layers=2", "model.num_heads=2", "tokenizer=bpe", "tokenizer.size=300")
RUN = ("task=translation", "model=encoder_decoder", *SMALL, "model.norm=post", "model.activation=silu")
TEXTS = ["the cat", "a film that was not good", "x"]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))


def biased() -> Any:
    """The reference with a bias of its scores, as published models have one."""
    model = reference("marian")
    torch.nn.init.normal_(model.final_logits_bias, std=0.5)
    model.final_logits_bias[0, 257] = 0  # of its padding, which is never written
    return model


def written(model: Any, tokens: list[int]) -> list[int]:
    """The greedy tokens of the reference, without start and end, as many at most as ours writes after such a source."""
    most = 2 * len(tokens) + 10
    found = model.generate(torch.tensor([tokens]), max_new_tokens=most, do_sample=False, num_beams=1)[0, 1:].tolist()
    end = model.generation_config.eos_token_id
    return found[: found.index(end)] if end in found else found


@pytest.mark.parametrize("activation", ["swish", "relu"])
def test_the_scores_are_those_of_the_reference_for_sources_of_any_length(activation: str, tmp_path: Path) -> None:
    from transformers.activations import ACT2FN

    theirs = biased()
    theirs.config.activation_function = activation
    for layer in (*theirs.model.encoder.layers, *theirs.model.decoder.layers):
        layer.activation_fn = ACT2FN[activation]
    taken, theirs = open_run(save("marian", tmp_path / "in", theirs)), theirs.double()
    taken.model.double(), taken.task.double()
    tokenizer: Any = taken.tokenizer
    rows = torch.from_numpy(tokenizer.theirs)
    generator = torch.Generator().manual_seed(1)
    source, target = (torch.randint(0, tokenizer.vocab_size, (3, size), generator=generator) for size in (20, 15))
    lengths = torch.tensor([20, 11, 3])
    real = torch.arange(20) < lengths.unsqueeze(1)
    source[torch.arange(3), lengths - 1] = tokenizer.separator
    target[:, 0] = tokenizer.start
    hidden, _ = taken.model(target, taken.model.begin(source, lengths))
    scores = taken.task.logits(taken.model, hidden)  # type: ignore[attr-defined]
    scored = torch.tensor([*rows[: tokenizer.vocab_size].tolist(), 0])
    given = {"input_ids": rows[source], "attention_mask": real.long(), "decoder_input_ids": rows[target]}
    # Its sinusoids are of float32; where they are of float64, nothing is left of the difference.
    assert_near(scores, theirs(**given).logits[..., scored], 1e-5)
    table = sinusoids(torch.arange(64), 16, torch.float64)
    for side in (theirs.model.encoder, theirs.model.decoder):
        side.embed_positions.weight.data = torch.cat([table[:, 0::2], table[:, 1::2]], 1)
    assert_near(scores, theirs(**given).logits[..., scored], 1e-12)


def test_a_folder_translates_as_the_reference_does_token_by_token(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    theirs = biased()
    run = seqtrain.load(save("marian", tmp_path / "in", theirs))
    tokenizer: Any = run.tokenizer
    theirs.generation_config.bad_words_ids = [[257]]
    reader = PreTrainedTokenizerFast.from_pretrained(tmp_path / "in")
    found = [written(theirs, [*reader(text, add_special_tokens=False)["input_ids"], 0]) for text in TEXTS]
    assert max(map(len, found)) >= 20
    answers = run.predict(TEXTS)
    assert [answer["translation"] for answer in answers] == [
        tokenizer.decode(tokenizer.ours[tokens].tolist()) for tokens in found
    ]


def test_what_came_leaves_with_the_bytes_it_came_with_and_is_read_again(tmp_path: Path) -> None:
    folder = save("marian", tmp_path / "in", biased())
    taken = open_run(folder)
    assert opened(folder).left_behind == []
    leave.save(taken.model, taken.task, taken.tokenizer, plain(taken.config.model), lambda lines: "", tmp_path / "out")
    came, left = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "out"))
    assert set(left) == set(came)
    for name, value in came.items():
        assert torch.equal(left[name], value), name
    about = [json.loads((path / "config.json").read_text()) for path in (folder, tmp_path / "out")]
    for name in ("vocab_size", "eos_token_id", "pad_token_id", "decoder_start_token_id", "tie_word_embeddings"):
        assert about[0][name] == about[1][name], name
    assert open_run(tmp_path / "out").hash == taken.hash


@pytest.mark.parametrize("more", [(), ("task.tied=false", "model.activation=relu", "model.dim_feedforward=24")])
def test_a_run_leaves_as_a_model_that_scores_and_writes_alike(more: tuple[str, ...], tmp_path: Path) -> None:
    from transformers import AutoTokenizer, MarianMTModel

    path = make_run(tmp_path / "run", *RUN, *more)
    assert main(["export", str(path), "--output", str(tmp_path / "out"), "--format", "hub"]) == 0
    loaded: Any = MarianMTModel.from_pretrained(tmp_path / "out", output_loading_info=True)
    theirs, info = loaded
    assert not info["missing_keys"], info
    assert not info["unexpected_keys"], info
    theirs.eval()
    run, reader = seqtrain.load(path), AutoTokenizer.from_pretrained(tmp_path / "out")
    tokenizer, task, model = run.tokenizer, run.opened.task, run.model
    lengths = [len(tokenizer.encode(text)) + 1 for text in TEXTS]
    given = reader(TEXTS, padding=True, return_tensors="pt")
    assert given["attention_mask"].sum(1).tolist() == lengths
    target = torch.tensor([[tokenizer.start, 1, 2, 3, 4]] * 3)
    rows = [[*tokenizer.encode(text).tolist(), tokenizer.separator] for text in TEXTS]
    source = torch.tensor([[*row, *[0] * (max(lengths) - len(row))] for row in rows])
    with torch.no_grad():
        hidden, _ = model(target, model.begin(source, torch.tensor(lengths)))
        scores = task.logits(model, hidden)  # type: ignore[attr-defined]
        found = theirs(**given, decoder_input_ids=target).logits
    scored = [*range(tokenizer.vocab_size), tokenizer.separator]
    assert torch.allclose(found[..., scored], scores, atol=1e-5)
    answers = [answer["translation"] for answer in run.predict(TEXTS)]
    assert answers == [tokenizer.decode(written(theirs, row)) for row in rows]
    # And it comes back as it left.
    again = seqtrain.load(tmp_path / "out")
    assert again.predict(TEXTS) == run.predict(TEXTS)


def test_a_folder_without_a_bias_of_its_scores_is_read_and_one_of_another_form_is_refused(tmp_path: Path) -> None:
    wrong = {
        "scale_embedding": (False, "scale_embedding=False: seqtrain supports only True"),
        "normalize_before": (True, "normalize_before=True: seqtrain supports only False"),
        "share_encoder_decoder_embeddings": (False, "share_encoder_decoder_embeddings=False"),
        "decoder_layers": (5, "different encoder_layers and decoder_layers"),
        "activation_function": ("mish", "activation_function=mish: expected one of"),
        "decoder_start_token_id": (0, "special tokens [0, 0] are not ids of its rows"),
    }
    folder = save("marian", tmp_path / "in")
    whole = json.loads((folder / "config.json").read_text())
    for name, (value, words) in wrong.items():
        (folder / "config.json").write_text(json.dumps(whole | {name: value}))
        with pytest.raises(UserError) as told:
            opened(folder)
        (line,) = told.value.lines
        assert words in line
    (folder / "config.json").write_text(json.dumps(whole))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"has no tokenizer\.json; load it once with transformers' fast tokenizer"):
        opened(folder)
