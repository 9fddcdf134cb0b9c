"""Reviews in an invented vocabulary, for elmo.py: many without a label, few with one.

A review is good or bad, and contains several words of opinion: "the meal was venulu , not latogi , bizega". Only
co-occurrence shows which words are good, and "not" reverses a word. Text without labels therefore separates the two
groups of words, and a few labels are enough to name them.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import NamedTuple

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


def reviews(seed: int, unlabelled: int, labelled: int, test: int) -> dict[str, list[Review]]:
    """Make four sets of reviews in one invented language, with other words for each seed. No text is in two of them.

    Args:
        seed: Determines words and reviews.
        unlabelled: Number of reviews for pretraining; a twentieth as many more are made for its validation.
        labelled: Number of reviews with labels for training, half of each label.
        test: Number of reviews for the test.
    """
    generator = random.Random(seed)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    words: dict[str, None] = {}
    while len(words) < 2 * WORDS:
        words["".join(generator.choices(syllables, k=SYLLABLES))] = None
    camps = [*words][:WORDS], [*words][WORDS:]
    known: set[str] = set()

    def some(count: int) -> list[Review]:
        found: list[Review] = []
        while len(found) < count:
            label = len(found) % len(LABELS)
            opinions = []
            for _ in range(generator.randint(FEWEST, MOST)):
                # A bad word denied is as good as a good one.
                denied = generator.random() < NEGATED
                opinions.append("not " * denied + generator.choice(camps[1 - label if denied else label]))
            text = f"the {generator.choice(NOUNS)} was {' , '.join(opinions)}"
            if text not in known:
                known.add(text)
                found.append(Review(text, LABELS[label]))
        return found

    # Test and labels first, so that they do not change with how much there is to pretrain on.
    sets = {"test": some(test), "labelled": some(labelled), "unlabelled": some(unlabelled)}
    return sets | {"unlabelled_validation": some(max(unlabelled // 20, 1))}


def write(folder: Path, seed: int, made: dict[str, list[Review]]) -> tuple[list[str], list[str]]:
    """Write the sets into files, those for pretraining without labels; return overrides for texts, and for labels."""
    files = {}
    for part, rows in made.items():
        files[part] = folder / f"{part}-{seed}.jsonl"
        keys = ("text",) if part.startswith("unlabelled") else ("text", "label")
        lines = [json.dumps({key: getattr(row, key) for key in keys}) for row in rows]
        files[part].write_text("\n".join(lines) + "\n")
    text = [f"data.path={files['unlabelled']}", f"data.validation_path={files['unlabelled_validation']}"]
    return text, [f"data.path={files['labelled']}", f"data.validation_path={files['test']}"]
