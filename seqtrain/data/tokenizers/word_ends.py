"""The tokens in which the words of a text end."""

from __future__ import annotations

import re

import numpy as np
from jaxtyping import Int

from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.data.tokenizers.foreign import ForeignTokenizer

WORD = re.compile(r"\S+")  # the same white space as that of `str.split`


def word_ends(tokenizer: Tokenizer, text: str, tokens: Int[np.ndarray, " n"]) -> Int[np.ndarray, " words"]:
    """Return the index (words,) of the token in which each word of a text ends.

    Args:
        tokenizer: Made the tokens.
        text: Words between white space.
        tokens: Ids (n,) of the whole text, without special tokens.
    """
    if tokenizer.kind == "word":
        return np.arange(len(tokens))
    last = [match.end() - 1 for match in WORD.finditer(text)]
    if isinstance(tokenizer, ForeignTokenizer):  # it may read less than is written, such as no accents
        ends = np.searchsorted(tokenizer.text_ends(text), np.array(last, dtype=np.int64) + 1)
        return ends.clip(max=len(tokens) - 1)
    # Counted in bytes, where tokens are made of them: a token may be a part of a character.
    sizes = np.ones(len(text), dtype=np.int64)
    if tokenizer.lossless:
        sizes = np.array([len(character.encode()) for character in text], dtype=np.int64)
    ends_of_characters = sizes.cumsum()
    ends_of_tokens = tokenizer.text_lengths(tokens).cumsum()
    # The first token that reaches the end of the word's last character.
    return np.searchsorted(ends_of_tokens, ends_of_characters[last])
