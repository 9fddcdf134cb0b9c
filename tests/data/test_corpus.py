"""Laws of the tokenised corpus: the published counts, one build, and nothing damaged is ever used."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from seqtrain.data.cache import Store, cached_json
from seqtrain.data.corpus import Corpus
from seqtrain.data.preprocess import Preprocessor, prepare_rows
from seqtrain.data.sources.base import Source, Split
from seqtrain.data.sources.text import Text
from seqtrain.data.tokenizers.recipes import BPE, Byte, Char, Recipe, Tokenizer, Word
from tests.data.test_vocabularies import Given
from tests.support.refused import refusal

TEXTS = {"train": ["to be or\n", "", "not to be\n\n", "Łódź"], "validation": ["be zzz\n"]}


def fixed(**documents: list[str]) -> Given:
    return Given(("text",), {split: [(text,) for text in texts] for split, texts in documents.items()})


SOURCE = fixed(**TEXTS)


def without_targets(line: str) -> None:
    pass


def prepare(
    source: Source,
    recipe: Recipe,
    splits: Sequence[Split],
    *,
    tokenizer: Tokenizer | None = None,
    cache: Path,
    say: Callable[[str], None],
) -> tuple[Tokenizer, dict[Split, Corpus]]:
    """Tokenizer and tokenised text of rows that hold nothing else."""
    given = None if tokenizer is None else Preprocessor(tokenizer, tokenizer)
    preprocessor, rows = prepare_rows(source, recipe, splits, ("text",), preprocessor=given, cache=cache, say=say)
    return preprocessor.tokenizer, {split: made.columns["text"] for split, made in rows.items()}


def made(cache: Path, recipe: Recipe, source: Source = SOURCE) -> tuple[Corpus, Corpus, list[str]]:
    lines: list[str] = []
    corpora = prepare(source, recipe, ["train", "validation"], cache=cache, say=lines.append)[1]
    return corpora["train"], corpora["validation"], lines


@pytest.mark.long
def test_wikitext_2_has_the_published_counts(shared_data, tmp_path):
    folder = shared_data / "wikitext-2"
    paths = {split: str(folder / f"wiki.{name}.tokens") for split, name in (("validation", "valid"), ("test", "test"))}
    source = Text(path=str(folder / "wiki.train.tokens"), validation_path=paths["validation"], test_path=paths["test"])
    source.check()
    tokenizer, corpora = prepare(source, Word(), ["train", "validation", "test"], cache=tmp_path, say=without_targets)
    assert [len(corpus.tokens) for corpus in corpora.values()] == [2_088_628, 217_646, 245_569]
    assert [corpus.num_words for corpus in corpora.values()] == [2_088_628, 217_646, 245_569]
    assert tokenizer.vocab_size == 33_278


def test_a_corpus_is_its_documents_encoded(tmp_path):
    for recipe, unknown in ((Byte(), 0), (BPE(size=260), 0), (Char(), 3), (Word(), 1)):
        tokenizer, corpora = prepare(SOURCE, recipe, ["train", "validation"], cache=tmp_path, say=without_targets)
        train = corpora["train"]
        parts = [train.tokens[a:b].tolist() for a, b in zip(train.documents[:-1], train.documents[1:], strict=True)]
        assert parts == [tokenizer.encode(text).tolist() for text in TEXTS["train"] if text], recipe
        assert (train.num_bytes, train.num_words) == (len("to be or\nnot to be\n\nŁódź".encode()), 3 + 1 + 3 + 2 + 1)
        assert not np.asarray(train.tokens).flags.writeable
        assert train.bytes_per_token == train.num_bytes / len(train.tokens)
        assert corpora["validation"].num_unknown == unknown, recipe


@pytest.mark.long
def test_a_large_vocabulary_takes_wider_tokens(tmp_path):
    words = [f"w{i}" for i in range(70_000)]
    train, _, _ = made(tmp_path, Word(), fixed(train=[" ".join(words)], validation=["w1 w69999"]))
    assert train.tokens.dtype == np.uint32
    assert sorted(train.tokens) == list(range(2, 70_002))


def test_only_the_train_split_makes_the_tokenizer_and_one_that_is_given_is_never_trained_again(tmp_path):
    tokenizer, corpora = prepare(SOURCE, Char(), ["validation"], cache=tmp_path, say=without_targets)
    assert "z" not in tokenizer.ids.keys() - {"ź"}
    assert list(corpora) == ["validation"]
    given = Char().train(["xyz"])
    used, corpora = prepare(SOURCE, Char(), ["validation"], tokenizer=given, cache=tmp_path, say=without_targets)
    assert used is given
    assert corpora["validation"].num_unknown == 4


def test_a_damaged_entry_is_built_again(tmp_path):
    whole = np.asarray(made(tmp_path, BPE(size=260))[0].tokens).tolist()
    for name in ("tokens.bin", "documents.bin", "meta.json", "tokenizer.json"):
        for damage in ("shorter", "longer", "gone"):
            for path in tmp_path.glob(f"*/*/{name}"):
                content = path.read_bytes()
                path.write_bytes(content[: len(content) // 2] if damage == "shorter" else content + b"}}")
                if damage == "gone":
                    path.unlink()
            train, _, lines = made(tmp_path, BPE(size=260))
            assert np.asarray(train.tokens).tolist() == whole, (name, damage)
            assert lines, (name, damage)


def test_a_build_that_fails_leaves_nothing_behind(tmp_path):
    def write(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path).entry("group", "key", write, lambda folder: (folder / "half").read_text())
    assert [path.suffix for path in (tmp_path / "group").iterdir()] == [".lock"]


def build_slowly(cache: Path, built: Path, answers: multiprocessing.SimpleQueue) -> None:
    def make() -> int:
        with open(built, "a") as file:
            file.write("x")
        made(cache / "corpus", BPE(size=300), fixed(train=["many words " * 20_000], validation=["x"]))
        return 7

    answers.put(cached_json("key", make, cache))


def test_two_processes_at_once_build_once_and_read_the_same(tmp_path):
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    jobs = [context.Process(target=build_slowly, args=(tmp_path, tmp_path / "built", answers)) for _ in range(2)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(60)
    assert [job.exitcode for job in jobs] == [0, 0]
    assert [answers.get(), answers.get()] == [7, 7]
    assert (tmp_path / "built").read_text() == "x"


def test_a_split_without_text_and_a_cache_that_cannot_be_written_are_refused(tmp_path):
    said = refusal(made, tmp_path, Byte(), fixed(train=["x"], validation=[""]))
    assert "the validation split contains no text" in said
    (tmp_path / "file").write_text("")
    said = refusal(made, tmp_path / "file", Byte())
    assert said.startswith("SEQTRAIN_CACHE=")
    assert "set SEQTRAIN_CACHE" in said
