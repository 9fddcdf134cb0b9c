"""What a large vocabulary costs: `python -m benchmarks.large_vocabulary`, one thread, ten minutes.

First the peak memory of `seqtrain train` with 1,000 and with 50,000 words. Then the loss and its gradients alone, in
alternation: made of all logits at once, block by block as tasks make them, and by torch's `linear_cross_entropy` in
chunks of 256.
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

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqtrain.tasks.output import Output

ROWS, DIM = 2048, 256
SIZES = (1_000, 8_000, 50_000)
TRAIN = (
    "model=gpt model.dim=256 model.num_layers=4 data=text tokenizer=word tokenizer.min_count=1 data.split_by=position "
    "data.batch_size=32 tbptt.k2=64 trainer.max_steps=8 trainer.precision=32-true logger=none callbacks=none"
)

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def at_once(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight), targets, reduction="sum")


def in_blocks(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return Output(hidden, weight, None, len(weight)).loss(targets)


def by_torch(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    options = torch.nn.LinearCrossEntropyOptions(chunking_method=None, batch_chunk_size=256)  # type: ignore[attr-defined]
    return F.linear_cross_entropy(hidden, weight, targets, reduction="sum", options=options)  # type: ignore[attr-defined]


WAYS: dict[str, Loss] = {"all at once": at_once, "in blocks": in_blocks, "linear_cross_entropy": by_torch}


def seconds(way: Loss, hidden: Tensor, weight: Tensor, targets: Tensor, bf16: bool) -> float:
    """Of a loss and its gradients."""
    hidden.grad = weight.grad = None
    begin = time.perf_counter()
    with torch.autocast("cpu", enabled=bf16):
        loss = way(hidden, weight, targets)
    (loss / len(targets)).backward()
    return time.perf_counter() - begin


def compare_losses(rounds: int) -> None:
    """Prints the median time of each way, and how it stands beside the first."""
    for size in SIZES:
        for bf16 in (False, True):
            torch.manual_seed(0)
            hidden = torch.randn(ROWS, DIM, requires_grad=True)
            weight = (torch.randn(size, DIM) * DIM**-0.5).requires_grad_()
            targets = torch.randint(size, (ROWS,))
            times: dict[str, list[float]] = {name: [] for name in WAYS}
            for _ in range(rounds + 1):  # the first is not counted
                for name, way in WAYS.items():
                    times[name].append(seconds(way, hidden, weight, targets, bf16))
            words = [f"V {size:,} {'bf16' if bf16 else 'float32'}:"]
            for name, found in times.items():
                pairs = zip(found[1:], times["all at once"][1:], strict=True)
                ratio = statistics.median(one / other for one, other in pairs)
                words.append(f"{name} {statistics.median(found[1:]) * 1e3:.1f} ms ({ratio:.2f})")
            print(*words, sep="  ", flush=True)


def peak(size: int, folder: Path) -> float:
    """MiB that a training with `size` different words takes at most."""
    draw = np.random.default_rng(0)
    shares = np.arange(1, size + 1) ** -0.9  # about as often as words of a text
    ids = np.concatenate([np.arange(size), draw.choice(size, size=400_000, p=shares / shares.sum())])
    text = folder / f"{size}.txt"
    lines = [" ".join(f"w{number}" for number in line) for line in np.array_split(ids, len(ids) // 20)]
    text.write_text("\n".join(lines))
    command = [sys.executable, "-m", "seqtrain", "train", *TRAIN.split(), f"data.path={text}"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"error: exit status {status}: {' '.join(command)}")
    return used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # First, while this process is small: a process begins with the peak of the one that started it.
    with tempfile.TemporaryDirectory() as folder:
        for size in (SIZES[0], SIZES[-1]):
            print(f"{size:,} words: peak {peak(size, Path(folder)):.0f} MiB", flush=True)
    compare_losses(options.rounds)


if __name__ == "__main__":
    main()
