"""What plans cost at any size: `python -m benchmarks.plan_scale`, one process, 8 GB of disk, some minutes.

A file says where a thousand million documents end, as a token store does. Examples of it are laid out once, and a
second process, as a resume or another rank, takes the rest from the cache. Then a stream of 10^12 tokens, carried and
in shuffled windows. Each in a process of its own, whose peak of resident memory is that of the plan and of Python.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from seqtrain.data.batching.documents import Stretches
from seqtrain.data.batching.example_plan import ExamplePlan, StretchLengths
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.token_store.tokens import mapped_offsets

MAX_LENGTH = 256  # tokens of an example, its two special ones among them
BATCH_TOKENS = 16_384
WRITTEN = 1 << 22  # documents at a time
LANES = 64
STEPS = 3000  # that are timed, from each place


def write_documents(path: Path, count: int) -> None:
    """Documents of 5 to 250 tokens, so that each is one example."""
    rng = np.random.default_rng(0)
    with open(path, "wb") as file:
        end = np.zeros(1, dtype="<i8")
        file.write(end.tobytes())
        for begin in range(0, count, WRITTEN):
            lengths = rng.integers(5, 251, min(WRITTEN, count - begin), dtype=np.int64)
            ends = end + lengths.cumsum()
            file.write(ends.astype("<i8").tobytes())
            end = ends[-1:]


def examples(path: Path) -> ExamplePlan:
    lengths = StretchLengths(Stretches(mapped_offsets(path), MAX_LENGTH - 2), 2)
    return ExamplePlan(lengths=lengths, batch_tokens=BATCH_TOKENS, batch_size=None, seed=1, shuffle=True)


def stream(num_tokens: int, carry: bool) -> StreamPlan:
    tbptt = TBPTT(k1=1024, k2=1024, carry=carry, reset="never")
    documents = np.array([0, num_tokens])
    return StreamPlan(documents=documents, lanes=LANES, tbptt=tbptt, seed=1, shuffle=True)


class Clock:
    """Milliseconds since it was made, by the wall and of the processor, which other work lengthens less."""

    def __init__(self) -> None:
        self.begin = time.perf_counter(), time.process_time()

    @property
    def wall(self) -> float:
        return 1e3 * (time.perf_counter() - self.begin[0])

    @property
    def cpu(self) -> float:
        return 1e3 * (time.process_time() - self.begin[1])

    def __str__(self) -> str:
        return f"{self.wall:.2f} ms ({self.cpu:.2f} of a processor)"


def watch(name: str, make: Callable[[], Any]) -> None:
    """Makes a plan; prints what it, a resume from several places and the steps after each cost, and the peak."""
    clock = Clock()
    plan = make()
    print(f"{name}: {plan.steps:,} steps of {plan.num_tokens:,} tokens, made in {clock}", flush=True)
    for place in (0, plan.steps // 3, plan.steps - STEPS, 7 * plan.steps + plan.steps // 2):
        clock = Clock()
        plan.chunk(*divmod(place, plan.steps))
        resumed = str(clock)
        clock = Clock()
        plan.tokens_before(place)
        counted = clock.wall
        times, clock = [], Clock()
        for step in range(place + 1, place + STEPS):
            begin = time.perf_counter()
            plan.chunk(*divmod(step, plan.steps))
            times.append(1e3 * (time.perf_counter() - begin))
        mean = f"{statistics.fmean(times):.4f} ({clock.cpu / len(times):.4f} of a processor)"
        print(f"  resume at step {place:,}: first chunk after {resumed}, tokens before it after {counted:.2f} ms")
        print(f"    a step: median {statistics.median(times):.4f} ms, mean {mean}, most {max(times):.1f}", flush=True)
    turns(plan)
    print(f"  peak {peak_bytes() >> 20} MiB resident", flush=True)


def turns(plan: Any) -> None:
    """Prints what the first step of a window costs, each of another one; of a stream the first step of an epoch."""
    times, cpu_times = [], []
    for number in range(9):
        epoch, step = 9 + number, 0
        if isinstance(plan, ExamplePlan):
            step = plan.steps * (number + 1) // 10
        clock = Clock()
        plan.chunk(epoch, step)
        times.append(clock.wall)
        cpu_times.append(clock.cpu)
    print(f"  the turn of a window and an epoch: {spread(times)} ms; of a processor {spread(cpu_times)}")


def spread(times: list[float]) -> str:
    return f"median {statistics.median(times):.1f} ({min(times):.1f} to {max(times):.1f})"


def peak_bytes() -> int:
    """Of resident memory, mapped files among it; of this process alone, not of the one that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--examples", type=float, default=1e9)
    parser.add_argument("--tokens", type=float, default=1e12)
    parser.add_argument(
        "--folder", type=Path, help="where the file of documents is written; by default a temporary one"
    )
    parser.add_argument("--documents", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is None:
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; Python alone: peak {peak_bytes() >> 20} MiB")
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            for case in ("examples", "examples again", "carried stream", "stream of windows"):
                run(case, options, Path(folder))
    elif options.case.startswith("examples"):
        watch(options.case, lambda: examples(options.documents))
    else:
        watch(options.case, lambda: stream(int(options.tokens), options.case == "carried stream"))


def run(case: str, options: argparse.Namespace, folder: Path) -> None:
    """Runs a case in a process of its own."""
    documents = folder / "documents.bin"
    if not documents.exists():
        write_documents(documents, int(options.examples))
    words = ("--case", case, "--documents", str(documents), "--tokens", str(options.tokens))
    environment = {**os.environ, "SEQTRAIN_CACHE": str(folder / "cache")}
    subprocess.run([sys.executable, "-m", "benchmarks.plan_scale", *words], env=environment, check=True)


if __name__ == "__main__":
    main()
