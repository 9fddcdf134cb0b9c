"""How fast seqtrain trains beside others: same batches, same sizes, one process a side, in turns.

Both processes live all the time. The one whose turn it is not waits on a pipe, so it takes nothing from the other.
Ratios are taken pair by pair: seconds of the peer by ours, so that above 1 we are ahead.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch

from benchmarks.peers.cases import CASES, Case, given
from seqtrain.errors import RunFailed, UserError

AHEAD = 4  # more batches than steps: trainers may ask for some ahead of time
HEAD = (
    "| case | precision: seqtrain, peer | numbers trained | seqtrain, ms a step | peer | ratio, median (range) | "
    "of processor time |\n|---|---|---|---|---|---|---|"
)
MAX_ERROR_LINES = 5
REPOSITORY = Path(__file__).parents[2]


@dataclass
class Side:
    """A process that trains when it is told to."""

    name: str
    process: subprocess.Popen[str]
    log: Path  # its standard error
    about: dict[str, Any] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)  # milliseconds a step, turn by turn
    cpu_times: list[float] = field(default_factory=list)  # of a processor

    @classmethod
    def start(cls, name: str, python: str, module: str, arguments: list[str], folder: Path) -> Side:
        """Starts `python -m benchmarks.peers.MODULE ARGUMENTS` with one thread."""
        log = folder / f"{name.replace(' ', '_')}.log"
        # What is measured is one core, and nothing may be fetched.
        place = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        place["PYTHONPATH"] = str(REPOSITORY)  # a peer's environment has not installed it
        command = [python, "-m", f"benchmarks.peers.{module}", *arguments]
        pipe = subprocess.PIPE
        with log.open("w") as errors:
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, env=place, text=True)
        return cls(name, process, log)

    def read(self) -> dict[str, Any]:
        """What it says next; raises RunFailed with its last words where it has died."""
        line = _pipe(self.process.stdout).readline()
        if not line:
            words = self.log.read_text().strip().splitlines()[-MAX_ERROR_LINES:]
            raise RunFailed(f"{self.name} ended: " + " / ".join(words))
        return json.loads(line)

    def turn(self, steps: int, *, counts: bool = True) -> None:
        """Does so many steps, and notes their times, if this turn counts."""
        pipe = _pipe(self.process.stdin)
        pipe.write(f"{steps}\n")
        pipe.flush()
        said = self.read()
        if not said.get("trained", True):  # our own side stops by itself at a loss that is no number
            raise RunFailed(f"{self.name}: after a turn its weights are no numbers, or those from before it")
        if counts:
            self.times.append(said["seconds"] / steps * 1e3)
            self.cpu_times.append(said["cpu_seconds"] / steps * 1e3)

    def end(self) -> None:
        """Ends the process, and waits until it is gone."""
        self.process.kill()
        self.process.communicate()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def rows(name: str, *, precisions: list[str], repeats: int) -> Iterator[str]:
    """The lines of the table of one peer."""
    case = CASES[name]
    python = Path(case.environment) / "bin" / "python"
    if case.environment == ".venv-peers":
        python = Path(sys.executable)  # that of this program: it has what these peers need
    if not python.exists():
        raise UserError(f"--peer {name}: {python} is not there; make {case.environment}/ready")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        torch.save(given(case, folder, steps=case.warm + case.steps * repeats + AHEAD), folder / "given.pt")
        for precision in precisions:
            yield row(name, case, str(python), folder, precision, repeats)


def row(name: str, case: Case, python: str, folder: Path, precision: str, repeats: int) -> str:
    """A line of the table: medians of both sides, and of their ratios, with the range."""
    ours_precision = {"float32": "32-true", "bf16": "bf16-mixed"}.get(precision, precision)
    own_folder = folder / precision
    own_folder.mkdir()
    theirs_given = [str(folder / "given.pt"), precision, *case.arguments]
    ours = theirs = None
    try:
        ours = Side.start("seqtrain", sys.executable, "ours", [name, str(own_folder), ours_precision], own_folder)
        ours.about = ours.read()
        # One after the other: two that start at once are slow, and a fault of the first is told by itself.
        theirs = Side.start(name, python, case.module, theirs_given, own_folder)
        theirs.about = theirs.read()
        alternate(ours, theirs, warm=case.warm, steps=case.steps, repeats=repeats)
    finally:
        for side in filter(None, (ours, theirs)):
            side.end()
    return line(case, ours, theirs, precision)


def alternate(ours: Side, theirs: Side, *, warm: int, steps: int, repeats: int) -> None:
    """Takes the times of both in turn, behind `warm` steps of each; who begins changes from pair to pair."""
    for side in (ours, theirs):
        side.turn(warm, counts=False)
    for pair in range(repeats):
        order = (ours, theirs) if pair % 2 == 0 else (theirs, ours)
        for side in order:
            side.turn(steps)


def line(case: Case, ours: Side, theirs: Side, precision: str) -> str:
    """The times of two sides as a line of the table."""
    version = theirs.about.get("version")
    title = case.title if version is None else f"{case.title} {version}"
    their_precision = "float32" if precision == "float32" else "bf16 autocast"
    computed = ours.about["precision"]
    if precision == "auto":
        computed = f"auto ({computed})"
    numbers = f"{ours.about['parameters']:,}, {theirs.about['parameters']:,}"
    own, peer = statistics.median(ours.times), statistics.median(theirs.times)
    ratios = f"{paired(ours.times, theirs.times)} | {paired(ours.cpu_times, theirs.cpu_times)}"
    return f"| {title} | {computed}, {their_precision} | {numbers} | {own:.1f} | {peer:.1f} | {ratios} |"


def paired(ours: list[float], theirs: list[float]) -> str:
    """The median of the ratios of pairs, and their range; above 1 we take less."""
    ratios = [peer / own for own, peer in zip(ours, theirs, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
