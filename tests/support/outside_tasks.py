"""Two tasks as a user would write them, one file and one YAML each (support/outside), and tiny data for them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

HERE = Path(__file__).with_name("outside")
WORDS = {
    "D": ("the", "a"),
    "A": ("old", "red", "big"),
    "N": ("dog", "cat", "man", "run"),
    "V": ("sees", "likes", "run"),
}
PATTERNS = ("DNVDN", "DANVDN", "DNVDAN")
OPTIONS = (
    *("--config-dir", "configs", "--trust", "my_tasks", "model.dim=16"),
    *("data.max_length=32", "data.batch_tokens=256", "logger=none"),
    *("trainer.accelerator=cpu", "trainer.threads=1", "trainer.max_steps=40", "trainer.validate_every=20"),
)


def files(folder: Path) -> Path:
    """Copies the package and its configs, and writes tags.tsv and numbers.tsv beside them; gives the folder."""
    for name in ("my_tasks", "configs"):
        shutil.copytree(HERE / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    draw = random.Random(0)
    tags, numbers = ["text\tlabel"], ["text\tlabel"]
    for _ in range(300):
        labels = draw.choice(PATTERNS)
        text = " ".join(draw.choice(WORDS[label]) for label in labels)
        tags.append(f"{text}\t{' '.join(labels)}")
        numbers.append(f"{text}\t{text.count('big') - text.count('cat') + 0.1 * len(labels):.2f}")
    (folder / "tags.tsv").write_text("\n".join(tags) + "\n")
    (folder / "numbers.tsv").write_text("\n".join(numbers) + "\n")
    return folder


def options(task: str) -> tuple[str, ...]:
    """What follows `seqtrain train`, in the folder that `files` made."""
    return (*OPTIONS, f"task=my_{task}", f"data.path={'tags' if task == 'tag' else 'numbers'}.tsv")
