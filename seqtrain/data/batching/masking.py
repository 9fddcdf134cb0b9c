"""Masked examples: pieces of text with hidden tokens (Devlin et al. 2019), drawn anew each epoch (Liu et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seqtrain.data.batching.documents import Found, Stretches
from seqtrain.data.batching.example_plan import StretchLengths
from seqtrain.data.batching.examples import ExampleBatch, Examples
from seqtrain.data.batching.splitmix64 import MASK as BITS
from seqtrain.data.batching.splitmix64 import mixed
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.corpus import Corpus
from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.errors import UserError

PLACES, WAYS, WORDS, FOLLOWS, FOLLOWERS = range(5)  # kinds of random choices; each has its own numbers

Batch = TypeVar("Batch", bound="MaskedBatch")


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Rule that hides tokens of a piece; a hidden token becomes the mask or a random token, or keeps its value."""

    mask_prob: float  # fraction of the tokens that is hidden
    mask_share: float  # fraction of the hidden tokens that becomes the mask
    random_share: float  # fraction of the hidden tokens that becomes a random token of the vocabulary
    whole_word: bool  # True to hide only whole words

    def wanted(self, counts: Int[np.ndarray, " B"]) -> Int[np.ndarray, " B"]:
        """Return the number of tokens to hide (B,) in pieces of `counts` tokens: at least 1, more with whole words."""
        return np.maximum(np.rint(self.mask_prob * counts), 1).astype(np.int64)


@dataclass(kw_only=True)
class MaskedBatch(ExampleBatch):
    """Pieces of text with hidden tokens; `targets` (B, T) contains the hidden tokens."""

    places: Int[Tensor, " M"]  # flat indices b * T + t of the targets; searching for them would wait for the GPU
    next_labels: Int[Tensor, " B"]  # 0: the second sentence follows the first; 1: it does not; IGNORED: no second one

    @property
    def original(self) -> Int[Tensor, "B T"]:
        """Tokens (B, T) before any token was hidden."""
        return torch.where(self.targets == IGNORED, self.tokens, self.targets)

    def without_targets(self: Batch) -> Batch:
        blank = torch.full_like(self.next_labels, IGNORED)
        return replace(super().without_targets(), places=self.places[:0], next_labels=blank)


class MaskedExamples(Examples):
    """`start, piece, separator`; or `start, A, separator, B, separator`, where B may or may not follow A in the text.

    Every token of the split is in one piece. With `next_sentence` a piece is cut into A and B of equal length (A has
    one more if it is odd). Half of the Bs, drawn anew in every epoch, are replaced by a B of the same length from
    another piece.
    """

    def __init__(
        self, corpus: Corpus, tokenizer: Tokenizer, masking: Masking, *, max_length: int, next_sentence: bool, seed: int
    ) -> None:
        """Cut the pieces; raise UserError if `max_length` leaves no room for text.

        Args:
            corpus: The tokens of the split.
            tokenizer: Tokenizer of the tokens; provides the special tokens.
            masking: Rule that hides tokens.
            max_length: Maximum tokens per example, including special tokens.
            next_sentence: True to cut pieces into two sentences, for next-sentence prediction.
            seed: Seed of all random choices.
        """
        least = 5 if next_sentence else 3
        if max_length < least:
            raise UserError(f"data.max_length={max_length}: must be at least {least}, including the special tokens")
        self.tokens = corpus.tokens
        self.tokenizer = tokenizer
        self.masking = masking
        self.seed = seed
        self.next_sentence = next_sentence
        size = 2 * ((max_length - 3) // 2) if next_sentence else max_length - 2
        self.pieces = Stretches(corpus.documents, size)
        self.special = 3 if next_sentence else 2  # start and separator; one more between A and B
        self.lengths = StretchLengths(self.pieces, self.special)
        if next_sentence:
            places = np.arange(len(self.pieces))
            found = self.pieces.find(places)
            second = self._second(found)
            # Bs of other documents, and for examples that have none, Bs of the same document.
            self.replacements = Replacements(second, found.document), Replacements(second, places)

    def totals(self, index: Int[np.ndarray, " B"], epoch: int) -> dict[str, int]:
        if self.masking.whole_word:  # the number depends on the drawn words
            tokens, text, _ = self._laid_out(index, epoch)
            hidden = int(self._hidden(tokens, text, index, epoch).sum())
        else:
            hidden = int(self.masking.wanted(self.pieces.find(index).count).sum())
        totals = {"loss": hidden}
        if self.next_sentence:
            totals["next_sentence"] = len(index)
        return totals

    def collate(self, index: Int[np.ndarray, " B"], epoch: int, totals: dict[str, int]) -> MaskedBatch:
        tokens, text, labels = self._laid_out(index, epoch)
        hidden = self._hidden(tokens, text, index, epoch)
        targets = np.where(hidden, tokens, IGNORED)
        width = tokens.shape[1]
        way = uniforms(self.seed, epoch, index, WAYS, width)[hidden]
        other = uniforms(self.seed, epoch, index, WORDS, width)[hidden] * self.tokenizer.vocab_size
        swapped = way < self.masking.mask_share + self.masking.random_share
        instead = np.where(swapped, other.astype(np.int64), tokens[hidden])
        tokens[hidden] = np.where(way < self.masking.mask_share, self.tokenizer.mask, instead)
        lengths = self.lengths[index, 0]
        return MaskedBatch(
            tokens=torch.from_numpy(tokens),
            lengths=torch.from_numpy(lengths),
            targets=torch.from_numpy(targets),
            index=torch.from_numpy(np.asarray(index, dtype=np.int64)),
            count=int(lengths.sum()),
            totals=totals,
            places=torch.from_numpy(np.flatnonzero(hidden)),
            next_labels=torch.from_numpy(labels),
        )

    def _laid_out(
        self, index: Int[np.ndarray, " B"], epoch: int
    ) -> tuple[Int[np.ndarray, "B T"], Bool[np.ndarray, "B T"], Int[np.ndarray, " B"]]:
        """Return tokens with special ones (B, T), a mask of text (B, T), and next-sentence labels (B,)."""
        found = self.pieces.find(index)
        second = self._second(found)[:, None]
        first = found.count[:, None] - second
        lengths = found.count[:, None] + self.special
        begin, labels = self._follower(found, index, epoch)
        time = np.arange(int(lengths.max()))
        in_first = (time >= 1) & (time <= first)
        in_second = (time >= first + 2) & (time < first + 2 + second)
        place = np.where(in_first, found.begin[:, None] - 1, begin[:, None] - first - 2) + time
        text = in_first | in_second
        tokens = self.tokens[np.where(text, place, 0)].astype(np.int64)
        tokens[~text] = 0
        tokens[~text & (time < lengths)] = self.tokenizer.separator
        tokens[:, 0] = self.tokenizer.start
        return tokens, text, labels

    def _second(self, pieces: Found) -> Int[np.ndarray, " B"]:
        """Return the tokens of the second sentence of each piece (B,); 0 if there is none."""
        return pieces.count // 2 if self.next_sentence else np.zeros_like(pieces.count)

    def _follower(
        self, own: Found, index: Int[np.ndarray, " B"], epoch: int
    ) -> tuple[Int[np.ndarray, " B"], Int[np.ndarray, " B"]]:
        """Return the beginning of each example's second sentence in the corpus (B,), and its label (B,)."""
        begin = own.begin + own.count - self._second(own)
        if not self.next_sentence:
            return begin, np.full(len(index), IGNORED)
        far, near = self.replacements
        draw = uniforms(self.seed, epoch, index, FOLLOWERS, 1)[:, 0]
        distant = far.count[index] > 0
        other = np.where(distant, far.pick(index, draw), near.pick(index, draw))
        replaced = uniforms(self.seed, epoch, index, FOLLOWS, 1)[:, 0] < 0.5
        replaced &= distant | (near.count[index] > 0)  # without a candidate, it keeps its own
        donor = self.pieces.find(other)
        instead = donor.begin + donor.count - self._second(donor)
        return np.where(replaced, instead, begin), replaced.astype(np.int64)

    def _hidden(
        self,
        tokens: Int[np.ndarray, "B T"],
        text: Bool[np.ndarray, "B T"],
        index: Int[np.ndarray, " B"],
        epoch: int,
    ) -> Bool[np.ndarray, "B T"]:
        """Return a mask (B, T) of hidden tokens: words are hidden in a random order until enough tokens are hidden."""
        batch, width = tokens.shape
        time = np.broadcast_to(np.arange(width), tokens.shape)
        begin = time  # first position of each token's word
        if self.masking.whole_word:
            joins = self.tokenizer.joins(tokens.reshape(-1)).reshape(batch, width)
            begin = np.maximum.accumulate(np.where(joins, 0, time), axis=1)
        key = np.take_along_axis(uniforms(self.seed, epoch, index, PLACES, width), begin, 1)
        key[~text] = np.inf  # special tokens and padding come last
        # The tokens of a word have the same key, so a stable sort keeps them together and in order.
        order = key.argsort(axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, time, 1)
        before = np.take_along_axis(rank, begin, 1)  # tokens of the words drawn before this one
        return text & (before < self.masking.wanted(self.pieces.find(index).count)[:, None])


class Replacements:
    """For each example, the examples of another owner whose second sentence can replace its own.

    They have a second sentence of the same length. If there is none, they have one of the next greater length that
    occurs, and only its beginning is used.
    """

    def __init__(self, lengths: Int[np.ndarray, " n"], owners: Int[np.ndarray, " n"]) -> None:
        """Group the examples. `lengths` (n,): of second sentences; `owners` (n,): such as documents."""
        self.order = np.lexsort((owners, lengths))
        sizes, first, group = np.unique(lengths[self.order], return_index=True, return_inverse=True)
        end = np.append(first[1:], len(lengths))
        source = _sources(sizes, owners[self.order[first]], owners[self.order[end - 1]])
        chosen = np.empty_like(self.order)
        chosen[self.order] = source[group]  # the group of lengths that each example takes from, or -1
        stride = int(owners.max()) + 1
        keys = lengths[self.order] * stride + owners[self.order]
        mine = sizes[chosen] * stride + owners
        self.own = np.searchsorted(keys, mine, "left")  # first of the examples of the same owner, which are skipped
        self.owned = np.searchsorted(keys, mine, "right") - self.own
        self.first = first[chosen]
        self.count = np.where(chosen < 0, 0, end[chosen] - self.first - self.owned)  # (n,) candidates of each example

    def pick(self, index: Int[np.ndarray, " B"], draw: Float[np.ndarray, " B"]) -> Int[np.ndarray, " B"]:
        """Return one example for each of `index` (B,), by `draw` in [0, 1); an arbitrary one if there is none."""
        place = self.first[index] + (draw * self.count[index]).astype(np.int64)
        place = np.where(place >= self.own[index], place + self.owned[index], place)
        return self.order[np.minimum(place, len(self.order) - 1)]


def _sources(
    sizes: Int[np.ndarray, " G"], least: Int[np.ndarray, " G"], greatest: Int[np.ndarray, " G"]
) -> Int[np.ndarray, " G"]:
    """Return the group (G,) that provides the replacements of each group; -1: none.

    Args:
        sizes: Length (G,) of the sentences of each group, ascending.
        least: Smallest owner (G,) in each group.
        greatest: Largest owner (G,) in each group.
    """
    source = np.full(len(sizes), -1)
    for group in range(len(sizes) - 1, -1, -1):
        if sizes[group] == 0:
            continue  # an empty sentence cannot be told from another one
        if least[group] != greatest[group]:
            source[group] = group
        elif group + 1 < len(sizes):
            # Two groups of the same single owner cannot replace each other.
            same = least[group] == least[group + 1] and greatest[group] == greatest[group + 1]
            source[group] = source[group + 1] if same else group + 1
    return source


def uniforms(
    seed: int, epoch: int, examples: Int[np.ndarray, " B"], what: int, count: int
) -> Float[np.ndarray, "B {count}"]:
    """Return random numbers (B, count) in [0, 1): SplitMix64 of (seed, epoch, example, what), for any batch."""
    key = np.array([seed & BITS], dtype=np.uint64)
    for part in (np.array([epoch]), np.array([what]), examples):
        key = mixed(key, part)
    # The upper 53 bits: as many as a double holds without rounding.
    return (mixed(key[:, None], np.arange(count)) >> np.uint64(11)) * 2.0**-53
