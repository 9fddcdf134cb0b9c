"""Texts in which [MASK] stands for a hidden token: they are read as a text of training with that token hidden."""

from __future__ import annotations

import numpy as np
import pytest

from seqtrain.data.tokenizers.recipes import BPE, Byte, Char, Recipe, Word

TEXT = "the cat sat on the mat and the dog sat on the cat\n" * 30


@pytest.mark.parametrize("recipe", [BPE(size=300), Word()], ids=["bpe", "word"])
@pytest.mark.parametrize("place", [1, 3], ids=["second", "fourth"])
def test_a_mask_in_a_text_stands_where_its_words_token_stood(recipe: Recipe, place: int) -> None:
    tokenizer = recipe.train([TEXT])
    words = ["the", "cat", "sat", "on", "the", "mat"]
    expected = tokenizer.encode(" ".join(words))
    assert len(expected) == len(words), "each word is one token"
    expected[place] = tokenizer.mask
    words[place] = "[MASK]"
    assert np.array_equal(tokenizer.encode_masked(" ".join(words)), expected)


@pytest.mark.parametrize("recipe", [Byte(), Char()], ids=["byte", "char"])
def test_where_a_space_is_a_token_it_stays_before_the_mask(recipe: Recipe) -> None:
    tokenizer = recipe.train([TEXT])
    expected = tokenizer.encode("the  at")
    expected[4] = tokenizer.mask
    assert np.array_equal(tokenizer.encode_masked("the [MASK]at"), expected)
