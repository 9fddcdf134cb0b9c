"""Text to token ids and back.

Each tokenizer is saved in the format of the `tokenizers` library, which runs BPE. The other tokenizers use look-up
tables, which produce the same ids as the library, many times faster. A file may be untrusted: its vocabulary is checked
before it is used.
"""

from __future__ import annotations

import functools
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

from seqtrain.errors import UserError
from seqtrain.files.atomic import write_text

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


Kind = Literal["byte", "char", "word", "bpe", "ids", "foreign", "none"]
HIDDEN = "[MASK]"  # a hidden token in the texts of `encode_masked`
SEGMENT = 1 << 18  # characters encoded as one piece; limits memory for long documents
BATCH = 1 << 22  # characters handed to the threads of `tokenizers` at a time
# The longest text that ends in a word before a space or a line end. No token of a tokenizer trained here crosses this
# position, so cutting there does not change any token.
CUT = re.compile(r".*\S(?=[ \n])", re.DOTALL)
NEXT_CUT = re.compile(r"\S(?=[ \n])")
# Third-party tokenizers may join a punctuation mark and the next line end, but not a word and the next space.
SPACE_CUT, NEXT_SPACE_CUT = re.compile(r".*\S(?= )", re.DOTALL), re.compile(r"\S(?= )")
# Characters passed to `tokenizers` as one text: this takes three quarters of the time for whole segments, for which the
# library allocates memory again and again.
AT_A_TIME = 1 << 14


def segments(text: str, size: int = SEGMENT, *, at_spaces: bool = False) -> Iterator[str]:
    """Yield consecutive pieces of `text` with at most `size` characters, cut where no token is split.

    A cut is within a word only if the word and the white space before it are longer than a piece. An empty text is one
    piece. `at_spaces`: cut only before spaces, not before line ends.
    """
    return (segment for segment, _ in segments_of([(text, True)], size, at_spaces=at_spaces))


def segments_of(
    parts: Iterable[tuple[str, bool]], size: int = SEGMENT, *, at_spaces: bool = False
) -> Iterator[tuple[str, bool]]:
    """Yield the `segments` of documents that come in parts of any size; memory does not grow with a document.

    Args:
        parts: Parts of documents, cut anywhere, each with True if it ends its document.
        size: Maximum number of characters per segment.
        at_spaces: Cut only before spaces, not before line ends.

    Returns:
        The segments of each document, in order, each with True if it is the document's last.
    """
    last_cut = SPACE_CUT if at_spaces else CUT
    waiting = ""
    for text, ends in parts:
        waiting += text
        begin = 0
        # A segment is cut only once the next character is known, so that the cut does not depend on the parts.
        while len(waiting) - begin > size:
            end = begin + size
            if cut := last_cut.match(
                waiting, begin, end + 1
            ):  # one more character, to see a space after a full segment
                end = cut.end()
            yield waiting[begin:end], False
            begin = end
        waiting = waiting[begin:]
        if ends:
            yield waiting, True
            waiting = ""


def whole_words(text: str, size: int = AT_A_TIME, *, at_spaces: bool = False) -> Iterator[str]:
    """Yield consecutive parts of `text` with about `size` characters, cut where no token is split.

    A part is longer if there is no such cut. An empty text is one part. `at_spaces`: cut only before spaces.
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
    """Yield the ids (n,) int64 of each text from a tokenizer of `tokenizers`, without special tokens.

    Args:
        backend: The library's tokenizer.
        texts: The texts; each is passed to the library in parts of whole words.
        at_spaces: Cut only before spaces, not before line ends.
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

    Three ids have no text: V (`start`) precedes the first token, and as a target is the end; V+1 (`separator`) follows
    a text in an example; V+2 (`mask`) replaces a hidden token.
    """

    kind: ClassVar[Kind]
    lossless: bool  # True if decode(encode(text)) == text for any text
    unknown: int | None = None  # id of <unk>
    at_spaces: ClassVar[bool] = False  # True if long texts may be cut only before spaces, not before line ends
    before: str = ""  # text before a word that is part of the word's first token, such as a space

    def __init__(self, content: dict[str, Any]) -> None:
        """Set the vocabulary. `content`: the tokenizer.json of the `tokenizers` library."""
        self._set(content, content["model"]["vocab"])
        if not self.lossless:  # BPE may have learnt the characters <unk> as an ordinary token
            self.unknown = self.ids[UNKNOWN]

    def _set(self, content: dict[str, Any], ids: dict[str, int]) -> None:
        """Set the file's content, and the ids 0..V-1 of tokens with text."""
        self.content = content
        self.ids = ids
        self.vocab_size = len(self.ids)  # V
        self.start = self.vocab_size
        self.separator = self.vocab_size + 1
        self.mask = self.vocab_size + 2
        # The order of keys in the file does not matter.
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
        """Return a mask (n,) of the tokens that continue the word of the previous token.

        A token does if the characters on both sides of the boundary are letters or digits; a byte that is not a
        character by itself counts as a letter. Tokens without text, and words, never continue a word.
        """
        opens, closes = self._edges
        joined = opens[tokens]
        joined[1:] &= closes[tokens[:-1]]
        joined[:1] = False  # the first token has no previous token
        return joined

    @cached_property
    def _edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Two masks (V + 3,): tokens that begin within a word, and tokens that end within one."""
        table = np.zeros((2, self.mask + 1), dtype=bool)
        for token in range(self.vocab_size):
            table[:, token] = self._sides(token)
        return table[0], table[1]

    def _sides(self, token: int) -> tuple[bool, bool]:
        """Return, for the token's begin and end, True if that side may be within a word; by default both are False."""
        return False, False

    def text_lengths(self, tokens: np.ndarray) -> np.ndarray:
        """Return the text length of each of the tokens (n,): in bytes, or in characters if tokens are characters."""
        return np.ones(len(tokens), dtype=np.int64)

    def text_ends(self, text: str) -> np.ndarray | None:
        """Return the position (n,) in the text, in characters, at which each of its tokens ends.

        None means that token lengths determine it. They do not if the tokenizer normalises text, such as by removing
        accents.
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
                # Many short documents share a batch for the threads; a long one is split over several batches.
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
        """Return the text of the ids; invalid UTF-8 becomes U+FFFD."""

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
            elif written and written[-1] != "\n":  # no space at the beginning of a line
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

        # Only its tables are used: other parts of an untrusted file, such as regular expressions, are ignored.
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
    """A token is an id of an unknown vocabulary; a text is a list of ids separated by white space."""

    kind, lossless = "ids", True

    @classmethod
    def of(cls, vocab_size: int) -> IdTokenizer:
        """Return a tokenizer for the ids 0..V-1."""
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
                f"{word}: is not an id from 0 to {self.vocab_size - 1}; the run was trained on ids without a "
                "tokenizer, so it reads and writes ids"
            )
        return self.ids[word]

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(f" {index}" for index in ids)

    def text_lengths(self, tokens: np.ndarray) -> np.ndarray:
        return np.array([len(f" {token}") for token in tokens.tolist()], dtype=np.int64)


class NoTokens(Tokenizer):
    """Placeholder for a tokenizer if the data is values instead of text; no text has any tokens."""

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
    """Return, for the first and the last character, True if it is a letter or digit, or part of a character."""
    text = token.decode(errors="replace")
    return _is_letter(text[0]), _is_letter(text[-1])


def _is_letter(character: str) -> bool:
    return character.isalnum() or character == "\ufffd"  # decoded from bytes that are not a whole character


def printable(token: bytes) -> str:
    """Return bytes as printable text, with escapes for other characters."""
    text = token.decode(errors="backslashreplace")
    # Escapes are printable, so they are not replaced again.
    for character in filterfalse(str.isprintable, text):
        text = text.replace(character, character.encode("unicode_escape").decode())
    return text
