"""Texts with a label for each word, placed at the last token of the word, as examples; or labelled series."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from seqtrain.data.batching.examples import ExampleBatch, TextExamples
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.sources.base import NO_LABEL
from seqtrain.data.tokenizers.encoding import Tokenizer, words
from seqtrain.errors import UserError, first_few
from seqtrain.tasks.baselines.texts import word_numbers
from seqtrain.tasks.metrics.labels import is_bio, malformed
from seqtrain.tasks.predictors import NamedSeries, Predictor, T


class PlacedExamples(TextExamples):
    """Texts with an answer at the last token of each word, or series with an answer at each step.

    All other tokens, and words without a target, have IGNORED, or NaN if answers are real numbers.

    The last token is used because a causal model has not seen the whole word before. Examples without any target within
    the part that is read are left out, because a step with only such examples would have no loss.
    """

    def __init__(
        self,
        rows: Rows,
        preprocessor: Preprocessor,
        answers: list[Shaped[np.ndarray, " _"]],
        *,
        max_length: int,
        dtype: torch.dtype,
        needed: str,
    ) -> None:
        """Place the answers.

        Args:
            rows: Rows of a split.
            preprocessor: Their preprocessor.
            answers: Of each row, an answer for each word or step.
            max_length: Maximum tokens of an example.
            dtype: Type of real values, if series are read.
            needed: What a word needs to be a target, for messages.

        Raises:
            UserError: No word that is read has a target.
        """
        super().__init__(rows, preprocessor, max_length=max_length, dtype=dtype)
        self.first = 0 if rows.series is not None else 1  # the position of the first answer: a text has `start`
        self.labels = self._at_tokens(rows, preprocessor, answers)
        self.widths = self.lengths[:, 0]  # of all examples, including those left out
        # Only the part that is read counts, because max_length may cut off the only target.
        targets = np.array([self._num_read(labels) for labels in self.labels])
        self.kept = targets.nonzero()[0]
        self.lengths = self.lengths[self.kept]
        if not len(self.kept):
            raise UserError(
                f"data: no word within data.max_length={max_length} has {needed}; label some, or raise data.max_length"
            )
        left_out = len(targets) - len(self.kept)
        if left_out:
            self.remark = f"{left_out:,} of {len(targets):,} examples have no word with a target and are left out"

    def _at_tokens(
        self, rows: Rows, preprocessor: Preprocessor, labels: list[Shaped[np.ndarray, " _"]]
    ) -> list[Shaped[np.ndarray, " _"]]:
        """Place the labels, which are given per word, at the tokens of each text."""
        tokenizer = preprocessor.tokenizer
        if self.series is not None or tokenizer.kind == "word":  # line ends are tokens there, and have labels too
            return labels
        by_token = []
        for number, (text, labels_of_words) in enumerate(zip(rows.texts("text"), labels, strict=True)):
            tokens = self.text[number]
            targets = np.full(len(tokens), _nothing(labels_of_words), dtype=labels_of_words.dtype)
            targets[word_ends(tokenizer, text, tokens)] = labels_of_words
            by_token.append(targets)
        return by_token

    def _num_read(self, labels: Shaped[np.ndarray, " _"]) -> int:
        return int(asked(labels[: self.longest]).sum())

    def collate(self, index: Int[np.ndarray, " B"], epoch: int, totals: dict[str, int]) -> ExampleBatch:
        return super().collate(self.kept[index], epoch, totals)

    def targets(self, index: Int[np.ndarray, " B"]) -> Shaped[Tensor, "B _"]:
        """Return the answers to the words after `start`; those of unread words are placed after the tokens."""
        width = int(self.widths[index].max())
        unread = max(0, *(len(self.labels[i]) - self.longest for i in index))
        kind = self.labels[index[0]]
        targets = np.full((len(index), width + unread), _nothing(kind), dtype=kind.dtype)
        for lane, example in enumerate(index):
            labels = self.labels[example]
            read, rest = labels[: self.longest], labels[self.longest :]
            targets[lane, self.first : self.first + len(read)] = read
            targets[lane, width : width + len(rest)] = rest
        return torch.from_numpy(targets)

    def totals(self, index: Int[np.ndarray, " B"], epoch: int) -> dict[str, int]:
        """Count the targets that are read: only these contribute to the loss."""
        return {"loss": sum(self._num_read(self.labels[i]) for i in self.kept[index])}


def asked(answers: Shaped[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Return which answers are targets."""
    return ~np.isnan(answers) if answers.dtype.kind == "f" else answers != IGNORED


def _nothing(answers: Shaped[np.ndarray, " n"]) -> float:
    """Return the value that is no target among such answers."""
    return np.nan if answers.dtype.kind == "f" else IGNORED


class TaggedExamples(PlacedExamples):
    """Texts or series with a label at each word or step."""

    def __init__(
        self,
        rows: Rows,
        preprocessor: Preprocessor,
        *,
        max_length: int,
        ignore: str | None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        assert isinstance(rows.labels, list)
        table = answer_of_label(preprocessor.labels, ignore)
        super().__init__(
            rows,
            preprocessor,
            [table[labels] for labels in rows.labels],
            max_length=max_length,
            dtype=dtype,
            needed=f"a label other than task.ignore={ignore}",
        )
        if is_bio(answers(preprocessor.labels, ignore)):
            remarks = [*filter(None, [self.remark]), *_malformed_words(rows.labels, preprocessor.labels)]
            self.remark = "; ".join(remarks) or None


def cut_of(tokenizer: Tokenizer) -> Callable[[str], list[str]]:
    """Return what splits a text into its words: other tokenizers than `word` leave those between white space."""
    return words if tokenizer.kind == "word" else str.split


def words_of(
    train: Rows, split: Rows, preprocessor: Preprocessor
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " m"]]:
    """Return the numbers of all words of train and of a split, end to end; equal words have equal numbers."""
    known: dict[str, int] = {}
    cut = cut_of(preprocessor.tokenizer)
    return word_numbers(train.texts("text"), known, cut)[0], word_numbers(split.texts("text"), known, cut)[0]


class WordPredictor(Predictor[T]):
    """A predictor that answers each word of a text, or each step of a series."""

    def at_words(
        self, item: str | NamedSeries, hidden: Shaped[Tensor, "T ..."]
    ) -> tuple[list[str], Shaped[Tensor, "words ..."]]:
        """Return the words or the numbers of the steps, and the rows of `hidden` (T, ...) at their last tokens.

        An unknown word keeps its spelling.
        """
        if isinstance(item, NamedSeries):
            return [str(step) for step in range(1, len(hidden) + 1)], hidden
        tokenizer = self.loaded.tokenizer
        return cut_of(tokenizer)(item), hidden[1:-1][word_ends(tokenizer, item, self.encode(item))]


def answers(labels: Sequence[str], ignore: str | None) -> tuple[str, ...]:
    """Return the labels that may be an answer: all but `ignore`.

    Raises:
        UserError: If fewer than two labels are left, or if `ignore` is not a label and not `_`.
    """
    # `_` is the default, and most label sets do not use it; any other value was typed, and may be mistyped.
    if ignore is None or (ignore == NO_LABEL and ignore not in labels):
        return tuple(labels)
    if ignore not in labels:
        raise UserError(f"task.ignore={ignore}: no word of train has this label ({first_few(labels)}); leave it out")
    left = tuple(label for label in labels if label != ignore)
    if len(left) < 2:
        raise UserError(f"task.ignore={ignore}: leaves {len(left)} label(s), but at least two are needed")
    return left


def answer_of_label(labels: Sequence[str], ignore: str | None) -> Int[np.ndarray, " labels"]:
    """Return the index of each label among the answers, and IGNORED for the label that is not a target."""
    kept = answers(labels, ignore)
    table = np.full(len(labels), IGNORED, dtype=np.int64)
    for place, label in enumerate(labels):
        if label in kept:
            table[place] = kept.index(label)
    return table


def joined(rows: Rows, table: Int[np.ndarray, " labels"]) -> Int[np.ndarray, " n"]:
    """Concatenate the answers to all words of a split."""
    assert isinstance(rows.labels, list)
    return table[np.concatenate([np.zeros(0, dtype=np.int64), *rows.labels])]


def ends_of(rows: Rows) -> Int[np.ndarray, " s"]:
    """Return the ends of all texts but the last, counted in words of the split."""
    assert isinstance(rows.labels, list)
    # Counted by labels, one per word, because tokens may be parts of words.
    return np.array([len(labels) for labels in rows.labels]).cumsum()[:-1]


def _malformed_words(rows: Sequence[Int[np.ndarray, " _"]], labels: tuple[str, ...]) -> list[str]:
    """Return the message on malformed BIO labels; empty if all are well formed."""
    count = num_rows = 0
    for row in rows:
        found = malformed([labels[place] for place in row.tolist()])
        count += found
        num_rows += found > 0
    if not count:
        return []
    return [
        f"BIO labels that continue no span (I- after O or another type): {count:,}, in {num_rows:,} of {len(rows):,} "
        "examples; each counts as the beginning of a span, as in seqeval"
    ]


WORD = re.compile(r"\S+")  # the same white space as that of `str.split`


def word_ends(tokenizer: Tokenizer, text: str, tokens: Int[np.ndarray, " n"]) -> Int[np.ndarray, " words"]:
    """Return the index (words,) of the token in which each word of a text ends.

    Args:
        tokenizer: The tokenizer of the tokens.
        text: Words between white space.
        tokens: Ids (n,) of the whole text, without special tokens.
    """
    if tokenizer.kind == "word":
        return np.arange(len(tokens))
    last = [match.end() - 1 for match in WORD.finditer(text)]
    known = tokenizer.text_ends(text)
    if known is not None:
        ends = np.searchsorted(known, np.array(last, dtype=np.int64) + 1)
        return ends.clip(max=len(tokens) - 1)
    # Counted in bytes if tokens consist of bytes, because a token may be part of a character.
    sizes = np.ones(len(text), dtype=np.int64)
    if tokenizer.lossless:
        sizes = np.array([len(character.encode()) for character in text], dtype=np.int64)
    ends_of_characters = sizes.cumsum()
    ends_of_tokens = tokenizer.text_lengths(tokens).cumsum()
    # The first token that reaches the end of the word's last character.
    return np.searchsorted(ends_of_tokens, ends_of_characters[last])
