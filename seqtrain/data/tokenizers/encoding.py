"""Text to token ids and back.

Each tokenizer is saved in the format of the `tokenizers` library, which runs BPE. The other tokenizers use look-up
tables, which give the same ids as that library does for the file, many times faster.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import filterfalse, islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from seqtrain.data.tokenizers.tokenizer_file import LINE_END, UNKNOWN, byte_ids, merges
from seqtrain.errors import UserError
from seqtrain.files.atomic import write_text

Kind = Literal["byte", "char", "word", "bpe", "ids", "foreign", "none"]
HIDDEN = "[MASK]"  # stands for a hidden token in the texts of `encode_masked`
SEGMENT = 1 << 18  # characters encoded as one piece; bounds the memory that a long document takes
BATCH = 1 << 22  # characters handed to the threads of `tokenizers` at a time
# The longest stretch that ends in a word and stands before a space or a line end. No token of any tokenizer made here
# spans that place from the left, so cutting there changes no token.
CUT = re.compile(r".*\S(?=[ \n])", re.DOTALL)
NEXT_CUT = re.compile(r"\S(?=[ \n])")
# Tokenizers of others may join a mark and the line end behind it, but no word and the space behind it.
SPACE_CUT, NEXT_SPACE_CUT = re.compile(r".*\S(?= )", re.DOTALL), re.compile(r"\S(?= )")
# Characters of a text that `tokenizers` is given: measured, it takes three quarters of the time that it takes of whole
# segments, for which it asks the system for memory again and again.
AT_A_TIME = 1 << 14


def segments(text: str, size: int = SEGMENT, *, at_spaces: bool = False) -> Iterator[str]:
    """Yield pieces of at most `size` characters that make up `text`, cut where no token is split.

    A cut is within a word only if the word and the white space before it are longer than a piece. The empty text is one
    piece. `at_spaces`: cut before spaces alone, not before line ends.
    """
    return (segment for segment, _ in segments_of([(text, True)], size, at_spaces=at_spaces))


def segments_of(
    parts: Iterable[tuple[str, bool]], size: int = SEGMENT, *, at_spaces: bool = False
) -> Iterator[tuple[str, bool]]:
    """Yield the `segments` of documents that come in parts of any size; memory does not grow with a document.

    Args:
        parts: Parts of documents, cut anywhere, each with True if it ends its document.
        size: The most characters of a segment.
        at_spaces: Cut before spaces alone, not before line ends.

    Returns:
        The segments of each document, in order, each with True if it is the document's last.
    """
    last_cut = SPACE_CUT if at_spaces else CUT
    waiting = ""
    for text, ends in parts:
        waiting += text
        begin = 0
        # A segment is cut only once the character behind it is known, so that the cut does not depend on the parts.
        while len(waiting) - begin > size:
            end = begin + size
            if cut := last_cut.match(
                waiting, begin, end + 1
            ):  # one more, so that it sees the space after a whole segment
                end = cut.end()
            yield waiting[begin:end], False
            begin = end
        waiting = waiting[begin:]
        if ends:
            yield waiting, True
            waiting = ""


def whole_words(text: str, size: int = AT_A_TIME, *, at_spaces: bool = False) -> Iterator[str]:
    """Yield parts of about `size` characters that make up `text`, cut where no token is split.

    A part is longer if there is no such cut. The empty text is one part. `at_spaces`: cut before spaces alone.
    """
    last_cut, next_cut = (SPACE_CUT, NEXT_SPACE_CUT) if at_spaces else (CUT, NEXT_CUT)
    begin = 0
    while len(text) - begin > size:
        cut = last_cut.match(text, begin, begin + size + 1) or next_cut.search(text, begin + size)
        if cut is None:
            break
        yield text[begin : cut.end()]
        begin = cut.end()
    yield text[begin:]


def encoded_by_library(backend: Any, texts: Iterable[str], *, at_spaces: bool = False) -> Iterator[np.ndarray]:
    """Yield the ids (n,) int64 of each text by a tokenizer of `tokenizers`, without any special token.

    Args:
        backend: The library's tokenizer.
        texts: Texts, each given in parts of whole words.
        at_spaces: Cut them before spaces alone, not before line ends.
    """
    parts: list[str] = []
    counts = []
    for text in texts:
        before = len(parts)
        parts += whole_words(text, at_spaces=at_spaces)
        counts.append(len(parts) - before)
    encodings = iter(backend.encode_batch_fast(parts, add_special_tokens=False))  # all at once: it runs in threads
    for count in counts:
        yield np.concatenate([np.array(each.ids, dtype=np.int64) for each in islice(encodings, count)])


class Tokenizer(ABC):
    """Converts text to ids 0..V-1 and back.

    Three ids stand for no text: V (`start`), before the first token, and as a target the end; V+1 (`separator`), after
    a text that stands for itself; V+2 (`mask`), in place of a hidden token.
    """

    kind: ClassVar[Kind]
    lossless: bool  # whether decode(encode(text)) is text, for any text
    unknown: int | None = None  # id of <unk>
    at_spaces: ClassVar[bool] = False  # whether a long text is cut before spaces alone
    before: str = ""  # what a token that begins a word holds of the text before the word

    def __init__(self, content: dict[str, Any]) -> None:
        """Set the vocabulary. `content`: the tokenizer.json of the `tokenizers` library."""
        self._set(content, content["model"]["vocab"])
        if not self.lossless:  # BPE may have learnt the characters <unk> as a token like any other
            self.unknown = self.ids[UNKNOWN]

    def _set(self, content: dict[str, Any], ids: dict[str, int]) -> None:
        """Set what is saved, and the ids 0..V-1 of the tokens of text."""
        self.content = content
        self.ids = ids
        self.vocab_size = len(self.ids)  # V
        self.start = self.vocab_size
        self.separator = self.vocab_size + 1
        self.mask = self.vocab_size + 2
        # The order of keys in the file is no part of what the tokenizer is.
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        self.hash = hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()

    def encode(self, text: str) -> np.ndarray:
        """Return the ids of the text, (n,) int64."""
        return np.concatenate([ids for ids, _ in self.blocks([text])])

    def encode_masked(self, text: str) -> np.ndarray:
        """Return the ids (n,) int64 of a text with `[MASK]` for hidden tokens, each including the space before it."""
        *others, last = text.split(HIDDEN)
        ids = []
        for text_before in others:
            ids.append(self.encode(text_before.removesuffix(self.before)))
            ids.append(np.array([self.mask]))
        return np.concatenate([*ids, self.encode(last)])

    def joins(self, tokens: np.ndarray) -> np.ndarray:
        """Return a mask (n,) of the tokens that continue the word of the token before them.

        A token does if both are letters or digits at the place where they meet; a byte that is not a character by
        itself counts as a letter. Tokens that stand for no text, and words, are words by themselves.
        """
        opens, closes = self._edges
        joined = opens[tokens]
        joined[1:] &= closes[tokens[:-1]]
        joined[:1] = False  # nothing stands before the first one
        return joined

    @cached_property
    def _edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Two masks (V + 3,): tokens that begin within a word, and tokens that end within one."""
        table = np.zeros((2, self.mask + 1), dtype=bool)
        for token in range(self.vocab_size):
            table[:, token] = self._sides(token)
        return table[0], table[1]

    def _sides(self, token: int) -> tuple[bool, bool]:
        """Return True for each side, begin and end, of the token that may lie within a word; the default is neither."""
        return False, False

    def text_lengths(self, tokens: np.ndarray) -> np.ndarray:
        """Return the length of text of each of the tokens (n,): in bytes, or in characters if tokens are characters."""
        return np.ones(len(tokens), dtype=np.int64)

    def text_ends(self, text: str) -> np.ndarray | None:
        """Return the place (n,) in the text at which each of its tokens ends, in characters.

        None: lengths of tokens tell it. They do not if less is read than is written, such as no accents.
        """
        return None

    def encode_documents(self, documents: Iterable[str]) -> Iterator[np.ndarray]:
        """Yield the ids of each document, (n,) int64."""
        document: list[np.ndarray] = []
        for ids, ends in self.blocks(documents):
            document.append(ids)
            if ends:
                yield np.concatenate(document)
                document = []

    def blocks(self, documents: Iterable[str]) -> Iterator[tuple[np.ndarray, bool]]:
        """Yield the ids of the documents in bounded pieces, each with True if it ends its document."""
        batch: list[str] = []
        ends: list[bool] = []
        num_characters = 0
        for text in documents:
            cut = list(segments(text, at_spaces=self.at_spaces))
            for number, segment in enumerate(cut, 1):
                batch.append(segment)
                ends.append(number == len(cut))
                num_characters += len(segment)
                # Many short documents go to the threads together; a long one goes in several batches.
                if num_characters >= BATCH:
                    yield from zip(self._encode(batch), ends, strict=True)
                    batch, ends, num_characters = [], [], 0
        yield from zip(self._encode(batch), ends, strict=True)

    def encode_segments(self, texts: list[str]) -> Iterator[np.ndarray]:
        """Yield the ids (n,) int64 of each text, which is one of `segments` and is not cut again."""
        return self._encode(texts)

    @abstractmethod
    def _encode(self, texts: list[str]) -> Iterator[np.ndarray]:
        """Yield the ids (n,) int64 of each text."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids; broken UTF-8 becomes U+FFFD."""

    def token_text(self, token: int) -> str:
        """Return one token in printable form."""
        return printable(self.tokens[token].encode())

    @cached_property
    def tokens(self) -> list[str]:
        """Vocabulary as written in the file, by id."""
        return sorted(self.ids, key=self.ids.__getitem__)

    def save(self, path: Path | str) -> None:
        """Write one JSON file, which `tokenizers.Tokenizer.from_file` can read too."""
        write_text(Path(path), json.dumps(self.content, ensure_ascii=False))


class ByteTokenizer(Tokenizer):
    """A token is a UTF-8 byte, and its id is the byte's value."""

    kind, lossless = "byte", True

    def _encode(self, texts: list[str]) -> Iterator[np.ndarray]:
        for text in texts:
            yield np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(map(int, ids)).decode(errors="replace")

    def token_text(self, token: int) -> str:
        return printable(bytes([token]))

    def _sides(self, token: int) -> tuple[bool, bool]:
        return _letters(bytes([token]))


class CharTokenizer(Tokenizer):
    """A token is a Unicode character."""

    kind, lossless = "char", False

    @cached_property
    def _table(self) -> np.ndarray:
        """Ids (0x110000,) of all code points of Unicode."""
        table = np.full(0x110000, self.unknown, dtype=np.int64)
        for token, index in self.ids.items():
            if token != UNKNOWN:
                table[ord(token)] = index
        return table

    def _encode(self, texts: list[str]) -> Iterator[np.ndarray]:
        for text in texts:
            yield self._table[np.frombuffer(text.encode("utf-32-le"), dtype="<u4")]

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.tokens[i] for i in ids)

    def _sides(self, token: int) -> tuple[bool, bool]:
        is_letter = token != self.unknown and self.tokens[token].isalnum()
        return is_letter, is_letter


class WordTokenizer(Tokenizer):
    """A token is a word between white space, or a line end."""

    kind, lossless = "word", False

    def _encode(self, texts: list[str]) -> Iterator[np.ndarray]:
        for text in texts:
            yield np.array([self.ids.get(word, self.unknown) for word in words(text)], dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        written: list[str] = []
        for token in ids:
            word = self.tokens[token]
            if word == LINE_END:
                word = "\n"
            elif written and written[-1] != "\n":  # no space begins a line
                word = f" {word}"
            written.append(word)
        return "".join(written)


class BPETokenizer(Tokenizer):
    """A token is a byte, or a frequent sequence of bytes."""

    kind, lossless = "bpe", True
    before = " "

    @cached_property
    def _backend(self) -> Any:
        from tokenizers import Tokenizer as Backend
        from tokenizers import models, pre_tokenizers

        # Only its tables are used: other parts of an untrusted file, such as regular expressions, are not.
        backend = Backend(models.BPE(self.ids, merges(self.content)))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        return backend

    @cached_property
    def _bytes(self) -> list[bytes]:
        byte_of = byte_ids()
        return [bytes(map(byte_of.__getitem__, token)) for token in self.tokens]

    def _encode(self, texts: list[str]) -> Iterator[np.ndarray]:
        return encoded_by_library(self._backend, texts)

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self._bytes[i] for i in ids).decode(errors="replace")

    def text_lengths(self, tokens: np.ndarray) -> np.ndarray:
        return np.array([len(self._bytes[token]) for token in tokens.tolist()], dtype=np.int64)

    def token_text(self, token: int) -> str:
        return printable(self._bytes[token])

    def _sides(self, token: int) -> tuple[bool, bool]:
        return _letters(self._bytes[token])


class IdTokenizer(Tokenizer):
    """A token is a number of an unknown vocabulary; a text is such numbers between white space."""

    kind, lossless = "ids", True

    @classmethod
    def of(cls, vocab_size: int) -> IdTokenizer:
        """Return a tokenizer of the ids 0..V-1."""
        vocab = {str(index): index for index in range(vocab_size)}
        parts = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
        model = {"type": "WordLevel", "vocab": vocab, "unk_token": "0"}
        before = {"type": "WhitespaceSplit"}
        return cls({"version": "1.0", **parts, "added_tokens": [], "pre_tokenizer": before, "model": model})

    def _encode(self, texts: list[str]) -> Iterator[np.ndarray]:
        for text in texts:
            ids = [self._id(word) for word in text.split()]
            yield np.array(ids, dtype=np.int64)

    def _id(self, word: str) -> int:
        if word not in self.ids:
            raise UserError(
                f"{word}: is no id from 0 to {self.vocab_size - 1}; the run was trained on ids without a tokenizer, so "
                "that it reads and writes ids"
            )
        return self.ids[word]

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(f" {index}" for index in ids)

    def text_lengths(self, tokens: np.ndarray) -> np.ndarray:
        return np.array([len(f" {token}") for token in tokens.tolist()], dtype=np.int64)


class NoTokens(Tokenizer):
    """Placeholder for a tokenizer where values are read instead of text; every text has no tokens."""

    kind, lossless = "none", True

    def _encode(self, texts: list[str]) -> Iterator[np.ndarray]:
        for _ in texts:
            yield np.zeros(0, dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        return ""


NO_TOKENS = NoTokens({"model": {"vocab": {}}})


def words(text: str) -> list[str]:
    """Return the words between white space, and the line ends."""
    return text.replace("\n", f" {LINE_END} ").split()


def _letters(token: bytes) -> tuple[bool, bool]:
    """Return True for the first and for the last character that is a letter or digit; a broken character is one."""
    text = token.decode(errors="replace")
    return _is_letter(text[0]), _is_letter(text[-1])


def _is_letter(character: str) -> bool:
    return character.isalnum() or character == "\ufffd"  # that stands for bytes which are no character by themselves


def printable(token: bytes) -> str:
    """Return bytes as text in which every character prints: others as escapes."""
    text = token.decode(errors="backslashreplace")
    # An escape is printable, so that what is put in is not replaced again.
    for character in filterfalse(str.isprintable, text):
        text = text.replace(character, character.encode("unicode_escape").decode())
    return text
