"""Laws of the keys of the cache: whatever changes what is made is part of its key, so nothing stale is ever read."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
import pytest
import sklearn.linear_model

from seqtrain.data import cache as cache_module
from seqtrain.data import corpus as corpus_module
from seqtrain.data.cache import Store
from seqtrain.data.corpus import Corpus, text_hash, tokenised, trained
from seqtrain.data.preprocess import Preprocessor, Rows, prepare_rows
from seqtrain.data.sources.base import Split
from seqtrain.data.sources.text import Text
from seqtrain.data.tokenizers.recipes import BPE, Byte, Char, Recipe, Word
from seqtrain.tasks.base import Task
from seqtrain.tasks.baselines import texts as of_texts
from seqtrain.tasks.baselines.counts import baselines, xz_baselines
from seqtrain.tasks.regress import Regress
from seqtrain.tasks.sentiment import Sentiment
from tests.support.texts import text_of

TEXTS = ["a b a c a b", "", "b a"]


def tokens(recipe: Recipe, folder: Path) -> list[str]:
    """The vocabulary that a recipe makes of TEXTS, by way of the cache."""
    made = trained(Store(folder), recipe, text_hash(TEXTS), lambda: iter(TEXTS), lambda line: None)
    return made.tokens


def test_a_tokenizer_is_kept_by_its_recipe_and_all_of_its_options(tmp_path: Path) -> None:
    recipes = [Word(), Word(max_size=2), Word(max_size=1), Word(min_count=3), Char(), Byte(), BPE(size=257)]
    assert [tokens(recipe, tmp_path) for recipe in recipes * 2] == [
        list(recipe.train(TEXTS).tokens) for recipe in recipes * 2
    ]


def test_another_text_makes_another_tokenizer(tmp_path: Path) -> None:
    for texts in (["ab"], ["cd"], ["a", "b"], ["x\nab"]):
        made = trained(Store(tmp_path), Char(), text_hash(texts), lambda texts=texts: iter(texts), lambda line: None)
        assert {*made.tokens} == {"<unk>", *"".join(texts)}


def test_another_version_reads_nothing_that_the_old_one_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def make() -> None:
        trained(Store(tmp_path), Char(), text_hash(TEXTS), lambda: iter(TEXTS), said.append)

    make()
    make()
    assert len(said) == 1
    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "VERSION", cache_module.VERSION + 1)
        make()
    assert len(said) == 2
    monkeypatch.setattr(corpus_module, "version", lambda name: "another")  # of tokenizers
    make()
    assert len(said) == 3


def test_rows_and_a_stream_of_one_text_are_kept_apart(tmp_path: Path) -> None:
    lengths = [
        tokenised(
            Store(tmp_path), lambda: iter(TEXTS), "train", Byte().train([]), lambda line: None, keep_empty=empty
        ).lengths.tolist()
        for empty in (False, True, False)
    ]
    assert lengths == [[11, 3], [11, 0, 3], [11, 3]]


def test_one_text_in_two_tokenizers_or_between_other_edges_is_kept_apart(tmp_path: Path) -> None:
    for texts in (["ab", "c"], ["a", "bc"]):
        made = tokenised(Store(tmp_path), lambda texts=texts: iter(texts), "train", Byte().train([]), lambda line: None)
        assert made.lengths.tolist() == [len(text) for text in texts]
    recipes = (Char(), Word(), Word(max_size=1))
    for tokenizer in [recipe.train(TEXTS) for recipe in recipes]:
        made = tokenised(Store(tmp_path), lambda: iter(TEXTS), "train", tokenizer, lambda line: None)
        assert made[0].tolist() == tokenizer.encode(TEXTS[0]).tolist()


def test_baselines_are_kept_by_both_texts_their_edges_and_the_vocabulary(tmp_path: Path) -> None:
    ids = np.array([0, 1, 1, 0, 2, 1], dtype=np.uint16)
    edges = [np.array([0, 6]), np.array([0, 2, 6])]
    one, parted = (Corpus(ids, each, 6, 0, 0, "") for each in edges)
    other = Corpus(ids[::-1].copy(), edges[0], 6, 0, 0, "")
    asked = [(one, other, 3), (one, other, 4), (other, one, 3), (one, parted, 3), (parted, one, 3), (one, one, 3)]
    for number, (train, split, size) in enumerate(asked):
        fresh = baselines(train, split, size, print, cache=tmp_path / f"fresh{number}")
        assert baselines(train, split, size, print, cache=tmp_path / "kept") == fresh, number


@pytest.mark.parametrize(
    ("task", "module", "fit"),
    [(Sentiment, sklearn.linear_model, "LogisticRegression"), (Regress, of_texts, "lsqr")],
    ids=["labels", "numbers"],
)
def test_a_linear_baseline_is_fitted_once_for_each_text_and_its_answers(
    task: type[Task], module: ModuleType, fit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, count = getattr(module, fit), []
    monkeypatch.setattr(module, fit, lambda *given, **options: count.append(1) or fitted(*given, **options))

    def rows(name: str, texts: str, labels: str, recipe: Recipe) -> tuple[Preprocessor, dict[Split, Rows]]:
        """Return rows of letters as words, each with a digit as its answer."""
        for split, order in (("train", slice(None)), ("validation", slice(None, None, -1))):
            pairs = zip(texts.split("/"), labels[order], strict=True)
            (tmp_path / f"{name}-{split}.tsv").write_text(
                "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in pairs)
            )
        paths = [str(tmp_path / f"{name}-{split}.tsv") for split in ("train", "validation")]
        source = Text(path=paths[0], validation_path=paths[1], label_column="label")
        kind = "name" if task is Sentiment else "number"
        options = (source, recipe, ("train", "validation"), ("text", "label"))
        return prepare_rows(*options, label_kind=kind, cache=tmp_path, say=print)

    def figures(cache: str, made: tuple[Preprocessor, dict[Split, Rows]]) -> dict[str, dict[str, float]]:
        monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / cache))
        return task.baselines(cast(Any, None), made[1]["train"], made[1]["validation"], made[0], print)

    asked = [("a b/b a/c c/a c", "0011"), ("a b/b a/c c/a c", "0101"), ("a b/b b/c c/a c", "0011")]
    for number, (texts, labels) in enumerate(asked):
        made = rows(str(number), texts, labels, Word())
        assert figures("kept", made) == figures(f"fresh{number}", made) == figures("kept", made)
    assert len(count) == 2 * len(asked)
    figures("kept", rows("0", *asked[0], Char()))  # an answer of words is the same, one of tokens is not
    assert len(count) == 2 * len(asked) + (task is Regress)


def test_what_xz_makes_is_kept_by_which_text_comes_first(tmp_path: Path) -> None:
    texts = ("hello world, " * 9, "goodbye moon " * 30)
    for number, (train, split) in enumerate([texts, texts[::-1]]):
        fresh, kept = (
            xz_baselines(text_of([train]), text_of([split]), print, cache=tmp_path / name)
            for name in (f"fresh{number}", "kept")
        )
        assert kept == fresh
