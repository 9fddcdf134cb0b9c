"""Weighted mixture of several token stores.

The mixture consists of blocks of equal length, each from one store. The blocks of a store are read in order, from its
beginning to its end and then again. The order of stores depends only on the weights, so a resumed run, or a run with
more processes, reads the same tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int, Shaped

from seqtrain.data.batching.splitmix64 import mixed
from seqtrain.data.cache import Store, durable
from seqtrain.data.corpus import Corpus
from seqtrain.data.sources.base import SPLITS, Split
from seqtrain.data.token_store.index import TokenStore
from seqtrain.data.token_store.tokens import MappedTokens, TokenArray, mapped_offsets
from seqtrain.errors import UserError

FORMAT = 2  # version of the order of blocks, part of the mixture's hash
MAX_STORES = 256
MAX_BLOCKS = 1 << 26  # per epoch; each takes six bytes of memory
MAX_TOKENS_AT_ONCE = 1 << 24  # tokens whose documents are looked up together, unless a block is longer


class Mixture(TokenArray):
    """Tokens of several stores, mixed block by block. An epoch reads each store at least once."""

    def __init__(self, tokens: Sequence[TokenArray], weights: Sequence[float], block: int) -> None:
        """Draw the order of the blocks.

        Args:
            tokens: Tokens of each store.
            weights: Weight of each store, above 0.
            block: Number of tokens per block.

        Raises:
            UserError: An epoch has too many blocks.
        """
        self.stores = tuple(tokens)
        self.block = block
        self.dtype = tokens[0].dtype
        self._sizes = np.array([len(each) for each in tokens])
        shares = np.array(weights) / sum(weights)
        whole = -(-self._sizes // block)
        num_blocks = float((whole / shares).max())
        if num_blocks > MAX_BLOCKS:
            raise UserError(
                f"data.mix: an epoch that reads each store once has {num_blocks:,.0f} blocks, more than "
                f"{MAX_BLOCKS:,}; increase data.mix_block or the smallest weight"
            )
        self.counts = np.maximum(np.rint(num_blocks * shares).astype(np.int64), whole)
        # A store's k-th of n blocks is in the k-th of n equal parts of the epoch, so any part matches the weights.
        keys, seed = [], np.zeros(1, dtype=np.uint64)
        for number, count in enumerate(self.counts.tolist()):
            draws = mixed(mixed(seed, np.array([number])), np.arange(count)) / 2.0**64
            keys.append((np.arange(count) + draws) / count)
        order = np.argsort(np.concatenate(keys), kind="stable")
        self._owners = np.repeat(np.arange(len(tokens), dtype=np.int16), self.counts)[order]
        self._ranks = np.concatenate([np.arange(count, dtype=np.int32) for count in self.counts])[order]

    def __len__(self) -> int:
        return len(self._owners) * self.block

    def take(self, index: Int[np.ndarray, "*shape"]) -> Shaped[np.ndarray, "*shape"]:
        owner, place = self.origin(index)
        found = np.empty(index.shape, dtype=self.dtype)
        for number in np.unique(owner).tolist():
            here = owner == number
            found[here] = self.stores[number][place[here]]
        return found

    def origin(self, index: Int[np.ndarray, "*shape"]) -> tuple[Int[np.ndarray, "*shape"], Int[np.ndarray, "*shape"]]:
        """Return, for the tokens at these positions, the index of the store and the position in it."""
        block, within = np.divmod(index, self.block)
        owner = self._owners[block].astype(np.int64)
        return owner, (self._ranks[block].astype(np.int64) * self.block + within) % self._sizes[owner]

    def shares(self) -> list[float]:
        """Return how often an epoch reads each token of each store, on average."""
        return (self.counts * self.block / self._sizes).tolist()

    def documents(self, offsets: Sequence[Int[np.ndarray, " offsets"]]) -> Iterator[Int[np.ndarray, " n"]]:
        """Yield the beginnings of documents in the mixture, some blocks at a time, in order.

        A document begins where a store's document begins, and at the beginning of every block: the previous block is
        from another position, so it is not its context.

        Args:
            offsets: Beginnings of the documents of each store, and the end of the last one.
        """
        at_once = max(1, MAX_TOKENS_AT_ONCE // self.block)
        for first in range(0, len(self._owners), at_once):
            owners = self._owners[first : first + at_once]
            found = [(first + np.arange(len(owners))) * self.block]
            for number in np.unique(owners).tolist():
                own = first + np.flatnonzero(owners == number)
                begin = int(self._ranks[own[0]]) * self.block
                places = _starts(offsets[number], begin, begin + len(own) * self.block) - begin
                found.append(own[places // self.block] * self.block + places % self.block)
            yield np.unique(np.concatenate(found))


def mix_stores(stores: Sequence[TokenStore], weights: Sequence[float], block: int) -> TokenStore:
    """Return the mixture of the stores' train splits; validation and test are concatenated over all stores.

    A split that several stores have in common is read once.

    Args:
        stores: Stores of one tokenizer.
        weights: Weight of each store, above 0.
        block: Number of consecutive tokens of a store.

    Raises:
        UserError: The tokenizers differ, or an epoch has too many blocks.
    """
    first = stores[0]
    for store in stores:
        if store.tokenizer.hash != first.tokenizer.hash:
            raise UserError(
                f"data.mix: {first.path} and {store.path} have different tokenizers; prepare one of them "
                f"with the other's (seqtrain prepare --tokenizer {first.path / 'tokenizer.json'})"
            )
        if "train" not in store.splits:
            raise UserError(f"data.mix: {store.path} has no train split")
    if not 2 <= len(stores) <= MAX_STORES:
        raise UserError(f"data.mix: expected 2 to {MAX_STORES} stores, found {len(stores)}")
    _check_distinct(stores)
    tokens = Mixture([_tokens_of(store.splits["train"]) for store in stores], weights, block)
    splits: dict[Split, Corpus] = {"train": _mixed_corpus(stores, tokens)}
    for split in SPLITS[1:]:
        having = {store.splits[split].hash: store.splits[split] for store in stores if split in store.splits}
        if having:  # each once, even if several stores have the same
            splits[split] = _joined(list(having.values()), first.tokenizer.vocab_size)
    hash = _hash([splits[split].hash for split in splits])
    remarks = []
    for store, count, times in zip(stores, tokens.counts, tokens.shares(), strict=True):
        share = f"{count / tokens.counts.sum():.1%} of the tokens are from {store.path}"
        remarks.append(f"data.mix: {share}, read {times:.2f} times per epoch")
    return TokenStore(first.path, first.tokenizer, hash, splits, tuple(remarks))


def _check_distinct(stores: Sequence[TokenStore]) -> None:
    """Raise UserError if two stores train on the same tokens, because then the weights would mislead."""
    paths: dict[str, Path] = {}
    for store in stores:
        other = paths.setdefault(store.splits["train"].hash, store.path)
        if other is not store.path:
            raise UserError(
                f"data.mix: {other} and {store.path} contain the same tokens; give one of them, with both weights"
            )


def _mixed_corpus(stores: Sequence[TokenStore], tokens: Mixture) -> Corpus:
    """Return the mixture of train; the beginnings of its documents are written into the cache once, and mapped."""
    corpora = [store.splits["train"] for store in stores]
    hash = _hash([*(corpus.hash for corpus in corpora), tokens.counts.tolist(), tokens.block, FORMAT])

    def write(folder: Path) -> None:
        with durable(folder / "documents.bin") as file:
            for starts in tokens.documents([corpus.documents for corpus in corpora]):
                file.write(starts.astype("<i8").tobytes())
            file.write(np.array([len(tokens)], dtype="<i8").tobytes())

    def read(folder: Path) -> np.ndarray:
        documents = mapped_offsets(folder / "documents.bin")
        if int(documents[0]) != 0 or int(documents[-1]) != len(tokens):
            raise ValueError("damaged")
        return documents

    documents = Store().entry("mixtures", hash, write, read)
    counts = [(corpus.num_bytes, corpus.num_words, corpus.num_unknown) for corpus in corpora]
    num_bytes, num_words, num_unknown = np.rint(np.array(tokens.shares()) @ counts).astype(int).tolist()
    return Corpus(tokens, documents, num_bytes, num_words, num_unknown, hash)


def _tokens_of(corpus: Corpus) -> MappedTokens:
    assert isinstance(corpus.tokens, MappedTokens)  # a store has no others
    return corpus.tokens


def _joined(corpora: Sequence[Corpus], vocab_size: int) -> Corpus:
    """Return the splits joined one after another."""
    parts = []
    documents = [np.zeros(1, dtype=np.int64)]
    for corpus in corpora:
        parts += _tokens_of(corpus).parts
        documents.append(documents[-1][-1] + corpus.documents[1:])
    return Corpus(
        MappedTokens(parts, vocab_size),
        np.concatenate(documents),
        sum(corpus.num_bytes for corpus in corpora),
        sum(corpus.num_words for corpus in corpora),
        sum(corpus.num_unknown for corpus in corpora),
        _hash([corpus.hash for corpus in corpora]),
    )


def _starts(offsets: Int[np.ndarray, " offsets"], begin: int, end: int) -> Int[np.ndarray, " n"]:
    """Return the beginnings of documents from `begin` up to `end` in a store that is read over and over."""
    size = int(offsets[-1])
    first, last = begin // size, (end - 1) // size  # times that the store is read
    skipped = int(np.searchsorted(offsets[:-1], begin - first * size))
    kept = int(np.searchsorted(offsets[:-1], end - last * size))
    if first == last:
        return first * size + offsets[skipped:kept]
    between = np.arange(first + 1, last)[:, None] * size + offsets[:-1]
    return np.concatenate([first * size + offsets[skipped:-1], between.reshape(-1), last * size + offsets[:kept]])


def _hash(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
