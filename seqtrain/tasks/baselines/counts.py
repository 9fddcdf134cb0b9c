"""Baselines for a loss on the same text: counts of one and two tokens, and xz.

The bigram is interpolated absolute discounting (Ney, Essen, Kneser 1994) over the unigram.
"""

from __future__ import annotations

import itertools
import lzma
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from seqtrain.data.cache import cached_json
from seqtrain.data.corpus import Corpus
from seqtrain.tasks.base import Say

DISCOUNT = 0.75
LONG = 10_000_000  # bytes; above it, a message announces the compression
BLOCK = 1 << 16  # characters, or tokens, taken at a time
PAIRS = 1 << 21  # pairs of neighbouring tokens that are counted at a time
MOST_TOKENS = 1 << 26  # most tokens of train that are counted, about ten seconds: a start must not read a billion
MOST_PAIRS = 1 << 32  # most pairs that are distinguished: all for vocabularies up to 65,535; 512 MiB at most


def baselines(
    train: Corpus, split: Corpus, vocab_size: int, say: Say, *, cache: Path | None = None
) -> dict[str, dict[str, float]]:
    """Compute `loss` (nats per token) and `bits_per_byte` of `split` by uniform, unigram and bigram counts of `train`.

    Above MOST_PAIRS pairs of tokens a message says that the bigram is an estimate. Above MOST_TOKENS tokens of train a
    message says that only so many are counted.
    """
    if vocab_size * (vocab_size + 1) > MOST_PAIRS:
        say(f"the bigram is an estimate: not all pairs of {vocab_size:,} tokens can be distinguished")

    key = f"counts {vocab_size} {train.tokens_hash()} {split.tokens_hash()}"
    if len(train.tokens) > MOST_TOKENS:
        key += f" {MOST_TOKENS}"
        say(f"unigram and bigram: {MOST_TOKENS:,} tokens are counted, spread over the {len(train.tokens):,} of train")

    def measure() -> dict[str, dict[str, float]]:
        losses = {"uniform": math.log(vocab_size)}
        counts = token_counts(train, vocab_size, MOST_TOKENS)
        # One is added to each count: otherwise a token that train lacks would have an infinite loss.
        unigram = (counts + 1) / (counts.sum() + vocab_size)
        losses["unigram"] = -float(token_counts(split, vocab_size) @ np.log(unigram)) / len(split.tokens)
        losses["bigram"] = _bigram_loss(train, split, unigram)
        bits = len(split.tokens) / split.num_bytes / math.log(2)
        return {name: {"loss": loss, "bits_per_byte": loss * bits} for name, loss in losses.items()}

    return cached_json(key, measure, cache)


def token_counts(corpus: Corpus, vocab_size: int, most: int | None = None) -> Int[np.ndarray, " V"]:
    """Count each token; a corpus of more than `most` tokens is sampled evenly, about `most` tokens in all."""
    counts = np.zeros(vocab_size, np.int64)
    for begin in _begins(len(corpus.tokens), most):  # in blocks: numpy copies each token as 8 bytes
        counts += np.bincount(corpus.tokens[begin : begin + PAIRS], minlength=vocab_size)
    return counts


def _begins(num_tokens: int, most: int | None) -> list[int]:
    """Return the starts of the counted blocks of PAIRS tokens: all, or as many as `most` allows, evenly spread."""
    begins = np.arange(0, num_tokens, PAIRS)
    if most is not None and num_tokens > most:
        count = most // PAIRS
        begins = begins[np.arange(count) * len(begins) // count]
    return begins.tolist()


@dataclass(frozen=True)
class Text:
    """A text that can be read repeatedly, with its hash and size."""

    hash: str  # differs between texts
    num_bytes: int  # in UTF-8
    documents: Callable[[], Iterator[str]]


def xz_baselines(train: Text, split: Text, say: Say, *, cache: Path | None = None) -> dict[str, dict[str, float]]:
    """Compute `bits_per_byte` of the split's text under `xz -9`: alone, and as the bytes it adds to the training text.

    A cached result is returned without reading the texts. If the compression takes long, a message says so before it
    starts.
    """

    def both() -> Iterator[str]:
        yield from train.documents()
        yield from split.documents()

    def measure() -> dict[str, dict[str, float]]:
        if train.num_bytes > LONG:
            size = f"{train.num_bytes / 1e6:,.0f} MB"
            say(f"xz: compresses {size} twice; the cache keeps the result")
        # A token store gives the text that its tokens spell, which may differ from the text that was tokenized.
        split_bytes = _num_bytes(split.documents())
        everything = _num_bytes(train.documents()) + split_bytes  # a dictionary of this size holds all of it
        leaving = threading.Event()
        with ThreadPoolExecutor() as pool:  # the compressor releases the GIL
            jobs = [
                pool.submit(_compressed, documents(), everything, leaving)
                for documents in (both, train.documents, split.documents)
            ]
            try:
                after, train_alone, alone = (job.result() for job in jobs)
            finally:
                leaving.set()  # so that Ctrl-C does not wait for an unused result
        return {
            "xz": {"bits_per_byte": 8 * alone / split_bytes},
            "xz_given_train": {"bits_per_byte": 8 * (after - train_alone) / split_bytes},
        }

    return cached_json(f"xz {train.hash} {split.hash}", measure, cache)


class Pairs(NamedTuple):
    """Distinct pairs of a token and its context, the token before it, ordered by context, then by token."""

    keys: np.ndarray  # (n,) int64, context * V + token; the context of a document's first token is the start token
    counts: np.ndarray  # (n,) int64

    @classmethod
    def of(cls, corpus: Corpus, vocab_size: int) -> Pairs:
        """Count the pairs of a corpus. Memory grows with the number of distinct pairs, not with the text."""
        known = cls(np.zeros(0, np.int64), np.zeros(0, np.int64))
        for keys in _keys(corpus, vocab_size):
            known = known._and(*np.unique(keys, return_counts=True))
        return known

    def _and(self, keys: Int[np.ndarray, " m"], counts: Int[np.ndarray, " m"]) -> Pairs:
        together, places = np.unique(np.concatenate([self.keys, keys]), return_inverse=True)
        added = np.zeros(len(together), np.int64)
        np.add.at(added, places, np.concatenate([self.counts, counts]))
        return Pairs(together, added)


def _keys(corpus: Corpus, vocab_size: int, most: int | None = None) -> Iterator[Int[np.ndarray, " n"]]:
    """Yield the keys of all pairs, millions at a time; above `most` tokens only those that `token_counts` counts."""
    starts = corpus.documents[:-1]
    for begin in _begins(len(corpus.tokens), most):
        end = min(begin + PAIRS, len(corpus.tokens))
        tokens = corpus.tokens[begin:end].astype(np.int64)
        context = np.empty_like(tokens)
        context[1:] = tokens[:-1]
        context[0] = corpus.tokens[begin - 1] if begin else vocab_size
        first, last = np.searchsorted(starts, (begin, end))
        context[starts[first:last] - begin] = vocab_size
        yield context * vocab_size + tokens


class _PairCounts:
    """Counts of some pairs in a text, in memory that does not grow with the text."""

    def __init__(self, asked: Int[np.ndarray, " n"], vocab_size: int) -> None:
        """Start counts of 0 for `asked`, distinct keys in order."""
        self.asked = asked
        self.vocab_size = vocab_size
        self.counts = np.zeros(len(asked), np.int64)  # of each pair in `asked`
        self.seen = np.zeros(vocab_size + 1, np.int64)  # how often each token is a context
        self.distinct = np.zeros(vocab_size + 1, np.int64)  # how many tokens follow it
        # A bit for each possible pair. Parts that are never written take no memory.
        self._bits = np.zeros(min((vocab_size + 1) * vocab_size, MOST_PAIRS) // 8 + 1, np.uint8)

    def read(self, keys: Int[np.ndarray, " m"]) -> None:
        """Add the pairs of a piece of text to the counts."""
        pairs, counts = np.unique(keys, return_counts=True)
        contexts = pairs // self.vocab_size
        self.seen += np.bincount(contexts, counts, minlength=self.vocab_size + 1).astype(np.int64)
        if len(self.asked):
            # A pair beyond the last one is compared with the last, and differs from it.
            places = np.minimum(np.searchsorted(self.asked, pairs), len(self.asked) - 1)
            found = self.asked[places] == pairs
            self.counts[places[found]] += counts[found]
        self.distinct += np.bincount(contexts[self._are_new(pairs)], minlength=self.vocab_size + 1)

    def _are_new(self, pairs: Int[np.ndarray, " m"]) -> Bool[np.ndarray, " m"]:
        """Return a mask of the pairs not seen before, and mark them as seen.

        Pairs with the same bit are not distinguished.
        """
        places = pairs % MOST_PAIRS
        order = np.argsort(places, kind="stable")
        byte, bit = places[order] >> 3, (1 << (places[order] & 7)).astype(np.uint8)
        is_new = np.empty(len(pairs), bool)
        is_new[order] = self._bits[byte] & bit == 0
        bytes_here, begins = np.unique(byte, return_index=True)
        self._bits[bytes_here] |= np.bitwise_or.reduceat(bit, begins)
        return is_new


def _bigram_loss(train: Corpus, split: Corpus, unigram: Float[np.ndarray, " V"]) -> float:
    """Compute the mean negative log-probability of each token of `split` after the one before it."""
    vocab_size = len(unigram)
    asked = Pairs.of(split, vocab_size)
    known = _PairCounts(asked.keys, vocab_size)
    for keys in _keys(train, vocab_size, MOST_TOKENS):
        known.read(keys)
    backoff = np.divide(DISCOUNT * known.distinct, known.seen, out=np.ones(vocab_size + 1), where=known.seen > 0)
    context, token = np.divmod(asked.keys, vocab_size)
    kept = np.where(known.counts > 0, known.counts - DISCOUNT, 0.0)
    probability = kept / np.maximum(known.seen[context], 1) + backoff[context] * unigram[token]
    return -float(asked.counts @ np.log(probability)) / len(split.tokens)


def _compressed(documents: Iterator[str], dictionary: int, leaving: threading.Event) -> int:
    """Return the number of bytes after `xz -9`; the number is meaningless once `leaving` is set."""
    # xz accepts no dictionary below 4096 bytes.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": max(4096, dictionary)}]
    compressor = lzma.LZMACompressor(lzma.FORMAT_XZ, filters=filters)
    blocks = itertools.takewhile(lambda _: not leaving.is_set(), _blocks(documents))
    size = 0
    for block in blocks:
        size += len(compressor.compress(block))
    return size if leaving.is_set() else size + len(compressor.flush())


def _num_bytes(documents: Iterator[str]) -> int:
    return sum(map(len, _blocks(documents)))


def _blocks(documents: Iterator[str]) -> Iterator[bytes]:
    for text in documents:
        for begin in range(0, len(text), BLOCK):
            # In blocks, because a document may be a whole book, which encoded at once would be in memory twice.
            yield text[begin : begin + BLOCK].encode()
