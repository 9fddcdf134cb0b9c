"""Made-up reviews in words that nobody knows: many without a label, few with one.

A review is good or bad, and names several words of opinion: "the meal was venulu , not latogi , bizega". Which words
are good is told by nothing but the company that they keep, and "not" turns a word round. So text without labels holds
the two camps, and a few labels only have to say which of them is called good.
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
    """A text, and what it says."""

    text: str
    label: str


class Reviews(NamedTuple):
    """No text stands in two of these."""

    unlabelled: list[Review]  # whose labels nobody reads
    unlabelled_validation: list[Review]
    labelled: list[Review]
    test: list[Review]


def reviews(seed: int, unlabelled: int, labelled: int, test: int) -> Reviews:
    """Reviews of one language, made of other words for each seed.

    Args:
        seed: Decides words and reviews.
        unlabelled: How many to pretrain on; a twentieth as many more to measure that.
        labelled: How many to learn the labels from, of both as many.
        test: How many to measure on.
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
    """Bad words and good ones, of syllables drawn at random."""
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
    """A file of jsonl; of text to pretrain on the labels are not even written."""
    lines = []
    for row in rows:
        lines.append(json.dumps(row._asdict() if with_labels else {"text": row.text}))
    write_text(path, "\n".join(lines) + "\n")
