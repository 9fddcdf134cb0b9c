"""Measure what the size of a token store costs a training: `python -m benchmarks.large_store`.

It takes some minutes, and 2 GB of disk at a time.

For 2e7, 1e8 and 1e9 random tokens (with fewer, xz is run as a baseline too): from the command to the first step, at the
first start, which counts the baselines, and at the second, which has them; the most memory that is the process's own
(anonymous), and that it is said to hold with what it has mapped of the store; and the time of a step.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench_store import SEQTRAIN, family, write_random
from seqtrain.data.token_store.index import TOKENIZER
from seqtrain.data.tokenizers.recipes import BPE

OPTIONS = (
    *("data=tokens", "model=lstm", "model.dim=32", "model.num_layers=1", "data.batch_size=8", "tbptt.k2=64"),
    *("trainer.threads=1", "trainer.log_every=1", "trainer.precision=32-true", "logger=none", "callbacks=none"),
)
SECONDS_BETWEEN_LOOKS = 0.05  # at the memory of the processes
WARMUP = 20  # steps whose time is not counted


@dataclass
class Watched:
    """What a training took."""

    first_step: float  # seconds from the command on
    cpu_seconds: float  # of all processors, to the end
    own_mib: float  # anonymous memory at most
    held_mib: float  # with pages of files
    half_way_mib: float  # anonymous memory, half of the steps done
    step_ms: float  # median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=float, nargs="*", default=[2e7, 1e8, 1e9])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--options", nargs="*", default=[], help="of `seqtrain train`, beside those of this program")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("| tokens | start | first step after | CPU, all | own memory | with files | own, half way | a step |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SEQTRAIN_CACHE"] = str(folder / "cache")
        letters = "".join(map(chr, range(0x4E00, 0x6E00)))  # 8,192 different ones
        BPE(size=8192).train([letters]).save(folder / TOKENIZER)
        for tokens in map(int, options.tokens):
            store = folder / f"store-{tokens}"
            write_random(store, tokens, folder / TOKENIZER)
            for start in ("first", "second"):
                words = (*OPTIONS, f"trainer.max_steps={options.steps}", *options.options)
                found = watched(store, folder / f"run-{tokens}-{start}", options.steps, words)
                print(
                    f"| {tokens:.0e} | {start} | {found.first_step:.1f} s | {found.cpu_seconds:.1f} s "
                    f"| {found.own_mib:.0f} MiB | {found.held_mib:.0f} MiB | {found.half_way_mib:.0f} MiB "
                    f"| {found.step_ms:.2f} ms |",
                    flush=True,
                )
            shutil.rmtree(store)


def watched(store: Path, run: Path, steps: int, words: tuple[str, ...]) -> Watched:
    """Trains on a store, and looks at its memory all the time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin, record, lines = time.perf_counter(), run / "metrics.jsonl", 0
    first_step = own = held = half_way = 0.0
    command = (*SEQTRAIN, "train", f"data.path={store}", f"run_dir={run}", *words)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        now_own, now_held = memory(process.pid)
        own, held = max(own, now_own), max(held, now_held)
        lines = len(record.read_text().splitlines()) if record.exists() else 0
        if lines and not first_step:
            first_step = time.perf_counter() - begin
        if lines and lines <= steps // 2:
            half_way = now_own
        time.sleep(SECONDS_BETWEEN_LOOKS)
    if process.returncode:
        raise SystemExit(f"error: exit status {process.returncode}: {' '.join(command)}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Watched(first_step, cpu_seconds, own, held, half_way, step_ms(record, words))


def memory(pid: int) -> tuple[float, float]:
    """MiB that a process and all below it hold: of their own, and with pages of files."""
    own = held = 0
    for member in family(pid):
        try:
            text = Path(f"/proc/{member}/status").read_text()
        except OSError:  # it has ended meanwhile
            continue
        for line in text.splitlines():
            if line.startswith("RssAnon:"):
                own += int(line.split()[1])
            if line.startswith("VmRSS:"):
                held += int(line.split()[1])
    return own / 1024, held / 1024


def step_ms(record: Path, words: tuple[str, ...]) -> float:
    """The median time of a step, from the tokens a second of each."""
    sizes = dict(word.split("=", 1) for word in words)
    tokens = int(sizes["data.batch_size"]) * int(sizes["tbptt.k2"])
    speeds = [json.loads(line).get("tokens_per_second") for line in record.read_text().splitlines()]
    known = [speed for speed in speeds if speed]
    return statistics.median(1000 * tokens / speed for speed in known[WARMUP:])


if __name__ == "__main__":
    main()
