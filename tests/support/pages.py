"""Runs for pages: those of fake_runs.py with whole learning curves and samples; and what a page holds of them."""

from __future__ import annotations

import base64
import gzip
import json
import math
import random
import re
from pathlib import Path
from typing import Any

from seqtrain.runs.directory import METRICS
from tests.support import fake_runs

FLOORS = {"lstm": 1.62, "gru": 1.66, "gpt": 1.72, "rnn": 1.90}
SPEEDS = {"lstm": 36_000, "gru": 39_000, "gpt": 50_000, "rnn": 68_000}
SIZES = {"lstm": 1_969_536, "gru": 1_610_000, "gpt": 1_480_000, "rnn": 890_000}
SAMPLE = "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n"
TOKENS = 2048  # of a step
NATS = 1.53  # of a token per bit of a byte


def run(
    path: Path,
    *,
    model: str = "lstm",
    seed: int = 1,
    dim: int = 256,
    records: int = 100,
    validations: int = 20,
    config: dict[str, Any] | None = None,
    **summary: Any,
) -> Path:
    """A run of 10 steps a record; gives its path. `config` and `summary` change it as in `made.run`."""
    chance = random.Random(f"{model} {seed} {dim}")
    floor = FLOORS[model] + chance.gauss(0, 0.012) + 0.09 * abs(math.log2(dim / 256))
    lines = []
    for step in range(10, 10 * records + 1, 10):
        bits = floor + 4.2 / (1 + step / 22) ** 0.72
        at = {"step": step, "tokens": step * TOKENS, "seconds": round(step * TOKENS / SPEEDS[model], 3)}
        noisy = {f"train/{name}": value for name, value in measured(bits + chance.gauss(0, 0.04)).items()}
        rates = {"lr": 0.006 * (1 - step / 10 / records), "tokens_per_second": SPEEDS[model] * chance.uniform(0.9, 1.1)}
        lines.append({**at, **noisy, **rates, "gradient_norm": abs(chance.gauss(0.6, 0.2))})
        if step % (10 * max(records // validations, 1)) == 0 or step == 10 * records:
            last = measured(bits + chance.gauss(0, 0.004))
            lines.append({**at, **{f"validation/{name}": value for name, value in last.items()}})
    size = int(SIZES[model] * (dim / 256) ** 1.8)
    ends = {"steps": step, "tokens": at["tokens"], "seconds": at["seconds"], "flops": 6.0 * size * at["tokens"]}
    found = {
        "metrics": {"validation": last},
        "best": {"step": step, "validation": last},
        "parameters": {"total": size},
        "flops_per_token": 6.0 * size,
        "command": ["seqtrain", "train", f"model={model}", f"model.dim={dim}", f"seed={seed}"],
        "versions": {"python": "3.11.7", "torch": "2.13.0", "seqtrain": "0.1.0"},
        "cpu": "Intel(R) Xeon(R) Processor",
        "tokens_per_second": SPEEDS[model],
    }
    changes = {"model.dim": dim, **(config or {})}
    fake_runs.run(path, last["bits_per_byte"], model=model, seed=seed, config=changes, **(found | ends | summary))
    (path / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    sample(path, step, SAMPLE)
    return path


def sample(path: Path, step: int, text: str) -> None:
    """Writes what a run wrote at a step."""
    (path / "samples").mkdir(exist_ok=True)
    (path / "samples" / f"step-{step:08d}.txt").write_text(text)


def measured(bits: float) -> dict[str, float]:
    """What a language model of so many bits per byte measures."""
    loss = bits * NATS
    return {"loss": loss, "perplexity": math.exp(loss), "bits_per_byte": bits, "accuracy": 0.9 - bits / 4}


def sweep(path: Path, *, seeds: int = 3, **options: Any) -> Path:
    """Four models, each with several seeds; gives their folder."""
    for place, model in enumerate(FLOORS):
        for seed in range(1, seeds + 1):
            run(path / f"{place * seeds + seed - 1:03d}", model=model, seed=seed, **options)
    return path


def content(text: str) -> dict[str, Any]:
    """What the page knows."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


def block(text: str, name: str) -> Any:
    """What the page unpacks."""
    found = re.search(rf'<script type="text/plain" id="block-{name}">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(gzip.decompress(base64.b64decode(found[1])))
