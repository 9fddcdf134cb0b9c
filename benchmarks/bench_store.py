"""Measure token stores: `python -m benchmarks.bench_store TEXT`.

It times `prepare` beside one core of the library, its memory, and the start of a training.

The text is repeated, each line with a number of its own, up to the size that is asked for. `prepare` and a bare loop
over the library's `encode_batch_fast` on one core alternate; ratios are taken pair by pair, of wall time, and of
processor time, which other work on the machine does not lengthen as much.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqtrain.data.token_store.index import TOKENIZER, documents_name, dtype_of, open_store, shard_name, write_index
from seqtrain.data.tokenizers.encoding import AT_A_TIME, SEGMENT, segments
from seqtrain.data.tokenizers.foreign import load_tokenizer
from seqtrain.data.tokenizers.recipes import BPE
from seqtrain.files.checked import file_hash

SEQTRAIN = (sys.executable, "-m", "seqtrain")
SAMPLE_CHARACTERS = 1 << 24  # of the text, that the tokenizer is made from
SHARD_TOKENS = 1 << 26
SECONDS_BETWEEN_LOOKS = 0.1  # at the memory of the processes


@dataclass
class Cost:
    """What a command took."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int  # the most that it and its children held at once, pages that they share counted for each

    def words(self) -> str:
        return f"{self.seconds:.1f} s, {self.cpu_seconds:.1f} s of processors, peak {self.peak_bytes >> 20} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument(
        "--tokens", type=float, nargs="*", default=[15e6, 1.5e9], help="of stores that training starts on"
    )
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "text.txt"
        repeat(options.text, text, options.megabytes * 10**6)
        with open(text) as file:
            BPE(size=8192).train([file.read(SAMPLE_CHARACTERS)]).save(folder / TOKENIZER)
        if options.pairs:
            compare(folder, text, options.pairs)
        for tokens in options.tokens:
            start(folder, int(tokens))


def compare(folder: Path, text: Path, pairs: int) -> None:
    """Prints how `prepare` compares with one core of the library, pair by pair."""
    ratios, cpu_ratios, best_ratios, peaks = [], [], [], []
    for _ in range(pairs):
        alone = encode_alone(text, folder / TOKENIZER, SEGMENT)
        best = encode_alone(text, folder / TOKENIZER, AT_A_TIME)
        store = folder / "store"
        words = ("prepare", "data=text", f"data.path={text}", "data.split_by=position", "data.validation_fraction=0.01")
        cost = watched(*words, "--tokenizer", str(folder / TOKENIZER), "--store", str(store))
        num_tokens = sum(len(corpus.tokens) for corpus in open_store(store).splits.values())
        shutil.rmtree(store)
        rate, cpu_rate = num_tokens / cost.seconds, num_tokens / cost.cpu_seconds
        print(f"prepare: {rate:,.0f} tokens/s, the whole command; {cost.words()}; one core: {alone[0]:,.0f} tokens/s")
        print(f"one core, in parts of {AT_A_TIME:,} characters: {best[0]:,.0f} tokens/s")
        best_ratios.append(rate / best[0])
        ratios.append(rate / alone[0])
        cpu_ratios.append(cpu_rate / alone[1])
        peaks.append(cost.peak_bytes)
    print(f"prepare / one core: {spread(ratios)}; tokens by second of a processor: {spread(cpu_ratios)}")
    print(f"prepare / one core, in parts of {AT_A_TIME:,} characters: {spread(best_ratios)}")
    print(f"peak of all processes: {max(peaks) >> 20} MiB")


def spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def encode_alone(text: Path, tokenizer: Path, size: int) -> tuple[float, float]:
    """Tokens a second, and a second of the processor, of the library alone in a process of one thread.

    Args:
        text: The file.
        tokenizer: The file.
        size: Characters of each text that it is given; a megabyte in each call.
    """
    child = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        from tokenizers import Tokenizer as Backend

        backend = Backend.from_file(str(tokenizer))
        texts = list(segments(text.read_text(), size))
        together = (1 << 20) // size
        begin, begin_cpu, count = time.perf_counter(), time.process_time(), 0
        for first in range(0, len(texts), together):
            for encoding in backend.encode_batch_fast(texts[first : first + together]):
                count += len(encoding.ids)
        rates = count / (time.perf_counter() - begin), count / (time.process_time() - begin_cpu)
        os.write(child[1], " ".join(map(str, rates)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    first, second = os.read(child[0], 100).split()
    return float(first), float(second)


def start(folder: Path, num_tokens: int) -> None:
    """Prints how long a training takes from its command to its first step on a store of so many tokens."""
    store = folder / f"store of {num_tokens}"
    write_random(store, num_tokens, folder / TOKENIZER)
    options = ("tbptt.k2=1024", "data.batch_size=4", "model=gpt", "model.dim=32", "model.num_layers=1")
    for carry in ("tbptt=windows", "tbptt=carry"):
        run = folder / f"{store.name} {carry}"
        words = (*options, carry, "logger=none", "callbacks=none", "trainer.max_steps=100000", "trainer.log_every=1")
        cost = watched("train", "data=tokens", f"data.path='{store}'", *words, f"run_dir='{run}'", until=run)
        print(f"{num_tokens:,} tokens, {carry}: first step after {cost.words()}")
    shutil.rmtree(store)


def watched(*words: str, until: Path | None = None) -> Cost:
    """Runs a command of seqtrain to its end, or until the run that it trains has recorded a step."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin, peak = time.perf_counter(), 0
    process = subprocess.Popen((*SEQTRAIN, *words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, sum(map(resident_bytes, family(process.pid))))
        if until is not None and (until / "metrics.jsonl").exists() and (until / "metrics.jsonl").read_text():
            process.kill()
        time.sleep(SECONDS_BETWEEN_LOOKS)
    assert until is not None or process.returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(time.perf_counter() - begin, cpu_seconds, peak)


def family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in path.read_text().split():
                found += family(int(child))
        except OSError:  # it has ended meanwhile
            continue
    return found


def resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def repeat(source: Path, target: Path, size: int) -> None:
    """Writes the lines of a text over and over, each with a number, up to so many bytes."""
    lines = source.read_text().splitlines(keepends=True)
    written = turn = 0
    with open(target, "w") as file:
        while written < size:
            for number, line in enumerate(lines):
                written += file.write(f"{turn}.{number} {line}" if line.strip() else line)
                if written >= size:
                    return
            turn += 1


def write_random(store: Path, num_tokens: int, tokenizer_path: Path) -> None:
    """A store of random tokens: one shard's bytes, under as many names as are needed."""
    store.mkdir()
    tokenizer = load_tokenizer(tokenizer_path)
    tokenizer.save(store / TOKENIZER)
    dtype = dtype_of(tokenizer.vocab_size)
    rng = np.random.default_rng(0)
    splits = {}
    number = 0
    for split, total in (("train", num_tokens), ("validation", 1 << 16)):
        shards = []
        for begin in range(0, total, SHARD_TOKENS):
            count = min(SHARD_TOKENS, total - begin)
            path = store / shard_name(number)
            rng.integers(0, tokenizer.vocab_size, count, dtype=np.uint16).astype(dtype).tofile(path)
            shards.append({"file": path.name, "tokens": count, "bytes": path.stat().st_size, "sha256": file_hash(path)})
            number += 1
        documents = store / documents_name(split)
        np.append(np.arange(0, total, 700), total).astype("<i8").tofile(documents)
        entry = {"tokens": total, "documents": documents.stat().st_size // 8 - 1, "bytes": 4 * total, "words": 0}
        about = {"file": documents.name, "bytes": documents.stat().st_size, "sha256": file_hash(documents)}
        splits[split] = {**entry, "unknown": 0, "documents_file": about, "shards": shards}
    tokenizer_entry = {"file": TOKENIZER, "hash": tokenizer.hash, "vocab_size": tokenizer.vocab_size}
    write_index(store, {"format": 1, "dtype": dtype, "tokenizer": tokenizer_entry, "splits": splits})


if __name__ == "__main__":
    main()
