"""Texts with hidden tokens, and a model's guesses of these, in words."""

from __future__ import annotations

from collections.abc import Sequence

from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.tokenizers.encoding import HIDDEN, Tokenizer

MAX_CHARACTERS = 160  # of an example that is shown


def fill(tokenizer: Tokenizer, text: str, tokens: Sequence[int]) -> str:
    """Replace each [MASK] of a text by a token; the rest of the text is unchanged."""
    *others, last = text.split(HIDDEN)
    written = ""
    adjacent: list[int] = []  # adjacent tokens are decoded together: a character may take several
    for other, token in zip(others, tokens, strict=True):
        before = other.removesuffix(tokenizer.before)
        if before:
            written += tokenizer.decode(adjacent) + before
            adjacent = []
        adjacent.append(token)
    return written + tokenizer.decode(adjacent) + last


def bracketed(tokenizer: Tokenizer, tokens: list[int], guesses: list[int]) -> str:
    """Return tokens as one line of at most MAX_CHARACTERS characters; those that have a guess are in brackets."""
    words: list[str] = []
    plain: list[int] = []  # decoded together: a character may take several tokens
    for token, guess in zip(tokens, guesses, strict=True):
        if guess == IGNORED and token < tokenizer.vocab_size:
            plain.append(token)
            continue
        if plain:
            words.append(tokenizer.decode(plain))
            plain = []
        if token >= tokenizer.vocab_size:
            words.append(" [SEP] ")
        elif guess == token:
            words.append(f"[{tokenizer.decode([token])}]")
        else:
            words.append(f"[{tokenizer.decode([guess])}|{tokenizer.decode([token])}]")
    if plain:
        words.append(tokenizer.decode(plain))
    text = (" " if tokenizer.kind == "word" else "").join(words)
    return "".join(char if char.isprintable() else " " for char in text)[:MAX_CHARACTERS]
