"""Made-up sentences with names of three types, as CoNLL files: `python -m benchmarks.chain FOLDER`.

They measure `task.crf=true` (docs/results.md).

A name has one to four words. Most of its words prefer its type, some are the small words of the sentence, many are
rare; a word before it tells the type three times in five. So the labels of a name are uncertain one by one, and must
agree.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

TYPES = ("PER", "LOC", "ORG")
SIZES = {"train-500": 500, "train-5000": 5000, "dev": 1000, "test": 3000}
NUM_PLAIN, NUM_NAMES, NUM_CUES = 200, 4000, 8


def zipf(generator: np.random.Generator, size: int) -> int:
    """Draw a number below `size`, with a probability that falls like 1 / (number + 1)."""
    return int(size ** generator.random()) - 1


def sentence(generator: np.random.Generator) -> list[str]:
    """Return the lines of one sentence, a word and its label each."""
    lines = []
    for _ in range(generator.integers(1, 5)):
        lines += [f"w{zipf(generator, NUM_PLAIN)} O" for _ in range(generator.integers(0, 5))]
        kind = int(generator.integers(3))
        cue = f"c{kind}{generator.integers(NUM_CUES)}" if generator.random() < 0.6 else f"w{zipf(generator, NUM_PLAIN)}"
        lines.append(f"{cue} O")
        for place in range(generator.integers(1, 5)):
            prefers = kind if generator.random() < 0.7 else int(generator.integers(3))
            word = f"n{3 * zipf(generator, NUM_NAMES) + prefers}"
            if place and generator.random() < 0.25:
                word = f"w{zipf(generator, NUM_PLAIN)}"
            lines.append(f"{word} {'I' if place else 'B'}-{TYPES[kind]}")
    return [*lines, "w0 O"]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, size) in enumerate(SIZES.items()):
        draws = np.random.default_rng([30, number])
        text = "\n\n".join("\n".join(sentence(draws)) for _ in range(size))
        (folder / f"{name}.conll").write_text(f"{text}\n")
