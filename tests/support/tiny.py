"""A tiny text, the options of a tiny run on it, and what two equal runs must share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqtrain.distributed.fork_server import Child
from seqtrain.runs import resume_check
from seqtrain.runs.resume_check import differing as difference
from seqtrain.runs.resume_check import final_state, newest_step, records

__all__ = ["assert_twins", "corpus", "difference", "final_state", "newest_step", "records", "wait_until"]

PATIENCE = 60.0  # seconds that a test waits for something to happen

OPTIONS = (
    "data=text",
    "data.path=corpus.txt",
    "data.split_by=position",
    "data.test_fraction=0.05",
    "tokenizer=char",
    "tbptt.k2=8",
    "data.batch_size=4",
    "data.eval_lanes=4",
    "model.dim=16",
    "logger=none",
    "callbacks=none",
    "trainer.log_every=1",
)
GPT = ("model=gpt", "model.num_layers=2", "model.num_heads=2")


def corpus(folder: Path, *, lines: int = 600) -> Path:
    """Writes corpus.txt, a text that a model can learn something of, into the folder; gives the folder."""
    text = "".join(f"line {line} of {line * line % 97} is {'abc'[line % 3] * (line % 7)}\n" for line in range(lines))
    (folder / "corpus.txt").write_text(text)
    return folder


def wait_until(reached: Callable[[], Any], child: Child, what: str) -> None:
    """Returns once `reached()` is true; AssertionError if the command ends before."""
    limit = time.monotonic() + PATIENCE
    while not reached():
        assert child.poll() is None, f"ended with {child.poll()} before {what}: {child.stderr}"
        assert time.monotonic() < limit, f"waited {PATIENCE} s for {what}"
        time.sleep(0.0005)


def assert_twins(one: Path, other: Path) -> None:
    """Two runs end with the same bits: weights, optimizer, callbacks, carried state, every logged number, result."""
    found = resume_check.difference(one, other)
    assert found is None, found
