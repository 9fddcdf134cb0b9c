"""Checks of the vocabulary of an untrusted tokenizer file, of which only tables are read."""

from __future__ import annotations

import functools
from typing import Any

UNKNOWN, LINE_END = "<unk>", "<eos>"
SPACES = "[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"  # the white space of str.split
ENDS = f"^ ?{LINE_END}$"  # for the decoder of word tokenizers that are exported to the hub
ANY = "(?m:.)"  # in Oniguruma, with m, . matches "\n"


@functools.cache  # called once per token
def byte_ids() -> dict[str, int]:
    """Return the byte that each character represents in byte-level vocabularies, in the order of bytes.

    A byte that is printable in Latin-1 is that character; the other bytes are, in order, the characters from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    unused = 0x100
    ids = {}
    for byte in range(256):
        if byte in printable:
            ids[chr(byte)] = byte
        else:
            ids[chr(unused)] = byte
            unused += 1
    return ids


def check_vocabulary(content: dict[str, Any], kind: str) -> None:
    """Raise ValueError unless a tokenizer.json of this kind contains ids 0..V-1 and tokens of its alphabet."""
    ids = content["model"]["vocab"]
    # With `isinstance`, JSON's true would count as 1.
    if not isinstance(ids, dict) or not {type(index) for index in ids.values()} <= {int}:
        raise ValueError("its vocabulary is not a table of ids")
    # An empty token would match at every position of a text.
    if "" in ids or sorted(ids.values()) != list(range(len(ids))):
        raise ValueError("its ids are not 0..V-1, or a token is empty")
    if kind == "ids" and any(name != str(index) for name, index in ids.items()):
        raise ValueError("its tokens are not its ids")
    if kind == "byte" and ids != byte_ids():
        raise ValueError("its tokens are not the bytes")
    if kind == "char" and set(map(len, ids.keys() - {UNKNOWN})) - {1}:
        raise ValueError("a token is not one character")
    special = {"char": {UNKNOWN}, "word": {UNKNOWN, LINE_END}}.get(kind, set())
    if not ids.keys() >= special:
        raise ValueError(f"it has no {UNKNOWN} or {LINE_END}")
    if kind == "bpe":
        _check_merges(ids, merges(content))


def merges(content: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the pairs that BPE merges, in order of merging."""
    pairs = []
    for pair in content["model"]["merges"]:
        # Older files of the library write a pair as one text with a space, which no token contains.
        first, second = pair.split(" ") if isinstance(pair, str) else pair
        pairs.append((first, second))
    return pairs


def _check_merges(ids: dict[str, int], pairs: list[tuple[str, str]]) -> None:
    characters = byte_ids().keys()
    # Decoding looks up the byte of each character, so a token of any other character could not be written.
    if not ids.keys() >= characters or not characters >= set("".join(ids)):
        raise ValueError("its tokens are not made of bytes")
    for first, second in pairs:
        if not {first, second, first + second} <= ids.keys():
            raise ValueError("a merge uses or makes a token that is not in its vocabulary")
