"""Tokenised text, memory-mapped; cached under a key of text, tokenizer and version."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from seqtrain.data.cache import Store, durable, read_json
from seqtrain.data.token_store.tokens import Reversed, TokenArray
from seqtrain.data.tokenizers.foreign import load_tokenizer
from seqtrain.data.tokenizers.recipes import Recipe, Tokenizer, segments
from seqtrain.errors import UserError

DTYPES = ("<u2", "<u4")  # of tokens on disk: for small and for large vocabularies

HASHED = 1 << 20  # tokens hashed at a time


@dataclass(frozen=True)
class Corpus:
    """One split, tokenised."""

    tokens: np.ndarray | TokenArray  # (n,) uint16, or uint32 for a large vocabulary; read-only, mapped into memory
    # (documents + 1,) int64, offsets into tokens. Empty documents are left out if rows have one field, and kept if they
    # have several.
    documents: np.ndarray
    num_bytes: int  # UTF-8 bytes of the text
    num_words: int  # words separated by white space, plus line ends, as WikiText counts them
    num_unknown: int  # number of <unk> tokens
    hash: str  # hash of the text

    @property
    def bytes_per_token(self) -> float:
        return self.num_bytes / max(len(self.tokens), 1)

    def __getitem__(self, document: int) -> np.ndarray:
        """Return the tokens of a document, (n,) int64."""
        return self.tokens[self.documents[document] : self.documents[document + 1]].astype(np.int64)

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each document."""
        return np.diff(self.documents)

    def tokens_hash(self) -> str:
        """Return a hash of these tokens and documents; the tokens of a token store are not read."""
        if isinstance(self.tokens, TokenArray):
            order = "backward" if isinstance(self.tokens, Reversed) else "forward"
            return f"{self.hash} {order}"  # a token store's hash already includes its tokens and tokenizer
        digest = hashlib.blake2b(self.documents.tobytes(), digest_size=16)
        for begin in range(0, len(self.tokens), HASHED):
            digest.update(self.tokens[begin : begin + HASHED].tobytes())
        return digest.hexdigest()


def from_the_end(corpus: Corpus) -> Corpus:
    """Return a view of the corpus with tokens and documents in reverse order, without a copy."""
    # A document that began n tokens before the end now ends n tokens after the beginning.
    documents = corpus.documents[-1] - corpus.documents[::-1]
    return replace(corpus, tokens=corpus.tokens[::-1], documents=documents)


def text_hash(documents: Iterable[str]) -> str:
    """Return a hash of the documents and their boundaries."""
    digest = hashlib.blake2b(digest_size=16)
    for text in documents:
        digest.update(len(text).to_bytes(8))  # else two texts would have the hash of their concatenation
        for begin in range(0, len(text), 1 << 20):
            digest.update(text[begin : begin + (1 << 20)].encode())
    return digest.hexdigest()


def trained(
    store: Store, recipe: Recipe, train_hash: str, documents: Callable[[], Iterator[str]], say: Callable[[str], None]
) -> Tokenizer:
    """Return the tokenizer that `recipe` trains on these documents; read it from the cache if possible.

    Args:
        store: The cache.
        recipe: Trains the tokenizer.
        train_hash: Hash of the documents.
        documents: Returns the documents; called only if the tokenizer is not cached.
        say: Called with lines for the user.
    """

    def write(folder: Path) -> None:
        begin = time.perf_counter()
        tokenizer = recipe.train(documents())
        tokenizer.save(folder / "tokenizer.json")
        say(
            f"tokenizer: {tokenizer.kind}, {tokenizer.vocab_size:,} tokens, made in {time.perf_counter() - begin:.1f} s"
        )

    options = json.dumps(vars(recipe), sort_keys=True, default=repr)
    key = f"{train_hash} {type(recipe).__module__}.{type(recipe).__qualname__} {options} {version('tokenizers')}"
    return store.entry("tokenizers", key, write, lambda folder: load_tokenizer(folder / "tokenizer.json"))


def tokenised(
    store: Store,
    documents: Callable[[], Iterator[str]],
    name: str,
    tokenizer: Tokenizer,
    say: Callable[[str], None],
    *,
    keep_empty: bool = False,
) -> Corpus:
    """Return the documents as tokens; read them from the cache if possible.

    Args:
        store: The cache.
        documents: Returns the documents; called again if their tokens are not cached.
        name: Name of the documents, for messages.
        tokenizer: Tokenizes the documents.
        say: Called with lines for the user.
        keep_empty: True to keep documents without tokens.

    Raises:
        UserError: All documents are empty.
    """
    hash = text_hash(documents())

    def write(folder: Path) -> None:
        begin = time.perf_counter()
        meta = _write_corpus(folder, documents(), tokenizer, keep_empty)
        if meta["num_tokens"] == 0:
            raise UserError(f"data: the {name} split contains no text; add text, or leave the split out")
        say(f"{name}: {meta['num_tokens']:,} tokens, made in {time.perf_counter() - begin:.1f} s")

    def read(folder: Path) -> Corpus:
        meta = read_json(folder / "meta.json")
        if meta["dtype"] not in DTYPES:  # a damaged file could say "object": bytes would be used as pointers
            raise ValueError("damaged")
        tokens = np.memmap(folder / "tokens.bin", dtype=meta["dtype"], mode="r")
        documents = np.frombuffer((folder / "documents.bin").read_bytes(), dtype=np.int64)
        if len(tokens) != meta["num_tokens"] or len(documents) != meta["num_documents"] + 1:
            raise ValueError("damaged")
        return Corpus(tokens, documents, meta["num_bytes"], meta["num_words"], meta["num_unknown"], hash)

    return store.entry("tokens", f"{hash} {tokenizer.hash}{' rows' * keep_empty}", write, read)


def _write_corpus(folder: Path, documents: Iterator[str], tokenizer: Tokenizer, keep_empty: bool) -> dict[str, Any]:
    """Stream the tokens to disk; memory contains one document and one block of tokens at a time."""
    small, large = DTYPES
    dtype = np.dtype(large if tokenizer.vocab_size + 1 >= 65536 else small)
    counts = {"num_bytes": 0, "num_words": 0}

    def counted() -> Iterator[str]:
        for text in documents:
            for part in segments(text):
                counts["num_bytes"] += len(part.encode())
                counts["num_words"] += len(part.split()) + part.count("\n")
            yield text

    offsets, num_tokens, num_unknown = [0], 0, 0
    with durable(folder / "tokens.bin") as file:
        for ids, ends in tokenizer.blocks(counted()):
            file.write(ids.astype(dtype).tobytes())
            num_tokens += len(ids)
            if tokenizer.unknown is not None:
                num_unknown += int((ids == tokenizer.unknown).sum())
            if ends and (keep_empty or num_tokens > offsets[-1]):
                offsets.append(num_tokens)
    with durable(folder / "documents.bin") as file:
        file.write(np.array(offsets, dtype=np.int64).tobytes())
    meta = {"dtype": dtype.str, "num_tokens": num_tokens, "num_documents": len(offsets) - 1}
    meta |= {**counts, "num_unknown": num_unknown}
    with durable(folder / "meta.json") as file:
        file.write(json.dumps(meta).encode())
    return meta
