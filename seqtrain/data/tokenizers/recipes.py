"""Training of tokenizers: bytes, characters, words and byte-level BPE (Sennrich et al. 2016; Radford et al. 2019)."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, ClassVar, Literal

from seqtrain.data.tokenizers.encoding import (
    ANY,
    LINE_END,
    NO_TOKENS,
    SPACES,
    UNKNOWN,
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    Tokenizer,
    WordTokenizer,
    byte_ids,
    segments,
    words,
)
from seqtrain.errors import UserError

MAX_SINGLE = 0.2  # maximum fraction of words that occur once, if all of these are to become <unk>


class Recipe(ABC):
    """Method to train a tokenizer."""

    reads_text: ClassVar[bool] = True  # False if the tokenizer never has tokens

    @abstractmethod
    def train(self, documents: Iterable[str]) -> Tokenizer:
        """Return a tokenizer trained on these documents; raise UserError if they are empty."""


class NoText(Recipe):
    """No tokenizer, for data of real values."""

    reads_text = False

    def train(self, documents: Iterable[str]) -> Tokenizer:
        return NO_TOKENS


class OfStore(Recipe):
    """A tokenizer that cannot be trained: that of a token store (`data=tokens`), or of a pretrained model."""

    def train(self, documents: Iterable[str]) -> Tokenizer:
        raise UserError(
            "tokenizer: the tokenizer of a token store or of a pretrained model cannot be trained; use tokenizer=bpe, "
            "or another"
        )


class Given(Recipe):
    """The tokenizer of a run, an export or a model on the hub, without its weights."""

    def __init__(self, *, path: str) -> None:
        """Set the folder. `path`: folder of the run or the export, or `hub:NAME`."""
        self.path = path

    def train(self, documents: Iterable[str]) -> Tokenizer:
        raise UserError(f"tokenizer=given: give its file: --tokenizer {self.path}/tokenizer.json")


class Byte(Recipe):
    """One token per UTF-8 byte; needs no training."""

    def train(self, documents: Iterable[str]) -> Tokenizer:
        from tokenizers import Tokenizer as Backend
        from tokenizers import decoders, models, pre_tokenizers

        # A BPE without merges, because the library has no byte tokenizer.
        backend = Backend(models.BPE(byte_ids(), []))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.decoder = decoders.ByteLevel()
        return ByteTokenizer(json.loads(backend.to_str()))


class Char(Recipe):
    """One token per character of the training text, and <unk> for all others."""

    def train(self, documents: Iterable[str]) -> Tokenizer:
        from tokenizers import Regex, decoders, pre_tokenizers

        characters: set[str] = set()
        for text in _not_empty(documents):
            characters.update(text)
        backend = _word_level([UNKNOWN, *sorted(characters)])
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(ANY), "isolated")
        backend.decoder = decoders.Fuse()
        return CharTokenizer(json.loads(backend.to_str()))


class Word(Recipe):
    """One token per word, and <eos> for each line end; words beyond the vocabulary are <unk>."""

    def __init__(self, *, max_size: int | None = None, min_count: int | Literal["auto"] = 1) -> None:
        """Set the limits of the vocabulary.

        Args:
            max_size: Maximum number of words; the most frequent ones are kept. None: no limit.
            min_count: Minimum number of occurrences of a word; auto: see `least_count`.
        """
        self.max_size = max_size
        self.min_count = min_count

    def train(self, documents: Iterable[str]) -> Tokenizer:
        from tokenizers import Regex, normalizers, pre_tokenizers

        counts: Counter[str] = Counter()
        for text in _not_empty(documents):
            for part in segments(text):  # a list of all words would need many times the text's memory
                counts.update(words(part))
        del counts[UNKNOWN], counts[LINE_END]  # these always have ids, however often they occur in the text
        # Words of equal counts are sorted by spelling: the vocabulary does not depend on the order of the text.
        least = least_count(counts) if self.min_count == "auto" else int(self.min_count)
        frequent = sorted((-count, word) for word, count in counts.items() if count >= least)
        if counts and not frequent:
            raise UserError(f"tokenizer.min_count={self.min_count}: no word occurs that often; all would be {UNKNOWN}")
        backend = _word_level([UNKNOWN, LINE_END, *(word for _, word in frequent[: self.max_size])])
        backend.normalizer = normalizers.Replace("\n", f" {LINE_END} ")
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(SPACES), "removed")
        return WordTokenizer(json.loads(backend.to_str()))


def least_count(counts: Mapping[str, int]) -> int:
    """Return the minimum count of words in the vocabulary.

    The result is 2, so that words that occur once become `<unk>`, which is thereby trained. It is 1 if no word occurs
    once, or if too much of the text would become `<unk>`.

    Args:
        counts: Count of each word in the text.
    """
    single = sum(count == 1 for count in counts.values())
    if 0 < single <= MAX_SINGLE * sum(counts.values()):
        return 2
    return 1


class BPE(Recipe):
    """Byte-level byte-pair encoding: encodes any text without loss, and frequent sequences as one token."""

    def __init__(self, *, size: int = 2048) -> None:
        """Set the vocabulary size. `size`: number of tokens, including the 256 bytes."""
        self.size = size

    def train(self, documents: Iterable[str]) -> Tokenizer:
        from tokenizers import Tokenizer as Backend
        from tokenizers import decoders, models, pre_tokenizers, trainers

        backend = Backend(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        backend.decoder = decoders.ByteLevel()
        # All bytes are in the vocabulary, whether train has them or not, so any text can be encoded.
        trainer = trainers.BpeTrainer(
            vocab_size=self.size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        )
        backend.train_from_iterator(chain.from_iterable(map(segments, _not_empty(documents))), trainer)
        return BPETokenizer(json.loads(backend.to_str()))


def _word_level(tokens: list[str]) -> Any:
    """Return a look-up table of `tokenizers` that assigns ids to the tokens in this order."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import models

    return Backend(models.WordLevel(dict(zip(tokens, range(len(tokens)), strict=True)), unk_token=UNKNOWN))


def _not_empty(documents: Iterable[str]) -> Iterator[str]:
    """Yield the documents; raise UserError at the end if all of them are empty."""
    empty = True
    for text in documents:
        empty = empty and not text
        yield text
    if empty:
        raise UserError("data: the training text is empty, so no tokenizer can be trained; give files with text")
