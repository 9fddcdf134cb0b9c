"""Attention heads that look from a pronoun to its noun: a score for each, the best one tested on other sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float

from seqtrain.data.tokenizers.encoding import HIDDEN
from seqtrain.inference.opened import Opened
from seqtrain.models.layers.recorder import recording


@dataclass(frozen=True)
class Sentence:
    """A sentence with one hidden word, and the positions of its nouns, one of which determines the hidden word."""

    words: tuple[str, ...]
    hidden: int
    noun: int
    others: tuple[int, ...]

    @property
    def answer(self) -> str:
        """The hidden word."""
        return self.words[self.hidden]

    @property
    def text(self) -> str:
        """The sentence with [MASK] in place of the hidden word."""
        shown = list(self.words)
        shown[self.hidden] = HIDDEN
        return " ".join(shown)


@dataclass(frozen=True)
class Scores:
    """Scores (L, H, N) of L layers and H heads on N sentences: the attention from the hidden word's position."""

    margin: Float[np.ndarray, "L H N"]  # attention on the noun's phrase less the mean of that on the others'
    found: Bool[np.ndarray, "L H N"]  # whether of all phrases the right one has the most


@dataclass(frozen=True)
class Best:
    """The head with the largest mean margin on one half of the sentences, measured on the other half."""

    layer: int  # from 0, as the head
    head: int
    margin: float
    found: float  # share of sentences
    error: float  # standard error of `found`


def sentence(text: str, label: str, *, asked: str, noun: str, other: str) -> Sentence:
    """Return a sentence whose label marks each word: the hidden word, its noun, and the other nouns.

    Args:
        text: The words, separated by spaces.
        label: A mark for each word.
        asked: Mark of the word to hide.
        noun: Mark of its noun.
        other: Mark of the other nouns.
    """
    kinds = label.split()
    others = []
    for place, kind in enumerate(kinds):
        if kind == other:
            others.append(place)
    return Sentence(tuple(text.split()), kinds.index(asked), kinds.index(noun), tuple(others))


@torch.no_grad()
def score(opened: Opened, sentences: Sequence[Sentence]) -> Scores:
    """Score each layer and head of an encoder of words by its attention on a noun and its article.

    Args:
        opened: A run of task=masked_lm.
        sentences: At least one sentence. All have the same number of nouns, and therefore the same chance.
    """
    reader = opened.predictor("fill")
    before, _ = opened.task.edges(opened.tokenizer)
    places = []
    for each in sentences:
        # Behind what stands before a text; the nouns' places first, that of the right one before all.
        places.append([len(before) + place for place in (each.noun, *each.others, each.hidden)])
    on_phrases: list[torch.Tensor] = [torch.empty(0)] * len(sentences)
    for lanes, tokens, lengths in reader.batches([each.text for each in sentences]):
        with recording() as maps:
            opened.model.encode(tokens, lengths)
        weights = torch.stack([each.weights for each in maps])  # (L, B, H, T, N)
        for row, lane in enumerate(lanes):
            *nouns, hidden = places[lane]
            looks = weights[:, row, :, hidden]  # (L, H, T)
            # With the article before it: a layer below may have put there what the noun is, and in some trainings has.
            articles = [noun - 1 for noun in nouns]
            on_phrases[lane] = looks[..., nouns] + looks[..., articles]  # (L, H, nouns)
    table = torch.stack(on_phrases, 2).double().numpy()  # (L, H, N, nouns)
    margin = table[..., 0] - table[..., 1:].mean(-1)
    # Above, not as much as: a head that looks at nothing in particular has found nothing.
    return Scores(margin, table[..., 0] > table[..., 1:].max(-1))


def halves(count: int, in_set: int) -> tuple[slice, slice]:
    """Return the first and the second half of rows that come in sets. No set is split between them."""
    middle = count // in_set // 2 * in_set
    return slice(middle), slice(middle, count)


def best(scores: Scores, in_set: int) -> Best:
    """Choose the head on the first half and measure it on the second, which avoids selection bias.

    Args:
        scores: Scores of all heads.
        in_set: Number of consecutive sentences that are alike. Each set counts once for the standard error.
    """
    choosing, measuring = halves(scores.margin.shape[-1], in_set)
    means = scores.margin[..., choosing].mean(-1)  # (L, H)
    layer, head = divmod(int(means.argmax()), means.shape[1])
    found = scores.found[layer, head, measuring]
    by_set = found.reshape(-1, in_set).mean(1)
    return Best(
        layer,
        head,
        float(scores.margin[layer, head, measuring].mean()),
        float(found.mean()),
        float(by_set.std(ddof=1) / len(by_set) ** 0.5),
    )


def filled_right(opened: Opened, sentences: Sequence[Sentence]) -> float:
    """Return the share of sentences whose hidden word is the most likely one."""
    answers = opened.predictor("fill").predict([each.text for each in sentences], top_k=1)
    right = 0
    for each, answer in zip(sentences, answers, strict=True):
        right += answer["masks"][0][0]["token"].strip() == each.answer
    return right / len(sentences)


@torch.no_grad()
def attention_map(opened: Opened, one: Sentence, layer: int, head: int) -> Float[np.ndarray, "T T"]:
    """Return the attention of one head between the words of a sentence, without the tokens around the text.

    Args:
        opened: A run of task=masked_lm.
        one: The sentence.
        layer: Layer, from 0.
        head: Head, from 0.
    """
    reader = opened.predictor("fill")
    before, after = opened.task.edges(opened.tokenizer)
    (_, tokens, lengths), *_ = reader.batches([one.text])
    with recording() as maps:
        opened.model.encode(tokens, lengths)
    text = slice(len(before), tokens.shape[1] - len(after))
    return maps[layer].weights[0, head, text, text].double().numpy()
