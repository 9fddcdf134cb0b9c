"""Laws of words in tokens: where tokens join, and what a mask in a text stands for."""

from __future__ import annotations

import re

import numpy as np
import pytest

from seqtrain.data.tokenizer import BPE, Byte, Char, Recipe, Word
from tests.masked import TOKENIZER

SENTENCE = "don't stop: 3 naïve-cafés, x_y\nnew line — ok"


@pytest.mark.parametrize("recipe", [Byte(), Char(), BPE(size=256), BPE(size=300)], ids=["byte", "char", "bytes", "bpe"])
def test_tokens_join_where_letters_or_digits_meet(recipe: Recipe) -> None:
    tokenizer = recipe.train([SENTENCE, "don't stop new naïve line"] * 20)
    ids = tokenizer.encode(SENTENCE)
    joins = tokenizer.joins(ids)
    assert (joins.shape, joins.dtype) == (ids.shape, bool)
    words = [tokenizer.decode(part.tolist()) for part in np.split(ids, np.flatnonzero(~joins))[1:]]
    assert "".join(words) == SENTENCE, "no character is torn"
    assert not any(re.search(r"\w\s", word) for word in words)
    bare = [word.strip() for word in words]
    for word in ("naïve", "cafés", "stop", "new", "line", "ok", "3"):
        assert word in bare
    assert bare[:3] == ["don", "'", "t"] or bare[:2] == ["don", "'t"]
    assert "x_y" not in bare


def test_words_of_a_word_tokenizer_and_special_tokens_never_join() -> None:
    words = Word().train([SENTENCE])
    assert not words.joins(words.encode(SENTENCE)).any()
    a, b = (TOKENIZER.ids[char] for char in "ab")
    special = [TOKENIZER.start, a, TOKENIZER.mask, a, TOKENIZER.separator, b, TOKENIZER.unknown, b, b]
    assert np.flatnonzero(TOKENIZER.joins(np.array(special))).tolist() == [8]
    assert TOKENIZER.joins(np.zeros(0, dtype=np.int64)).tolist() == []


@pytest.mark.parametrize(
    ("recipe", "before", "after"),
    [(Byte(), "the ", " sat"), (Char(), "the ", " sat"), (Word(), "the", "sat"), (BPE(size=300), "the", " sat")],
    ids=["byte", "char", "word", "bpe"],
)
def test_a_mask_in_a_text_stands_for_one_token_with_the_space_that_belongs_to_it(
    recipe: Recipe, before: str, after: str
) -> None:
    tokenizer = recipe.train(["the cat sat"] * 20)
    found = tokenizer.encode_masked("the [MASK] sat")
    assert found.tolist() == [*tokenizer.encode(before), tokenizer.mask, *tokenizer.encode(after)]
    assert tokenizer.encode_masked("the sat").tolist() == tokenizer.encode("the sat").tolist()
    assert tokenizer.encode_masked("[MASK][MASK]").tolist() == [tokenizer.mask] * 2
    assert tokenizer.encode_masked("").tolist() == []
    if recipe.__class__ in (Word, BPE):
        cat = tokenizer.encode("the cat")[-1]
        found[found == tokenizer.mask] = cat
        assert tokenizer.decode(found) == "the cat sat"
