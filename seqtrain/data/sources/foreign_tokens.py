"""Token stores over token files of other programs; counts and hashes are computed once and cached."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from seqtrain.data.cache import Store, durable, read_json
from seqtrain.data.corpus import Corpus
from seqtrain.data.sources.base import SPLITS, Split, check_fractions
from seqtrain.data.sources.tokens import TokenSource
from seqtrain.data.token_store.index import TokenStore, documents_name
from seqtrain.data.token_store.tokens import MappedTokens, Part, Stretch, TokenArray, mapped_offsets
from seqtrain.data.tokenizers.encoding import IdTokenizer, Tokenizer
from seqtrain.data.tokenizers.foreign import load_tokenizer
from seqtrain.errors import UserError
from seqtrain.files.atomic import expanded, listed

BLOCK_TOKENS = 1 << 22  # tokens read at a time
MAX_VOCABULARY = 1 << 24


class TokenLayout(NamedTuple):
    """Tokens of one path, and the starts of its documents if the files record them."""

    parts: Sequence[Part]
    # Returns the start of each document, and the end of the last one; called once, because the file may be large.
    documents: Callable[[], Int[np.ndarray, " offsets"]] | None
    files: Sequence[Path]  # files that determine the rest


@dataclass(kw_only=True, eq=False)
class ForeignTokens(TokenSource):
    """Token files, with the tokenizer that produced them or only the size of its vocabulary.

    The files are read completely when they are first opened: to count the tokens, to check that every id is in the
    vocabulary, and to hash the content. The result is cached until the size or a time stamp of a file changes.

    Attributes:
        path: Path of the train tokens.
        validation_path: Path of the validation tokens; None: split off the end of train, at the start of a document.
        test_path: Path of the test tokens.
        validation_fraction: Fraction of the train tokens that is split off for validation.
        tokenizer: Path of the tokenizer.json that produced the tokens.
        vocab_size: Number of ids, if no tokenizer is given.
    """

    path: str
    validation_path: str | None = None
    test_path: str | None = None
    validation_fraction: float = 0.1
    tokenizer: str | None = None
    vocab_size: int | None = None
    end_of_text: int | None = field(default=None, init=False)  # id, if the files do not record documents

    called = ""  # value of `data=`, such as nanogpt

    def __post_init__(self) -> None:
        """Check the options; nothing is read yet."""
        check_fractions(self.validation_fraction, 0.0)
        given: dict[Split, str | None] = {
            "train": self.path,
            "validation": self.validation_path,
            "test": self.test_path,
        }
        for split, name in given.items():
            if name == "":
                raise UserError(f"data: the {split} path is empty; set it, or leave it out")
        self.paths: dict[Split, str] = {split: name for split, name in given.items() if name}
        if (self.tokenizer is None) == (self.vocab_size is None):
            raise UserError(
                f"data={self.called}: set data.tokenizer=FILE, the tokenizer of the tokens, or else data.vocab_size=N"
            )

    @abstractmethod
    def layout(self, path: Path) -> TokenLayout:
        """Return the tokens at a path; raise UserError if they are not in this format, or a file is truncated."""

    @property
    def place_of_store(self) -> str:
        return self.paths["train"]

    def open(self) -> TokenStore:
        tokenizer = self._tokenizer()
        if self.end_of_text is not None and self.end_of_text >= tokenizer.vocab_size:
            raise UserError(
                f"data.end_of_text={self.end_of_text}: must be below {tokenizer.vocab_size:,}, the size of the "
                "vocabulary; set the id that ends a document, or leave it out"
            )
        splits: dict[Split, Corpus] = {}
        for split, path in self.paths.items():
            splits |= self._open_path(split, Path(expanded(path)), tokenizer)
        ordered: dict[Split, Corpus] = {split: splits[split] for split in SPLITS if split in splits}
        whole = hashlib.sha256(" ".join(corpus.hash for corpus in ordered.values()).encode())
        remarks = []
        if tokenizer.kind == "ids":
            size = np.dtype(splits["train"].tokens.dtype).itemsize
            remark = (
                f"data: without data.tokenizer the text is unknown, so each token counts as {size} bytes, its size in "
                "memory; bits per byte are comparable only among such runs"
            )
            if self.end_of_text is not None:
                remark += f", with the same data.end_of_text={self.end_of_text}, which counts as 0 bytes"
            remarks.append(remark)
        if self.end_of_text is not None and len(splits["train"].documents) == 2:
            remarks.append(
                f"data.end_of_text={self.end_of_text}: ends no document within train, so train is read as one document"
            )
        return TokenStore(Path(self.place_of_store), tokenizer, whole.hexdigest(), ordered, tuple(remarks))

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is not None:
            return load_tokenizer(expanded(self.tokenizer))
        assert self.vocab_size is not None
        if not 1 <= self.vocab_size <= MAX_VOCABULARY:
            raise UserError(f"data.vocab_size={self.vocab_size}: expected a number from 1 to {MAX_VOCABULARY:,}")
        return IdTokenizer.of(self.vocab_size)

    def _open_path(self, split: Split, path: Path, tokenizer: Tokenizer) -> dict[Split, Corpus]:
        """Return the split of a path, and validation if it is split off from train."""
        layout = self.layout(path)
        tokens = MappedTokens(layout.parts, tokenizer.vocab_size)
        if not len(tokens):
            raise UserError(f"{path}: contains no tokens; choose a file with tokens")
        fraction = 0.0
        if split == "train" and "validation" not in self.paths:
            fraction = self.validation_fraction

        def write(folder: Path) -> None:
            documents = layout.documents() if layout.documents else _documents(tokens, self.end_of_text)
            edges = _edges(documents, fraction)
            found = [_measure(tokens, documents, edge, folder, tokenizer, self.end_of_text) for edge in edges]
            with durable(folder / "about.json") as file:
                file.write(json.dumps(found).encode())

        def read(folder: Path) -> list[Corpus]:
            return [_corpus(tokens, about, folder) for about in read_json(folder / "about.json")]

        key = f"{self.called} {_state(layout.files)} {tokenizer.hash} {self.end_of_text} {fraction}"
        corpora = Store().entry("foreign", key, write, read)
        names: list[Split] = [split] if len(corpora) == 1 else ["train", "validation"]
        return dict(zip(names, corpora, strict=True))


def plain_file(path: Path, what: str) -> Path:
    """Return `path`; raise UserError if it is not a file. `what`: noun for the message."""
    if not path.is_file():
        raise UserError(f"{path}: no such file ({what})")
    return path


def whole_tokens(path: Path, dtype: str, *, offset: int = 0, count: int | None = None) -> Part:
    """Return all tokens of a file; raise UserError if it ends within a token, or does not have `count` tokens.

    Args:
        path: The file.
        dtype: Type of a token, such as `<u2`.
        offset: Bytes before the first token.
        count: Number of tokens that the file's header or index states, if any.
    """
    size = path.stat().st_size - offset
    width = np.dtype(dtype).itemsize
    if size < 0 or size % width or (count is not None and size != count * width):
        expected = f"a whole number of tokens of {width} bytes"
        if count is not None:
            expected = f"{count:,} tokens of {width} bytes, as recorded"
        raise UserError(f"{path}: has {max(size, 0):,} bytes; expected {expected}; truncated, or in another format")
    return Part(path, dtype, offset, size // width)


def _state(files: Sequence[Path]) -> str:
    """Return a key that changes if a file changes, without reading the files; a ctime cannot be set back."""
    stats = [(str(file.resolve()), file.stat()) for file in files]
    return json.dumps([(name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in stats])


def _documents(tokens: TokenArray, end_of_text: int | None) -> Int[np.ndarray, " offsets"]:
    """Return the start (offsets,) of each document, and the end of the last; an end token belongs to its document."""
    found = [np.zeros(1, dtype=np.int64)]
    if end_of_text is not None:
        for begin in range(0, len(tokens), BLOCK_TOKENS):
            block = tokens[begin : begin + BLOCK_TOKENS]
            found.append(begin + 1 + np.flatnonzero(block == end_of_text))
    edges = np.concatenate(found)
    return edges if edges[-1] == len(tokens) else np.append(edges, len(tokens))


def _edges(documents: Int[np.ndarray, " offsets"], fraction: float) -> list[tuple[int, int]]:
    """Return begin and end of each split: of the whole, or of train and the validation split off its end."""
    total = int(documents[-1])
    if not fraction:
        return [(0, total)]
    cut = min(max(int(total * (1 - fraction)), 1), total - 1)
    inner = documents[1:-1]
    if len(inner):  # otherwise the only document is divided
        after = min(int(np.searchsorted(inner, cut)), len(inner) - 1)
        near = inner[max(after - 1, 0) : after + 1]
        cut = int(near[np.argmin(np.abs(near - cut))])
    if total < 2:
        raise UserError(
            "data.validation_fraction: train has one token, which cannot be divided; set data.validation_path"
        )
    return [(0, cut), (cut, total)]


def _measure(
    tokens: TokenArray,
    documents: Int[np.ndarray, " offsets"],
    edges: tuple[int, int],
    folder: Path,
    tokenizer: Tokenizer,
    end_of_text: int | None,
) -> dict[str, Any]:
    """Count the tokens between two edges, and write their documents into a folder of the cache.

    Args:
        tokens: All tokens.
        documents: Start (offsets,) of each document, and the end of the last one.
        edges: Begin and end of the split, in tokens.
        folder: Folder of the cache.
        tokenizer: Provides the number of bytes of each token.
        end_of_text: Id that ends a document and counts as 0 bytes, or None.
    """
    begin, end = edges
    inner = documents[(documents > begin) & (documents < end)]
    offsets = np.unique(np.concatenate([[0], inner - begin, [end - begin]])).astype("<i8")
    name = documents_name(str(begin))
    with durable(folder / name) as file:
        file.write(offsets.tobytes())
    digest = hashlib.sha256(offsets.tobytes())
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    for first in range(begin, end, BLOCK_TOKENS):
        block = tokens[first : min(first + BLOCK_TOKENS, end)]  # raises for an id outside the vocabulary
        digest.update(block.astype("<u4").tobytes())
        counts += np.bincount(block, minlength=len(counts))
    lengths = _byte_lengths(tokenizer, tokens)
    if end_of_text is not None:  # it represents no text
        lengths[end_of_text : end_of_text + 1] = 0
    unknown = 0 if tokenizer.unknown is None else int(counts[tokenizer.unknown])
    about = {"begin": begin, "end": end, "bytes": int(counts @ lengths), "unknown": unknown, "documents": name}
    return about | {"hash": f"{digest.hexdigest()[:24]}{tokenizer.hash[:8]}"}


def _byte_lengths(tokenizer: Tokenizer, tokens: TokenArray) -> Int[np.ndarray, " V"]:
    """Return the number of bytes (V,) of the text of each id."""
    if tokenizer.kind == "ids":
        return np.full(tokenizer.vocab_size, tokens.dtype.itemsize, dtype=np.int64)
    if tokenizer.lossless:
        return tokenizer.text_lengths(np.arange(tokenizer.vocab_size))
    blank = int(tokenizer.kind == "word")  # the space between two words
    return np.array([len(token.encode()) + blank for token in tokenizer.tokens], dtype=np.int64)


def _corpus(tokens: TokenArray, about: dict[str, Any], folder: Path) -> Corpus:
    begin, end = about["begin"], about["end"]
    documents = mapped_offsets(folder / Path(about["documents"]).name)
    if int(documents[-1]) != end - begin or end > len(tokens):
        raise ValueError("damaged")
    mine = tokens if end - begin == len(tokens) else Stretch(tokens, begin, end)
    return Corpus(mine, documents, about["bytes"], len(mine), about["unknown"], about["hash"])


# -- nanoGPT and its descendants ---------------------------------------------------------------------------------------

HEADER_BYTES = 1024  # 256 int32 of llm.c and modded-nanogpt: magic number, version, number of tokens, and unused ones
MARK, VERSION = 20240520, 1


@dataclass(kw_only=True, eq=False)
class NanoGPT(ForeignTokens):
    """Tokens of nanoGPT: `train.bin` and `val.bin` of a folder, or single files.

    nanoGPT's `meta.pkl` is not read: opening a pickle runs the code in it.

    Attributes:
        end_of_text: Id that ends a document; None: each file is one document.
    """

    end_of_text: int | None = None

    document = "the tokens up to data.end_of_text, or a file"
    called = "nanogpt"

    def __post_init__(self) -> None:
        """Check the options; `path` may be the folder with train.bin and val.bin."""
        folder = Path(self.path)
        if self.path and folder.is_dir():
            self.path = str(folder / "train.bin")
            if self.validation_path is None and (folder / "val.bin").is_file():
                self.validation_path = str(folder / "val.bin")
        super().__post_init__()

    def layout(self, path: Path) -> TokenLayout:
        plain_file(path, "ids of two bytes each, such as nanoGPT's train.bin")
        with open(path, "rb") as file:
            head = file.read(HEADER_BYTES)
        offset, count = 0, None
        # Tokens that look like this header cannot pass for one: `count` must also match the size of the file.
        if len(head) >= 12 and int(np.frombuffer(head, dtype="<i4", count=1)[0]) == MARK:
            _, version, count = np.frombuffer(head, dtype="<i4", count=3).tolist()
            if version != VERSION:
                raise UserError(f"{path}: has a header of version {version}; only version {VERSION} is supported")
            offset = HEADER_BYTES
        return TokenLayout([whole_tokens(path, "<u2", offset=offset, count=count)], None, [path])


# -- datatrove ---------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False)
class Datatrove(ForeignTokens):
    """Tokens of datatrove: every .ds file of a folder, in the order of their names, or a single file.

    The token that ends a document belongs to it.
    """

    document = "a document of datatrove"
    called = "datatrove"

    def layout(self, path: Path) -> TokenLayout:
        files = [path]
        if path.is_dir():
            files = listed(path, "*.ds")
            if not files:
                raise UserError(f"{path}: contains no .ds file; choose the folder that datatrove wrote")
        parts = []
        indices = [plain_file(Path(f"{file}.index"), "the document ends of datatrove's .ds file") for file in files]
        for file, index in zip(files, indices, strict=True):
            ends = _index(index)
            count = int(ends[-1]) if len(ends) else 0
            size = plain_file(file, "ids, as datatrove writes them").stat().st_size
            parts.append(whole_tokens(file, "<u4" if count and size == 4 * count else "<u2", count=count))
        return TokenLayout(parts, partial(_starts, parts, indices), [*files, *indices])


def _starts(parts: Sequence[Part], indices: Sequence[Path]) -> Int[np.ndarray, " offsets"]:
    """Return the start (offsets,) of each document of all files, and the end of the last one."""
    found = [np.zeros(1, dtype=np.int64)]
    before = 0
    for part, index in zip(parts, indices, strict=True):
        ends = _index(index).astype(np.int64)
        if (np.diff(ends, prepend=0) < 0).any():
            raise UserError(f"{index}: its document ends do not increase; it is damaged")
        found.append(before + ends)
        before += part.count
    return np.unique(np.concatenate(found))


def _index(path: Path) -> np.ndarray:
    """Return the number of tokens (n,) up to the end of each document, mapped into memory."""
    size = path.stat().st_size
    if size % 8:
        raise UserError(f"{path}: its size is not a multiple of 8 bytes; it is truncated")
    if not size:  # an empty file cannot be mapped
        return np.zeros(0, dtype="<u8")
    return np.memmap(path, dtype="<u8", mode="r")
