"""Runs of an experiment with several trainings. Each is trained once; later calls take it from its folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from seqtrain.analysis.demo import Train
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.files.atomic import write_text
from seqtrain.terminal import pasted


def trainer(folder: Path, *fixed: str) -> Train:
    """Return a function that trains runs below a folder, or takes or resumes those of an earlier call.

    Args:
        folder: Holds one directory for each run.
        fixed: Overrides of every run.
    """

    def train(name: str, *own: str) -> Path:
        from seqtrain.runs.directory import CONFIG, Run

        overrides = (*own, *fixed)
        path = folder / name
        words = [*overrides, f"run_dir={path}", "logger=none"]
        # Kept beside the run: its summary knows the newest command alone, which of a killed one is a resume.
        asked = folder / f"{name}.overrides.json"
        # A call that was killed at once leaves an empty folder, which `train` takes; what else there is, it refuses.
        if not (path / CONFIG).exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_text(asked, json.dumps(overrides) + "\n")
            say(f"trains: {pasted('seqtrain', 'train', *words)}")
            _start(words)
            return path
        if _read(asked) != list(overrides):
            raise UserError(f"{path}: other options made this run; remove it, or give another --out")
        if Run.open(path).summary.status != "finished":
            _resume(path)
        return path

    return train


def _start(words: Sequence[str]) -> None:
    from seqtrain.config import check
    from seqtrain.experiment.start import Request, start

    composed = check.compose(list(words), ())
    start(composed, Request(list(words), (), ("seqtrain", "train", *words)))


def _resume(path: Path) -> None:
    from seqtrain.experiment.resume import resume

    say(f"resumes: {path}")
    resume(str(path), [], ("seqtrain", "resume", str(path)))


def _read(file: Path) -> object:
    """Return the content of a JSON file, or None if it is missing or not JSON."""
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
