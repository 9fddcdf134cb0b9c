"""Commands of docs/ are typed as they stand, page by page, in order, in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Seqtrain
from tests.test_docs import CURRENT, EXAMPLES, lines, refused_on_purpose

PAGES = [page for page in CURRENT if page.name not in EXAMPLES]
TYPED = ("architecture.md", "gpu.md", "stores.md")
"""Pages that a test types; the others take more minutes than `make test-long` has (docs/guarantees.md)."""
SHELL = re.compile(r"(seqtrain|python) ")
"""How a line begins that is typed; others are outputs, listings and tools of others."""

# What is not typed, by a part of it, and why.
UNTYPED = {
    "experiment=": "reads a published data set that is not shipped; tests/test_results.py",
    "wikitext2": "needs the network",
    "ETTh1.csv": "a published file that is not shipped",
    "data/openwebtext": "tokens of another program",
    "data.path=tokenized": "tokens of another program",
    "test_2016_flickr": "a published data set that is not shipped",
    "data.path=input.txt": "a published text that is not shipped",
    "clean/*.jsonl": "the output of datatrove; tests/data/test_cleaning.py",
    "my_package": "a package of the reader; CONTRIBUTING.md, tests/test_playbooks.py",
    "launcher=slurm": "needs SLURM; tests/slurm",
    "trainer=ddp": "takes every GPU of the machine; tests/gpu",
    "trainer=fsdp": "takes every GPU of the machine; tests/gpu",
    "seqtrain serve": "does not end; tests/compare",
    "examples/lecture/": "minutes of training: benchmarks/lecture.py types it",
    "seqtrain scale": "minutes of training: benchmarks/lecture.py types it",
    "RUN": "stands for any run; the blocks name theirs",
    "SWEEP": "stands for any sweep",
    "...": "leaves words out",
}
REFUSED = {"is finished: extend it": "nothing killed the run of the page"}
"""Errors that answer a command as it stands, and why they are right here."""

CAPPED = re.compile(r"(trainer\.(max_steps|validate_every)|hydra\.sweeper\.n_trials)=")
CAP = ("trainer.max_steps=4", "trainer.validate_every=4", "trainer.threads=1", "logger=none")
SEARCH = ("hydra.sweeper.n_trials=2", "hydra.sweeper.sampler.n_startup_trials=1")
SHORTER = {
    "profile": ("--lengths", "64,128,256", "--dims", "64,96,128", "--repeats", "1"),
    "verify-resume": ("trainer.max_steps=12", "trainer.validate_every=6"),
    "memory": ("--targets", "500"),
}


def typed(line: str) -> bool:
    """Return whether the line is a command that is typed: not a command's bare name, nor what UNTYPED has."""
    bare = len(shlex.split(line, comments=True)) < 3 and line.strip() not in WHOLE if SHELL.match(line) else True
    return not bare and not any(part in shlex.join(shlex.split(line, comments=True)) for part in UNTYPED)


WHOLE = ("seqtrain train", "seqtrain matrix")  # commands of two words that mean themselves


def shortened(words: list[str]) -> list[str]:
    """Return the words of a command with the training, or the measurement, cut short."""
    if words[0] not in ("train", "resume") or {"--cfg", "--info"} & {*words}:
        return [*words, *SHORTER.get(words[0], ())]
    if words[0] == "resume":  # takes what it finds, but for more steps
        return [
            re.sub(r"(max_steps|n_trials)=.*", lambda word: f"{word[1]}={6 if 'steps' in word[0] else 3}", word)
            for word in words
        ]
    kept = [word for word in words if not CAPPED.match(word)]
    search = any(word.startswith("sweep=") for word in words)
    narrow = ("model.dim=32",) if "model=gpt" in kept else ()  # whole validation splits are read
    return [*kept, *CAP, *narrow, *(SEARCH if search else ())]


@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if page.name in TYPED], ids=lambda page: page.name)
def test_every_command_of_a_page_can_be_typed(page: Path, seqtrain: Seqtrain, tmp_path: Path) -> None:
    failed = []
    for line in filter(typed, lines(page)):
        words = shlex.split(line, comments=True)
        if words[0] == "seqtrain" and "|" not in words:
            answer = seqtrain(*shortened(words[1:]), cwd=tmp_path, timeout=900)
            code, error = answer.rc, answer.err
        else:
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            done = subprocess.run(
                ["bash", "-c", line], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
            )
            code, error = done.returncode, done.stderr
        right = 2 if refused_on_purpose(page, words) or any(part in error for part in REFUSED) else 0
        if code != right:
            failed.append(f"{line}: exit code {code}: {error[-400:]}")
    assert not failed, "\n".join(failed)


def test_what_is_not_typed_stands_on_a_page() -> None:
    text = "".join(line for page in PAGES for line in lines(page))
    assert [part for part in UNTYPED if part not in text] == []
