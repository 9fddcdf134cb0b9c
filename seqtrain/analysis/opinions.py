"""Synthetic reviews in an invented vocabulary: many without a label, few with one.

A review is good or bad, and contains several words of opinion: "the meal was venulu , not latogi , bizega". Only
co-occurrence shows which words are good, and "not" reverses a word. Text without labels therefore separates the two
groups of words, and a few labels are enough to name them.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import NamedTuple

from seqtrain.files.atomic import write_text

WORDS = 60  # of each camp
FEWEST, MOST = 4, 7  # words of opinion in a review
NEGATED = 0.15  # share of them behind "not"
SYLLABLES = 3  # in a word of opinion
NOUNS = ["film", "book", "song", "meal", "hotel", "room", "train", "lesson", "actor", "plot", "game", "play"]
LABELS = ("bad", "good")


class Review(NamedTuple):
    """A text and its label."""

    text: str
    label: str


class Reviews(NamedTuple):
    """The four sets of reviews. No text is in two of them."""

    unlabelled: list[Review]  # their labels are not used
    unlabelled_validation: list[Review]
    labelled: list[Review]
    test: list[Review]


def reviews(seed: int, unlabelled: int, labelled: int, test: int) -> Reviews:
    """Make reviews in one invented language, with other words for each seed.

    Args:
        seed: Determines words and reviews.
        unlabelled: Number of reviews for pretraining; a twentieth as many more are made for its validation.
        labelled: Number of reviews with labels for training, half of each label.
        test: Number of reviews for the test.
    """
    generator = random.Random(seed)
    camps = _camps(generator)
    known: set[str] = set()

    def some(count: int) -> list[Review]:
        found: list[Review] = []
        while len(found) < count:
            label = len(found) % len(LABELS)
            text = _text(generator, camps, label)
            # Each text once in all parts together: none of test has been read before.
            if text not in known:
                known.add(text)
                found.append(Review(text, LABELS[label]))
        return found

    # Test and labels first, so that they do not change with how much there is to pretrain on.
    of_test, of_labelled = some(test), some(labelled)
    return Reviews(some(unlabelled), some(max(unlabelled // 20, 1)), of_labelled, of_test)


def _camps(generator: random.Random) -> tuple[list[str], list[str]]:
    """Return bad words and good words, made of random syllables."""
    syllables = []
    for consonant in "bdfgklmnprstvz":
        for vowel in "aeiou":
            syllables.append(consonant + vowel)
    words: list[str] = []
    while len(words) < 2 * WORDS:
        word = "".join(generator.choices(syllables, k=SYLLABLES))
        if word not in words:
            words.append(word)
    return words[:WORDS], words[WORDS:]


def _text(generator: random.Random, camps: tuple[list[str], list[str]], label: int) -> str:
    opinions = []
    for _ in range(generator.randint(FEWEST, MOST)):
        # A bad word denied is as good as a good one.
        if generator.random() < NEGATED:
            opinions.append(f"not {generator.choice(camps[1 - label])}")
        else:
            opinions.append(generator.choice(camps[label]))
    return f"the {generator.choice(NOUNS)} was {' , '.join(opinions)}"


def write(path: Path, rows: list[Review], with_labels: bool) -> None:
    """Write reviews as jsonl. Files for pretraining do not contain labels."""
    lines = []
    for row in rows:
        lines.append(json.dumps(row._asdict() if with_labels else {"text": row.text}))
    write_text(path, "\n".join(lines) + "\n")
