"""Laws of the keys of the cache: whatever changes what is made is part of its key, so nothing stale is ever read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seqtrain.data import cache as cache_module
from seqtrain.data import corpus as corpus_module
from seqtrain.data.cache import Store, cached_json
from seqtrain.data.corpus import Corpus, text_hash, tokenised, trained
from seqtrain.data.tokenizers.recipes import BPE, Byte, Char, Recipe, Word
from seqtrain.tasks.baselines.counts import baselines, xz_baselines
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


@pytest.mark.parametrize("what", ["ours", "of tokenizers"])
def test_another_version_reads_nothing_that_the_old_one_made(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def make() -> None:
        trained(Store(tmp_path), Char(), text_hash(TEXTS), lambda: iter(TEXTS), said.append)

    make()
    make()
    assert len(said) == 1
    if what == "ours":
        monkeypatch.setattr(cache_module, "VERSION", cache_module.VERSION + 1)
    else:
        monkeypatch.setattr(corpus_module, "version", lambda name: "another")
    make()
    assert len(said) == 2


def test_rows_and_a_stream_of_one_text_are_kept_apart(tmp_path: Path) -> None:
    lengths = [
        tokenised(
            Store(tmp_path), lambda: iter(TEXTS), "train", Byte().train([]), lambda line: None, keep_empty=empty
        ).lengths.tolist()
        for empty in (False, True, False)
    ]
    assert lengths == [[11, 3], [11, 0, 3], [11, 3]]


def test_one_text_in_two_tokenizers_is_kept_apart(tmp_path: Path) -> None:
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


def test_what_xz_makes_is_kept_by_which_text_comes_first(tmp_path: Path) -> None:
    texts = ("hello world, " * 9, "goodbye moon " * 30)
    for number, (train, split) in enumerate([texts, texts[::-1]]):
        fresh, kept = (
            xz_baselines(text_of([train]), text_of([split]), print, cache=tmp_path / name)
            for name in (f"fresh{number}", "kept")
        )
        assert kept == fresh


def test_values_of_two_keys_are_kept_apart(tmp_path: Path) -> None:
    assert [cached_json(key, lambda key=key: [key], tmp_path) for key in ("a", "b", "a")] == [["a"], ["b"], ["a"]]
