"""The source text of the running interpreter's standard library: real text that needs no download."""

from __future__ import annotations

import hashlib
import os
import platform
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqtrain.data.sources.base import Source, Split, check_fractions, no_split
from seqtrain.errors import UserError

# Installed packages are not part of the library, and some systems ship it without its tests.
NOT_LIBRARY = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}
# Data in Python syntax, not code: character maps and help texts.
TABLES = {"encodings", "pydoc_data"}
BUILD_FLAGS = "_sysconfigdata"  # also data, and it differs between machines


class PythonStdlib(Source):
    """Every `*.py` of the standard library, ordered by path.

    The split of a file follows from a hash of its path, so it does not change when another file is added.
    """

    document = "a file"

    def __init__(self, *, validation_fraction: float = 0.05, test_fraction: float = 0.05) -> None:
        check_fractions(validation_fraction, test_fraction)
        self.fractions = {"validation": validation_fraction, "test": test_fraction}
        self.root = Path(sysconfig.get_path("stdlib"))

    def check(self) -> None:
        if next(self._paths(), None) is None:
            raise UserError(
                f"data=python_stdlib: no *.py below {self.root} (this Python ships its library without source); "
                "use data=text data.path=..."
            )

    def documents(self, split: Split) -> Iterator[str]:
        if not self.has(split):
            raise no_split(split)
        empty = True
        for path in sorted(self._paths()):  # folders are listed in any order
            if self._split_of(path) != split:
                continue
            try:
                text = (self.root / path).read_bytes().decode()
            except UnicodeDecodeError:  # a few files declare another encoding
                continue
            empty = False
            yield text
        if empty:
            raise UserError(f"data=python_stdlib: no file falls into {split}; raise data.{split}_fraction")

    def has(self, split: Split) -> bool:
        return split == "train" or self.fractions[split] > 0

    def describe(self) -> dict[str, Any]:
        return {
            "source": "python_stdlib",
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "files": dict(Counter(map(self._split_of, self._paths()))),
        }

    def _paths(self) -> Iterator[str]:
        """Yield paths below the root with `/` between their parts; skipped folders are never entered."""
        for folder, folders, files in os.walk(self.root):
            folders[:] = [
                name for name in folders if name not in NOT_LIBRARY | TABLES
            ]  # in place, so that `walk` skips the others
            below = Path(folder).relative_to(self.root)
            for file in files:
                if file.endswith(".py") and not file.startswith(BUILD_FLAGS):
                    yield (below / file).as_posix()

    def _split_of(self, path: str) -> Split:
        place = int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest()) / 2**64  # in [0, 1)
        if place < self.fractions["validation"]:
            return "validation"
        return "test" if place < self.fractions["validation"] + self.fractions["test"] else "train"
