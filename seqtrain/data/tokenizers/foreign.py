"""Saved tokenizers: ours, and pretrained ones, rebuilt from supported parts of a tokenizer.json.

The file is untrusted. Only the kinds of parts that are listed here are accepted, and only the published regular
expressions, because others may never finish. The file's truncation and padding are ignored, because they would
silently change every text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from seqtrain.data.tokenizers.encoding import (
    ANY,
    ENDS,
    SPACES,
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    IdTokenizer,
    Tokenizer,
    WordTokenizer,
    byte_ids,
    check_vocabulary,
    encoded_by_library,
    printable,
    whole_words,
)
from seqtrain.errors import Unavailable, UserError, kind_of
from seqtrain.files.checked import load_json

# Patterns with which published models split a text, as in their tokenizer.json files.
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PATTERNS = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_REST}",  # Llama 3
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}",  # Qwen 2
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"{_CONTRACTIONS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",  # o200k
)
OWN_PATTERNS = (SPACES, ENDS, ANY)
"""Patterns of seqtrain's word and character tokenizers, as `export --format hub` writes them."""
MODELS = ("WordPiece", "BPE", "WordLevel")
PARTS = {
    "normalizer": ("BertNormalizer", "NFC", "NFD", "NFKC", "Lowercase", "StripAccents", "Replace", "Sequence"),
    "pre_tokenizer": (
        *("BertPreTokenizer", "ByteLevel", "Whitespace", "WhitespaceSplit", "Metaspace", "Digits", "Punctuation"),
        *("Split", "Sequence"),
    ),
    "decoder": ("WordPiece", "ByteLevel", "ByteFallback", "Metaspace", "Fuse", "Strip", "Replace", "Sequence"),
}
"""Supported kinds of parts."""
SEQUENCES = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
SPECIALS = ("start", "separator", "mask")


class ForeignTokenizer(Tokenizer):
    """A pretrained tokenizer with its ids in seqtrain's order: text tokens first, then special tokens.

    `content` contains `tokenizer`, a tokenizer.json; `rows`, the number of rows of the model's embedding, which may
    exceed the number of tokens; and `specials`, the ids in the file of start, separator and mask, as far as the model
    has them.
    """

    kind = "foreign"
    at_spaces = True

    def __init__(self, content: dict[str, Any]) -> None:
        file = checked(content["tokenizer"])
        rows, specials = content["rows"], list(content["specials"])
        tokens = dict(file["model"]["vocab"])
        tokens.update({token["content"]: token["id"] for token in file["added_tokens"]})
        self._check(tokens, rows, specials)
        in_order = [index for index in range(rows) if index not in specials] + specials
        self.theirs = np.array(in_order, dtype=np.int64)  # (rows,) id in the file of each of our ids
        self.ours = np.empty(rows, dtype=np.int64)
        self.ours[self.theirs] = np.arange(rows)
        names = {index: token for token, index in tokens.items()}
        texts = self.theirs[: rows - len(specials)].tolist()
        self.file = file
        vocab = {names.get(index, f"<row {index}>"): ours for ours, index in enumerate(texts)}
        # The hash covers the whole content, the vocabulary only text tokens.
        self._set({**content, "tokenizer": file}, vocab)
        before = file["pre_tokenizer"] or {}
        parts = before.get("pretokenizers", [before])
        self.byte_level = any(part.get("type") == "ByteLevel" for part in parts)
        prefixed = any(part.get("add_prefix_space") for part in parts)
        self.lossless = self.byte_level and not prefixed and not file["normalizer"]
        self.before = " " if self.byte_level else ""
        unknown = tokens.get(file["model"].get("unk_token") or "")
        self.unknown = None if unknown is None else int(self.ours[unknown])

    @staticmethod
    def _check(tokens: dict[str, int], rows: Any, specials: list[Any]) -> None:
        if type(rows) is not int or not 0 < rows < 1 << 22 or any(type(index) is not int for index in tokens.values()):
            raise ValueError("its ids are not row numbers of an embedding")
        if len(set(tokens.values())) != len(tokens) or not set(tokens.values()) <= set(range(rows)):
            raise ValueError(f"its ids are not different rows of an embedding of {rows:,} rows")
        if (
            len(specials) > len(SPECIALS)
            or len(set(specials)) != len(specials)
            or not set(specials) <= set(range(rows))
        ):
            raise ValueError(f"special tokens {specials} are not ids of its rows")

    @cached_property
    def _backend(self) -> Any:
        from tokenizers import Tokenizer as Backend

        known = self.file["model"]["vocab"]
        added = []
        for token in self.file["added_tokens"]:
            if token["id"] not in self.content["specials"]:
                added.append(token)
            elif token["content"] not in known:
                # It keeps its id, but no text can contain it: otherwise a text could contain a start token.
                added.append({**token, "content": f"\0{token['content']}"})
        try:
            return Backend.from_str(json.dumps({**self.file, "added_tokens": added}))
        except Exception as error:  # the library raises no other class
            raise UserError(f"tokenizer.json: the library `tokenizers` cannot load it: {error}") from None

    def _encode(self, texts: list[str]) -> Iterator[np.ndarray]:
        for ids in encoded_by_library(self._backend, texts, at_spaces=True):
            yield self.ours[ids]

    def text_ends(self, text: str) -> np.ndarray:
        ends, begin = [], 0
        for part in whole_words(text, at_spaces=True):
            encoding = self._backend.encode(part, add_special_tokens=False)
            ends += [begin + end for _, end in encoding.offsets]
            begin += len(part)
        return np.array(ends, dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        return self._backend.decode(self.theirs[list(map(int, ids))].tolist(), skip_special_tokens=False)

    def token_text(self, token: int) -> str:
        return printable(self._bytes(token) if self.byte_level else self.tokens[token].encode())

    def text_lengths(self, tokens: np.ndarray) -> np.ndarray:
        if not self.lossless:
            return super().text_lengths(tokens)
        return np.array([len(self._bytes(token)) for token in tokens.tolist()], dtype=np.int64)

    def _bytes(self, token: int) -> bytes:
        byte_of = byte_ids()
        name = self.tokens[token]
        return bytes(map(byte_of.__getitem__, name)) if set(name) <= byte_of.keys() else name.encode()

    def _sides(self, token: int) -> tuple[bool, bool]:
        name = self.tokens[token]
        prefix = self.file["model"].get("continuing_subword_prefix")
        if prefix:
            return name.startswith(prefix), True
        text = self._bytes(token).decode(errors="replace") if self.byte_level else name
        return text[:1].isalnum(), text[-1:].isalnum()


def checked(file: Any) -> dict[str, Any]:
    """Return the parts of a tokenizer.json that are used; raise ValueError for an unsupported part."""
    model = file["model"]
    if model.get("type") not in MODELS:
        raise ValueError(f"model {model.get('type')} is not supported; expected one of {', '.join(MODELS)}")
    if model.get("dropout"):
        raise ValueError("dropout of BPE merges is not supported, because a text must always give the same tokens")
    found: dict[str, Any] = {"version": "1.0", "truncation": None, "padding": None, "post_processor": None}
    found["added_tokens"] = [dict(token) for token in file.get("added_tokens") or ()]
    for name, kinds in PARTS.items():
        part = file.get(name)
        if part is not None:
            _check_part(name, part, kinds)
        found[name] = part
    return {**found, "model": model}


def _check_part(name: str, part: Any, kinds: tuple[str, ...]) -> None:
    kind = part.get("type")
    if kind not in kinds:
        raise ValueError(f"{name} {kind} is not supported; expected one of {', '.join(kinds)}")
    if kind == "Sequence":
        for inner in part[SEQUENCES[name]]:
            _check_part(name, inner, kinds)
    pattern = part.get("pattern")
    regex = pattern.get("Regex") if isinstance(pattern, dict) else None
    if regex is not None and regex not in (*PATTERNS, *OWN_PATTERNS):
        raise ValueError(f"{name} has the pattern {regex!r:.60}, which is not one of the published patterns")


MAX_BYTES = 1 << 27  # of tokenizer.json


def load_tokenizer(path: Path | str) -> Tokenizer:
    """Read a file that `Tokenizer.save` wrote; raise UserError for any other file."""
    try:
        content = load_json(Path(path), MAX_BYTES)
        if "tokenizer" in content:
            return ForeignTokenizer(content)
        tokenizer_class = _class_of(content)
        check_vocabulary(content, tokenizer_class.kind)  # before the content is used
        return tokenizer_class(content)
    except FileNotFoundError:
        raise Unavailable(f"{path}: no such tokenizer file") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise kind_of(error)(f"{path}: not a tokenizer that seqtrain saved ({error!r})") from None


def _class_of(content: dict[str, Any]) -> type[Tokenizer]:
    """Return the class of a file's tokenizer, by the entries that training writes."""
    before = content["pre_tokenizer"]
    if before["type"] == "WhitespaceSplit":
        return IdTokenizer
    if content["model"]["type"] != "BPE":
        return WordTokenizer if content["normalizer"] else CharTokenizer
    return BPETokenizer if before["use_regex"] else ByteTokenizer
