"""Runs as folders of the hub: `transformers` reads them, scores alike and writes the same text."""

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
from seqtrain.inference.opened import open_run
from tests.support.hub_folders import save
from tests.support.quick import some_long
from tests.support.untrained_runs import make_run

LLAMA = ("model.norm_kind=rms", "model.feed_forward=gated", "model.activation=silu", "model.num_kv_heads=1")
LEARNED = ("model.positions=learned", "model.max_length=24", "model.attention_window=23")
SMALL = ("model.num_layers=2", "model.num_heads=2", "model.dim=16", "tokenizer=char")
RUNS = {
    "gpt_neox": ("task=next_token", "model=gpt", *SMALL, "model.attention_window=23"),
    "gpt2": ("task=next_token", "model=gpt", *SMALL, *LEARNED, "model.bias=true", "tbptt=windows", "tbptt.k2=8"),
    "llama": ("task=next_token", "model=gpt", *SMALL, *LLAMA, "model.attention_window=23"),
    "qwen3": ("task=next_token", "model=gpt", *SMALL, *LLAMA, "model.attention_window=23", "model.qk_norm=true"),
}
MARIAN = ("task=translation", "model=encoder_decoder", *SMALL[:2], "model.norm=post", "tokenizer=char")
MASKED = ("task=masked_lm", "model=bert", *SMALL, "model.norm=post", "model.positions=learned", "model.max_length=24",
          "data.max_length=24", "model.norm_eps=1e-2", "task.norm_eps=1e-2")  # fmt: skip


def left(run: Path, folder: Path) -> Any:
    """What `transformers` makes of the exported folder."""
    import transformers

    assert main(["export", str(run), "--output", str(folder), "--format", "hub"]) == 0
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    loaded, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not {key for key in info["missing_keys"] if not key.startswith("pooler.")}, info
    assert not info["unexpected_keys"], info
    return loaded.eval()


@pytest.mark.parametrize("kind", RUNS)
def test_a_decoder_leaves_as_a_model_that_scores_and_writes_alike(kind: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    run = make_run(tmp_path / "run", *RUNS[kind])
    theirs, trained = left(run, tmp_path / "out"), seqtrain.load(run)
    assert theirs.config.model_type == kind
    model, tokenizer = trained.model, trained.tokenizer
    text = trained.tokenizer.decode(range(1, 4))
    tokens = torch.tensor([[tokenizer.start, *tokenizer.encode(text)]])
    reader = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert reader(text, add_special_tokens=False)["input_ids"] == tokens[0, 1:].tolist()
    with torch.no_grad():
        ours = model.embed.logits(model(tokens)[0], end=True)  # type: ignore[operator]
        assert torch.allclose(theirs(tokens).logits[..., : ours.shape[-1]], ours, atol=1e-5)
        never = list(range(tokenizer.vocab_size, len(model.embed.weight)))  # type: ignore[arg-type]
        written = theirs.generate(tokens, max_new_tokens=20, do_sample=False, suppress_tokens=never)
    written = written[0, tokens.shape[1] :].tolist()
    (answer,) = trained.predict([text], length=20, temperature=0.0)
    assert tokenizer.decode(written) == answer["text"]


def test_a_bert_leaves_with_the_head_that_fills_masks(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *MASKED)
    theirs, trained = left(run, tmp_path / "out"), seqtrain.load(run)
    tokenizer, model = trained.tokenizer, trained.model
    tokens = torch.tensor([[tokenizer.start, 1, 2, tokenizer.mask, 4, tokenizer.separator]])
    with torch.no_grad():
        ours = trained.opened.task.output(model, model(tokens)[0]).logits()  # type: ignore[attr-defined]
        assert torch.allclose(theirs(tokens).logits[..., : ours.shape[-1]], ours, atol=1e-5)


BERT = ("model=bert", *SMALL, "model.norm=post", "model.positions=learned", "model.max_length=24", "data.max_length=24")
DECODERS = {name: tuple(word for word in words if word != "task=next_token") for name, words in RUNS.items()}


@pytest.mark.parametrize("kind", some_long(["bert", *RUNS], ["bert", "gpt2", "llama"]))
def test_a_tagger_leaves_with_its_labels(kind: str, tmp_path: Path) -> None:
    words = BERT if kind == "bert" else [word for word in DECODERS[kind] if not word.startswith("tbptt")]
    run = make_run(tmp_path / "run", "task=tag", *words, "data.max_length=24", labels=("O", "B-PER", "I-PER"))
    theirs, trained = left(run, tmp_path / "out"), seqtrain.load(run)
    tokens = torch.tensor([[trained.tokenizer.start, 1, 2, 4, trained.tokenizer.separator]])
    with torch.no_grad():
        ours = trained.opened.task.logits(trained.model, trained.model.encode(tokens))
        assert torch.allclose(theirs(tokens).logits, ours, atol=1e-5)
    assert [theirs.config.id2label[place] for place in range(3)] == ["O", "B-PER", "I-PER"]
    assert theirs.config.label2id == {"O": 0, "B-PER": 1, "I-PER": 2}


@pytest.mark.parametrize("pool", some_long(["cls", "mean", "last"], ["cls", "last"]))
def test_the_head_of_a_sentiment_run_lies_beside_its_encoder(
    pool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = DECODERS["gpt_neox"] if pool == "last" else BERT
    run = make_run(tmp_path / "run", "task=sentiment", *words, f"task.pool={pool}")
    theirs, trained = left(run, tmp_path / "out"), seqtrain.load(run)
    said = "".join(capsys.readouterr())
    tokens = torch.tensor([[trained.tokenizer.start, 1, 2, 4, trained.tokenizer.separator]])
    head = load_file(tmp_path / "out" / "classifier.safetensors")
    with torch.no_grad():
        hidden = theirs(tokens).last_hidden_state
        pooled = {"cls": hidden[:, 0], "last": hidden[:, -1], "mean": hidden.mean(1)}[pool]
        task: Any = trained.opened.task
        ours = task.logits(trained.model, task.pooled(trained.model, tokens, torch.tensor([5])))
        assert torch.allclose(pooled @ head["weight"].T + head["bias"], ours, atol=1e-5)
    assert theirs.config.label2id == {"bad": 0, "fair": 1, "good": 2}
    for text in (said, (tmp_path / "out" / "README.md").read_text()):
        assert "classifier.safetensors has `weight` and `bias` of the head" in text
        assert ("no bias" if pool == "last" else "a dense layer and a tanh") in text


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "qwen3"])
def test_what_came_from_the_hub_leaves_with_the_bytes_it_came_with(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    folder = save(family, tmp_path / "in")
    opened = open_run(folder)
    if family in ("llama", "qwen3"):
        opened.task.head = None  # of its own: only tied ones are written
    leave.save(opened.model, opened.task, opened.tokenizer, plain(opened.config.model), "".join, tmp_path / "out")
    came, left_again = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "out"))
    assert set(left_again) <= set(came) | {"cls.predictions.decoder.bias"}
    for name in set(left_again) & set(came):
        given, again = came[name], left_again[name]
        if name == "cls.predictions.bias":  # ours never scores the special tokens, so that theirs are zero
            text = opened.tokenizer.theirs[: opened.tokenizer.vocab_size]  # type: ignore[attr-defined]
            given, again = given[text], again[text]
        assert torch.equal(again, given), name
    assert set(came) - set(left_again) <= {"lm_head.weight"}


def test_a_run_that_no_family_is_equal_to_is_refused_with_the_reason(tmp_path: Path) -> None:
    wrong: dict[tuple[str, ...], list[tuple[dict[str, Any], str]]] = {
        RUNS["gpt_neox"]: [({"positions": "none"}, "no decoder of transformers has positions=none with these blocks")],
        MARIAN: [
            ({"norm": "pre"}, "model.norm=pre: a Marian of transformers has post"),
            ({"decoder": "lstm"}, "model.decoder=lstm: a Marian of transformers has transformer"),
            ({"positions": "none"}, "model.positions=none: a Marian of transformers has sinusoidal"),
            ({"feed_forward": "gated"}, "model.feed_forward=gated: a Marian of transformers has plain"),
            ({"num_kv_heads": 1}, "model.num_kv_heads=1: a Marian of transformers has as many as num_heads"),
        ],
    }
    for number, (words, cases) in enumerate(wrong.items()):
        opened = open_run(make_run(tmp_path / f"run{number}", *words))
        for options, reason in cases:
            changed = plain(opened.config.model) | options
            with pytest.raises(UserError) as refused:
                leave.save(opened.model, opened.task, opened.tokenizer, changed, "".join, tmp_path / "out")
            assert refused.value.lines == (f"--format hub: {reason}; --format seqtrain writes any run",)
    opened.task.shared_vocab = False
    with pytest.raises(UserError, match=r"needs task=translation and task\.shared_vocab=true"):
        leave.save(opened.model, opened.task, opened.tokenizer, plain(opened.config.model), "".join, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["word", "char"])
def test_a_tokenizer_of_ours_that_left_is_read_again_with_the_same_ids(kind: str, tmp_path: Path) -> None:
    text = "the cat sat on the mat .\n\nthe  dog ran\n" * 400  # longer than what is tokenised at a time
    run = make_run(tmp_path / "run", *RUNS["gpt_neox"][:2], "model.num_heads=2", f"tokenizer={kind}")
    assert main(["export", str(run), "--output", str(tmp_path / "out"), "--format", "hub"]) == 0
    ours, theirs = seqtrain.load(run), seqtrain.load(tmp_path / "out")
    assert list(ours.tokenizer.encode(text)) == list(theirs.tokenizer.encode(text))
    assert ours.predict(["the cat"], greedy=True, length=9) == theirs.predict(["the cat"], greedy=True, length=9)
