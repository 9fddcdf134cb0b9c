"""Several token stores read as one, by weights: which token stands at a place follows from the place alone.

The mixture is cut into blocks of equal length, each from one store; a store's blocks follow one another in it, from its
beginning to its end and over again. Of every PERIOD blocks a store has the same number, by its weight, in an order that
is drawn from the number of the period. So the token of any place is found without reading those before it, and a run
that is resumed, or read by more processes, reads the same.
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

PERIOD = 1024  # blocks in which the weights hold exactly, so that they are kept to a thousandth
MAX_STORES = 256
MAX_TOKENS_AT_ONCE = 1 << 24  # whose documents are looked up together, of blocks that are no longer than that
KEPT_PERIODS = 4096  # whose order is not drawn again: a few bytes for each block


class Mixture(TokenArray):
    """The tokens of several stores, mixed block by block; its epoch ends when each store was read whole."""

    def __init__(self, tokens: Sequence[TokenArray], counts: Sequence[int], block: int) -> None:
        """`counts`: blocks of each store in a period, PERIOD in all; `block`: tokens of a block."""
        self.stores = tuple(tokens)
        self.counts = np.array(counts)
        self.block = block
        self.dtype = tokens[0].dtype
        self._sizes = np.array([len(each) for each in tokens])
        self._orders: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # of some periods
        self._count = self._last_needed() * block

    def __len__(self) -> int:
        return self._count

    def take(self, index: Int[np.ndarray, "*shape"]) -> Shaped[np.ndarray, "*shape"]:
        owner, place = self.origin(index)
        found = np.empty(index.shape, dtype=self.dtype)
        for number in np.unique(owner).tolist():
            here = owner == number
            found[here] = self.stores[number][place[here]]
        return found

    def origin(self, index: Int[np.ndarray, "*shape"]) -> tuple[Int[np.ndarray, "*shape"], Int[np.ndarray, "*shape"]]:
        """The store of the tokens at these places, and where in it each stands."""
        blocks, which = np.unique(index // self.block, return_inverse=True)
        owner = np.empty(len(blocks), dtype=np.int64)
        before = np.empty(len(blocks), dtype=np.int64)
        for place, block in enumerate(blocks.tolist()):
            period, within = divmod(block, PERIOD)
            owners, ranks = self.order(period)
            owner[place] = owners[within]
            before[place] = period * self.counts[owners[within]] + ranks[within]
        which = which.reshape(index.shape)
        place_in_store = before[which] * self.block + index % self.block
        return owner[which], place_in_store % self._sizes[owner[which]]

    def shares(self) -> list[float]:
        """How often an epoch reads each store, on average over its tokens."""
        periods, rest = divmod(len(self) // self.block, PERIOD)
        owners, _ = self.order(periods)  # of the last period an epoch reads a part
        blocks = periods * self.counts + np.bincount(owners[:rest], minlength=len(self.counts))
        return (blocks * self.block / self._sizes).tolist()

    def documents(self, offsets: Sequence[Int[np.ndarray, " offsets"]]) -> Iterator[Int[np.ndarray, " n"]]:
        """Where documents begin in the mixture, some blocks at a time, in order: those of the stores, and every block.

        A block goes on where the last block of its store ended, which stands somewhere else: nothing before it in the
        mixture is its context.

        Args:
            offsets: Of each store, where its documents begin, and the end of the last one.
        """
        num_blocks = len(self) // self.block
        at_once = min(PERIOD, max(1, MAX_TOKENS_AT_ONCE // self.block))
        for begin in range(0, num_blocks, PERIOD):
            for first in range(begin, min(begin + PERIOD, num_blocks), at_once):
                yield self._documents_in(offsets, range(first, min(first + at_once, begin + PERIOD, num_blocks)))

    def _documents_in(self, offsets: Sequence[Int[np.ndarray, " offsets"]], blocks: range) -> Int[np.ndarray, " n"]:
        """Where documents begin in blocks of one period."""
        period, within = divmod(blocks.start, PERIOD)
        owners, ranks = (each[within : within + len(blocks)] for each in self.order(period))
        found = [np.array(blocks) * self.block]
        for number, count in enumerate(self.counts.tolist()):
            own = np.flatnonzero(owners == number)
            if not len(own):
                continue
            before = int(ranks[own[0]])
            # A store's blocks of a period stand in it one behind the other.
            assert np.array_equal(ranks[own], before + np.arange(len(own)))
            begin = (period * count + before) * self.block
            places = _starts(offsets[number], begin, begin + len(own) * self.block) - begin
            found.append((blocks.start + own[places // self.block]) * self.block + places % self.block)
        return np.unique(np.concatenate(found))

    def order(self, period: int) -> tuple[np.ndarray, np.ndarray]:
        """The store of each block of a period, and how many blocks of that store stand before it in the period."""
        if period not in self._orders:
            if len(self._orders) == KEPT_PERIODS:
                self._orders.clear()
            self._orders[period] = self._draw(period)
        return self._orders[period]

    def _draw(self, period: int) -> tuple[np.ndarray, np.ndarray]:
        draws = mixed(mixed(np.zeros(1, dtype=np.uint64), np.array([period])), np.arange(PERIOD))
        owners = np.repeat(np.arange(len(self.counts)), self.counts)[np.argsort(draws, kind="stable")]
        ranks = np.empty(PERIOD, dtype=np.int16)
        for number, count in enumerate(self.counts.tolist()):
            ranks[owners == number] = np.arange(count)
        return owners.astype(np.int16), ranks

    def _last_needed(self) -> int:
        """Blocks up to the one with which the last store was read whole."""
        most = 0
        for number, size in enumerate(self._sizes.tolist()):
            period, rank = divmod(-(-size // self.block) - 1, int(self.counts[number]))
            owners, ranks = self.order(period)
            within = int(np.flatnonzero((owners == number) & (ranks == rank))[0])
            most = max(most, period * PERIOD + within + 1)
        return most


def mix_stores(stores: Sequence[TokenStore], weights: Sequence[float], block: int) -> TokenStore:
    """The mixture of the stores' train splits; validation and test are those of all stores, one after another, once.

    Args:
        stores: Of one tokenizer.
        weights: Above 0, of each.
        block: Tokens of a store that stand together.

    Raises:
        UserError: The tokenizers differ, or the weights cannot be kept.
    """
    first = stores[0]
    for store in stores:
        if store.tokenizer.hash != first.tokenizer.hash:
            raise UserError(
                f"data.mix: {first.path} and {store.path} hold tokens of different tokenizers; prepare one of them "
                f"with the other's (seqtrain prepare --tokenizer {first.path / 'tokenizer.json'})"
            )
        if "train" not in store.splits:
            raise UserError(f"data.mix: {store.path} has no train split")
    _check_distinct(stores)
    counts = _counts(weights, [str(store.path) for store in stores])
    tokens = Mixture([_tokens_of(store.splits["train"]) for store in stores], counts, block)
    splits: dict[Split, Corpus] = {"train": _mixed_corpus(stores, tokens)}
    for split in SPLITS[1:]:
        having = {store.splits[split].hash: store.splits[split] for store in stores if split in store.splits}
        if having:  # each once, also where several stores have the same
            splits[split] = _joined(list(having.values()), first.tokenizer.vocab_size)
    hash = _hash([splits[split].hash for split in splits])
    remarks = []
    for store, count, times in zip(stores, counts, tokens.shares(), strict=True):
        share = f"{count / PERIOD:.1%} of the tokens are of {store.path}"
        remarks.append(f"data.mix: {share}, read {times:.2f} times an epoch")
    return TokenStore(first.path, first.tokenizer, hash, splits, tuple(remarks))


def _check_distinct(stores: Sequence[TokenStore]) -> None:
    """UserError where two stores train on the same tokens, which their weights would not say."""
    paths: dict[str, Path] = {}
    for store in stores:
        other = paths.setdefault(store.splits["train"].hash, store.path)
        if other is not store.path:
            raise UserError(
                f"data.mix: {other} and {store.path} hold the same tokens; give one of them, with both weights"
            )


def _counts(weights: Sequence[float], names: Sequence[str]) -> list[int]:
    """Blocks of each store in a period: at least one, PERIOD in all, as near to the weights as whole blocks are."""
    if not 2 <= len(weights) <= MAX_STORES:
        raise UserError(f"data.mix: expected 2 to {MAX_STORES} stores, found {len(weights)}")
    wanted = np.array(weights) / sum(weights) * PERIOD
    least = int(wanted.argmin())
    if wanted[least] < 1:
        raise UserError(
            f"data.mix: {names[least]}:{weights[least]:g} is less than 1 / {PERIOD} of all weights, the least that is "
            "kept; give it more, or leave it out"
        )
    counts = np.maximum(np.floor(wanted), 1).astype(int)
    while counts.sum() != PERIOD:  # one block more, or less, where it is missed most
        more = counts.sum() < PERIOD
        lack = np.where(counts > 1, wanted - counts, np.inf)
        place = np.argmax(wanted - counts) if more else np.argmin(lack)
        counts[place] += 1 if more else -1
    return counts.tolist()


def _mixed_corpus(stores: Sequence[TokenStore], tokens: Mixture) -> Corpus:
    """The mixture of train; where its documents begin is written into the cache once, and mapped into memory."""
    corpora = [store.splits["train"] for store in stores]
    hash = _hash([*(corpus.hash for corpus in corpora), tokens.counts.tolist(), tokens.block, PERIOD])

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
    num_bytes = num_words = num_unknown = 0.0
    for corpus, times in zip(corpora, tokens.shares(), strict=True):
        num_bytes += times * corpus.num_bytes
        num_words += times * corpus.num_words
        num_unknown += times * corpus.num_unknown
    return Corpus(tokens, documents, round(num_bytes), round(num_words), round(num_unknown), hash)


def _tokens_of(corpus: Corpus) -> MappedTokens:
    assert isinstance(corpus.tokens, MappedTokens)  # a store has no others
    return corpus.tokens


def _joined(corpora: Sequence[Corpus], vocab_size: int) -> Corpus:
    """Splits one after another."""
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
    """Where documents begin in a store that is read over and over, from one place up to another."""
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
