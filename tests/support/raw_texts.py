"""Texts with what a cleaning must find: two that are nearly the same, one that repeats itself, one that is short."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

from tests.conftest import REPOSITORY

_WORDS = [f"{first}{last}" for first in ("ba", "do", "fi", "gu", "le", "mo") for last in ("ran", "sil", "tek", "vun")]


def _sentences(seed: int) -> str:
    draw = random.Random(seed)
    return "\n".join(" ".join(draw.choices(_WORDS, k=draw.randint(9, 15))) + f" {seed}." for _ in range(8))


_NEARLY = _sentences(100)
KEPT = sorted([*map(_sentences, range(6)), _NEARLY])
"""What is left of them."""


def parts() -> list[list[str]]:
    """The lines of two files of jsonl."""
    again = "\n".join(["the very same line, again and again and again."] * 12)
    first = [*map(_sentences, range(3)), _NEARLY, "too short"]
    second = [*map(_sentences, range(3, 6)), _NEARLY.replace("100.\n", "100 .\n", 1), again]
    return [list(map(_line, first)), list(map(_line, second))]


def _line(text: str) -> str:
    return json.dumps({"text": text})


def write_raw(folder: Path) -> None:
    """Writes them below raw/."""
    (folder / "raw").mkdir()
    for number, lines in enumerate(parts()):
        (folder / "raw" / f"{number}.jsonl").write_text("\n".join(lines) + "\n")


def cleaned(folder: Path) -> list[str]:
    """The texts that are left below clean/."""
    texts = []
    for path in (folder / "clean").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            texts.append(json.loads(line)["text"])
    return sorted(texts)


def cleaning_script() -> str:
    """The script that docs/stores.md shows."""
    (found,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "stores.md").read_text(), re.DOTALL)
    return found
