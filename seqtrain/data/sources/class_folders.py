"""A folder with a folder of texts for each label, as IMDB and 20 newsgroups are shipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from seqtrain.errors import UserError

# Names of folders that hold no class: splits of the whole, and unlabelled texts.
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "data.path"),
    **dict.fromkeys(("dev", "valid", "validation", "val"), "data.validation_path"),
    "test": "data.test_path",
}
UNLABELLED = ("unsup", "unlabeled", "unlabelled")
MAX_NAMED = 8  # labels in a line


def labelled_texts(key: str, home: Path, paths: Sequence[Path]) -> tuple[list[tuple[Path, str]], list[str]]:
    """Return the files of all classes with their labels, and a description of what was left out.

    Args:
        key: The option that names the folder.
        home: The folder.
        paths: The files below it, without hidden ones.

    Raises:
        UserError: The folders below it are not classes.
    """
    found: list[tuple[Path, str]] = []
    beside = 0
    unlabelled: Counter[str] = Counter()
    for path in paths:
        inner = path.relative_to(home).parts
        if len(inner) == 1:  # notes and lists, which are of no class
            beside += 1
        elif inner[0].lower() in UNLABELLED:
            unlabelled[inner[0]] += 1
        else:
            found.append((path, inner[0]))
    # The folders of a whole data set are splits, and would be learnt as classes.
    labels = {label for _, label in found}
    splits = sorted(label for label in labels if label.lower() in SPLIT_NAMES)
    if splits:
        raise UserError(
            f"{key}={home}: its folders {', '.join(splits)} are splits, not labels; type "
            + " ".join(f"{SPLIT_NAMES[name.lower()]}={home / name}" for name in reversed(splits))
        )
    if len(labels) < 2:
        raise UserError(
            f"{key}={home}: neither tables (jsonl, csv, tsv, parquet), nor a folder of texts for each label, of which "
            f"there must be two ({len(labels)} found)"
        )
    left_out = [f"{count:,} unlabelled texts in {name}" for name, count in unlabelled.items()]
    if beside:
        left_out.append(f"{beside:,} file{'s' * (beside != 1)} beside the folders")
    return found, left_out


def counted(files: Sequence[tuple[Path, str]]) -> str:
    """Return the number of texts of each label in words: `12,500 in neg, 12,500 in pos`."""
    counts = Counter(label for _, label in files)
    words = [f"{count:,} in {label}" for label, count in sorted(counts.items())]
    if len(words) > MAX_NAMED:
        words = [*words[:MAX_NAMED], f"{len(words) - MAX_NAMED} labels more"]
    return ", ".join(words)
