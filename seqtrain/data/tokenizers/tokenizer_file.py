"""What the vocabulary of a tokenizer file must be: a file from elsewhere is read with nothing but tables."""

from __future__ import annotations

from typing import Any

UNKNOWN, LINE_END = "<unk>", "<eos>"


def byte_characters() -> list[str]:
    """The character that stands for each byte in byte-level vocabularies: itself where it prints, else from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def check_vocabulary(content: dict[str, Any], kind: str) -> None:
    """ValueError unless a tokenizer.json of this kind holds what training makes: ids 0..V-1, tokens of its alphabet."""
    ids = content["model"]["vocab"]
    if not isinstance(ids, dict) or any(type(index) is not int for index in ids.values()):
        raise ValueError("its vocabulary is no table of ids")
    if "" in ids or sorted(ids.values()) != list(range(len(ids))):
        raise ValueError("its ids are not 0..V-1, or a token is empty")
    characters = byte_characters()
    if kind == "byte" and ids != {char: byte for byte, char in enumerate(characters)}:
        raise ValueError("its tokens are not the bytes")
    if kind == "char" and any(len(token) != 1 for token in ids.keys() - {UNKNOWN}):
        raise ValueError("a token is no character")
    if kind in ("char", "word") and not ids.keys() >= {UNKNOWN, *([LINE_END] if kind == "word" else [])}:
        raise ValueError(f"it has no {UNKNOWN} or {LINE_END}")
    if kind == "bpe":
        _check_merges(ids, merges(content), set(characters))


def merges(content: dict[str, Any]) -> list[tuple[str, str]]:
    """The pairs that BPE makes one token of, in their order."""
    return [(first, second) for first, second in content["model"]["merges"]]


def _check_merges(ids: dict[str, int], pairs: list[tuple[str, str]], characters: set[str]) -> None:
    if not ids.keys() >= characters or not characters.issuperset("".join(ids)):
        raise ValueError("its tokens are not made of bytes")
    if any(not {first, second, first + second} <= ids.keys() for first, second in pairs):
        raise ValueError("it makes a token that it does not have")
