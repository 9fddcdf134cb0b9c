"""Golden runs: short runs whose weights and losses are kept, so that a change of a single bit is seen.

`python -m tests.golden` trains them all and writes golden.json anew. Whoever changes a number on purpose commits that
file by itself and says why.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from seqtrain.runs.checkpoint import load
from seqtrain.runs.directory import Run
from tests.support import examples
from tests.support.tiny import GPT, OPTIONS, corpus

FILE = Path(__file__).with_name("golden.json")
STEPS = 12
SCHEDULE = (
    *(f"trainer.max_steps={STEPS}", "trainer.validate_every=6", "trainer.checkpoint_every=6"),
    *("trainer.accelerator=cpu", "trainer.threads=1", "trainer.log_every=1"),
)
PRECISIONS = {"float32": ("trainer.precision=32-true",), "float64": ("trainer.precision=64-true",)}
# What these runs were first trained with, whatever a task recommends now.
PLAIN = ("task.dropout=0.1", "model.dropout=0.0", "tokenizer.min_count=1")
RUNS: dict[str, tuple[str, ...]] = {
    "lstm that carries": OPTIONS,
    "gru with k1 below k2": (*OPTIONS, "model=gru", "tbptt.k1=2"),
    "rnn on documents": (*OPTIONS, "model=rnn", "tbptt.reset=document"),
    "min_gru on jittered chunks": (*OPTIONS, "model=min_gru", "tbptt.jitter=awd"),
    "gpt with memory": (*OPTIONS, *GPT),
    "cnn on windows": (*OPTIONS, "model=cnn", "tbptt=windows"),
    "masked_lm": (*examples.options("masked_lm"), "task.next_sentence=true", "optimizer=adamw"),
    "sentiment": (*examples.options("sentiment"), *PLAIN),
    "sentiment cut in time": (*examples.options("sentiment"), *PLAIN, "model=lstm", "tbptt.k2=8"),
    "sentiment of cbow": (*examples.options("sentiment"), *PLAIN, "model=cbow"),
    "translation": examples.options("translation"),
    "translation by recurrences": (
        *(option for option in examples.options("translation") if not option.startswith("model")),
        *("model=rnn_encoder_decoder", "model.dim=8"),
    ),
    "two processes": (*OPTIONS, "trainer.devices=2", "trainer.accumulate=2"),
}
RESUMED = "resumed"
SWEPT = "swept"


def commands(name: str) -> list[tuple[str, ...]]:
    """What is called, one after another, for the run, or the sweep, of this name."""
    if name == RESUMED:
        half = (*OPTIONS, *SCHEDULE, f"trainer.max_steps={STEPS // 2}", "schedule=constant")
        return [("train", *half, "run_dir=run"), ("resume", "run", f"trainer.max_steps={STEPS}")]
    if name == SWEPT:
        return [("train", "-m", *OPTIONS, *SCHEDULE, "model=rnn,gru", "hydra.sweep.dir=run")]
    return [("train", *RUNS[name], *SCHEDULE, "run_dir=run")]


def cases() -> list[tuple[str, str]]:
    """Every run in every precision."""
    return [(name, precision) for name in (*RUNS, RESUMED, SWEPT) for precision in PRECISIONS]


def train(seqtrain: Any, folder: Path, name: str, precision: str) -> dict[str, Any]:
    """Trains a case in a folder that `files` made; gives what is kept of it."""
    for words in commands(name):
        options = PRECISIONS[precision] if words[0] == "train" else ()
        answer = seqtrain(*words, *options, cwd=folder)
        assert answer.rc == 0, answer.err
    runs = [folder / "run"]
    if name == SWEPT:
        runs = sorted(path.parent for path in (folder / "run").glob("*/config.yaml"))
        assert len(runs) == 2
    return {"weights": [_hash(run) for run in runs], "losses": [_losses(run) for run in runs]}


def files(folder: Path) -> Path:
    """Writes the data of all cases into the folder; gives the folder."""
    return examples.files(corpus(folder))


def machine() -> str:
    """What decides bits besides our code: the kind of processor, the kernels that torch takes for it, and torch."""
    told: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        told.setdefault(name.strip(), value.strip())
    kind = " ".join(told.get(name, "?") for name in ("model name", "cpu family", "model", "stepping"))
    flags = hashlib.sha256(told.get("flags", "").encode()).hexdigest()[:8]
    kernels = torch.backends.cpu.get_cpu_capability()
    return f"{kind} {flags}, {kernels}, torch {torch.__version__.partition('+')[0]}"


def _hash(run: Path) -> str:
    """One hash of all weights, whatever their names and their order."""
    weights = load(run / "checkpoints" / f"step-{STEPS:08d}.ckpt")["state_dict"].values()
    parts = [f"{value.dtype} {tuple(value.shape)}".encode() + value.numpy().tobytes() for value in weights]
    hashes = sorted(hashlib.sha256(part).hexdigest() for part in parts)
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


def _losses(run: Path) -> list[float]:
    """Every loss on record, of training and of validations, in the order of the record."""
    return [value for record in Run(run).metrics() for key, value in record.items() if key.endswith("/loss")]


def main() -> None:
    """Trains all cases and writes golden.json; what other machines wrote of bits stays where the losses stay."""
    from seqtrain.distributed.fork_server import ForkServer
    from tests.conftest import HEAVY, Seqtrain, own_modules

    old = json.loads(FILE.read_text()) if FILE.exists() else {}
    found: dict[str, Any] = {}
    environment = {**os.environ, "WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with ForkServer([*HEAVY, *own_modules()], env=environment) as server:
        seqtrain = Seqtrain(server, environment)
        for name, precision in cases():
            with tempfile.TemporaryDirectory() as folder:
                result = train(seqtrain, files(Path(folder)), name, precision)
            key = f"{name}, {precision}"
            before = old.get(key, {})
            kept = before.get("weights", {}) if before.get("losses") == result["losses"] else {}
            found[key] = {"weights": {**kept, machine(): result["weights"]}, "losses": result["losses"]}
            print(key, "as before" if found[key] == before else "new", flush=True)
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
