"""What a loss is worth: the same text under counts of one and two tokens, and under xz.

The bigram is interpolated absolute discounting (Ney, Essen, Kneser 1994) over the unigram.
"""

from __future__ import annotations

import hashlib
import itertools
import lzma
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from seqtrain.data.cache import cached_json
from seqtrain.data.corpus import Corpus, text_hash

DISCOUNT = 0.75
LIMIT = 64 << 20  # bytes that xz is run on: some seconds for every ten million
BLOCK = 1 << 16  # characters, or tokens, taken at a time


def baselines(
    train: Corpus, split: Corpus, vocab_size: int, *, cache: Path | None = None
) -> dict[str, dict[str, float]]:
    """`loss` (nats a token) and `bits_per_byte` of `split` under uniform, unigram and bigram counts of `train`."""

    def measure() -> dict[str, dict[str, float]]:
        losses = {"uniform": math.log(vocab_size)}
        counts = np.bincount(train.tokens, minlength=vocab_size)
        # One more for each: a token that train lacks would have an infinite loss.
        unigram = (counts + 1) / (len(train.tokens) + vocab_size)
        losses["unigram"] = -float(np.log(unigram)[split.tokens].mean())
        losses["bigram"] = _bigram_loss(train, split, unigram)
        bits = len(split.tokens) / split.num_bytes / math.log(2)
        return {name: {"loss": loss, "bits_per_byte": loss * bits} for name, loss in losses.items()}

    return cached_json(f"counts {vocab_size} {_digest(train)} {_digest(split)}", measure, cache)


def xz_baselines(
    train_text: Callable[[], Iterator[str]],
    split_text: Callable[[], Iterator[str]],
    limit_bytes: int = LIMIT,
    *,
    cache: Path | None = None,
) -> dict[str, dict[str, float]]:
    """`bits_per_byte` of the split's text under `xz -9`, alone and after the training text (the difference it makes).

    Nothing ({}) where both texts together are longer than `limit_bytes`.
    """
    train_bytes, split_bytes = _num_bytes(train_text()), _num_bytes(split_text())
    if train_bytes + split_bytes > limit_bytes:
        return {}

    def both() -> Iterator[str]:
        yield from train_text()
        yield from split_text()

    def measure() -> dict[str, dict[str, float]]:
        # The dictionary holds everything, whatever the preset's own. The compressor lets other threads run.
        leaving = threading.Event()
        with ThreadPoolExecutor() as pool:
            jobs = [
                pool.submit(_compressed, text(), train_bytes + split_bytes, leaving)
                for text in (both, train_text, split_text)
            ]
            try:
                after, train, alone = (job.result() for job in jobs)
            finally:
                leaving.set()  # Ctrl-C does not wait for a result that nobody will read
        return {
            "xz": {"bits_per_byte": 8 * alone / split_bytes},
            "xz_given_train": {"bits_per_byte": 8 * (after - train) / split_bytes},
        }

    return cached_json(f"xz {text_hash(train_text())} {text_hash(split_text())}", measure, cache)


class Pairs(NamedTuple):
    """Distinct tokens with the one before each, ordered by that context, then by token."""

    keys: np.ndarray  # (n,) int64, context * V + token; the context of a document's first token is the start token
    counts: np.ndarray  # (n,) int64

    @classmethod
    def of(cls, corpus: Corpus, vocab_size: int) -> Pairs:
        tokens = corpus.tokens.astype(np.int64)
        context = np.roll(tokens, 1)
        context[corpus.documents[:-1]] = vocab_size
        return cls(*np.unique(context * vocab_size + tokens, return_counts=True))


def _bigram_loss(train: Corpus, split: Corpus, unigram: Float[np.ndarray, " V"]) -> float:
    """Mean negative log-probability of each token of `split` after the one before it."""
    vocab_size = len(unigram)
    known, asked = Pairs.of(train, vocab_size), Pairs.of(split, vocab_size)
    contexts = known.keys // vocab_size
    seen = np.bincount(contexts, known.counts, minlength=vocab_size + 1)
    distinct = np.bincount(contexts, minlength=vocab_size + 1)
    backoff = np.divide(DISCOUNT * distinct, seen, out=np.ones(vocab_size + 1), where=seen > 0)
    context, token = np.divmod(asked.keys, vocab_size)
    # A pair beyond the last one is looked up there, and found to be another.
    at = np.minimum(np.searchsorted(known.keys, asked.keys), len(known.keys) - 1)
    kept = np.where(known.keys[at] == asked.keys, known.counts[at] - DISCOUNT, 0.0)
    probability = kept / np.maximum(seen[context], 1) + backoff[context] * unigram[token]
    return -float(asked.counts @ np.log(probability)) / len(split.tokens)


def _compressed(documents: Iterator[str], dictionary: int, leaving: threading.Event) -> int:
    """Bytes after `xz -9`; no matter what once `leaving` is set."""
    # xz takes no smaller dictionary than 4096 bytes.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": max(4096, dictionary)}]
    compressor = lzma.LZMACompressor(lzma.FORMAT_XZ, filters=filters)
    blocks = itertools.takewhile(lambda _: not leaving.is_set(), _blocks(documents))
    size = sum(len(compressor.compress(block)) for block in blocks)
    return size if leaving.is_set() else size + len(compressor.flush())


def _num_bytes(documents: Iterator[str]) -> int:
    return sum(map(len, _blocks(documents)))


def _blocks(documents: Iterator[str]) -> Iterator[bytes]:
    for text in documents:
        for begin in range(0, len(text), BLOCK):
            # A document may be a whole book: encoded at once it would stand in memory twice.
            yield text[begin : begin + BLOCK].encode()


def _digest(corpus: Corpus) -> str:
    digest = hashlib.blake2b(corpus.documents.tobytes(), digest_size=16)
    for begin in range(0, len(corpus.tokens), BLOCK):
        digest.update(corpus.tokens[begin : begin + BLOCK].tobytes())
    return digest.hexdigest()
