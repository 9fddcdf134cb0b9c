"""Run directories made by hand, in the shape of real ones: hundreds cost nothing, and every figure is the test's."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from seqtrain.runs.directory import Run
from seqtrain.sweeps.folder import Asked, Status, Sweep, Trial
from seqtrain.tasks.base import Task
from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.tasks.next_token import NextToken
from seqtrain.tasks.regress import Regress
from seqtrain.tasks.sentiment import Sentiment
from seqtrain.tasks.tag import Tag
from seqtrain.tasks.translation import Translation

CONFIG: dict[str, Any] = {
    "task": {"_target_": "seqtrain.tasks.next_token.NextToken", "tied": True},
    "data": {
        **{"batch_size": 4, "eval_lanes": 4, "eval_batch_size": None, "max_length": 256, "workers": 0},
        **{"_target_": "seqtrain.data.sources.text.Text", "path": "corpus.txt", "split_by": "position"},
    },
    "model": {"_target_": "seqtrain.models.recurrent.LSTM", "_recommend_": {"lr": 0.006}, "dim": 16, "num_layers": 1},
    "tokenizer": {"_target_": "seqtrain.data.tokenizers.recipes.Char"},
    "tbptt": {"_target_": "seqtrain.data.batching.plan.TBPTT", "k2": 8, "k1": 8, "carry": True, "reset": "never"},
    "optimizer": {"_target_": "torch.optim.AdamW", "_partial_": True, "lr": 0.006, "betas": [0.9, 0.95]},
    "schedule": {"_target_": "seqtrain.training.optim.schedules.Cosine", "warmup": 50, "final": 0.0},
    "trainer": {"precision": "32-true", "max_steps": 100, "validate_every": 50, "log_every": 20},
    "logger": {},
    "callbacks": {"samples": None, "early_stopping": None},
    **{"seed": 1, "run_dir": None, "init_from": None, "freeze": [], "layer_decay": 1.0, "dry_run": False},
}
MODELS = {
    "lstm": "seqtrain.models.recurrent.LSTM",
    "rnn": "seqtrain.models.recurrent.RNN",
    "gru": "seqtrain.models.recurrent.GRU",
    "gpt": "seqtrain.models.gpt.GPT",
}
HASHES = {"train": "a" * 32, "validation": "b" * 32, "tokenizer": "c" * 32}
TASKS: dict[str, type[Task]] = {
    task.__name__: task for task in (Regress, Tag, NextToken, MaskedLM, Sentiment, Translation)
}
MEASURES = {name: said for task in TASKS.values() for name, said in task.said()["measures"].items()}
"""What is said of every metric of every task."""

TRANSLATION = {
    "task._target_": "seqtrain.tasks.translation.Translation",
    **{"task.label_smoothing": 0.1, "task.beam": 1, "task.length_penalty": 1.0, "task.max_ratio": 2.0},
}
"""Changes that make a translation's config of it."""


def run(
    path: Path,
    value: float = 1.5,
    *,
    model: str = "lstm",
    seed: int = 1,
    metric: str = "bits_per_byte",
    values: Sequence[float] = (),
    tokens_a_second: float = 100.0,
    config: dict[str, Any] | None = None,
    **summary: Any,
) -> Path:
    """Writes a finished run whose last validation gave `value`, after `values` at equal distances; gives its path.

    `config`: changes by dotted key; other keywords change entries of the summary.
    """
    made = copy.deepcopy(CONFIG)
    for key, new in {"model._target_": MODELS[model], "seed": seed, **(config or {})}.items():
        *groups, last = key.split(".")
        node = made
        for group in groups:
            node = node[group]
        node[last] = new
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.dump(made, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))
    lines = []
    for place, each in enumerate((*values, value), 1):
        tokens = 1000 * place
        at = {"step": 50 * place, "tokens": tokens, "seconds": tokens / tokens_a_second}
        lines.append(json.dumps({**at, "validation/loss": each, f"validation/{metric}": each}) + "\n")
    (path / "metrics.jsonl").write_text("".join(lines))
    tokens = 1000 * len(lines)
    found = {
        "status": "finished",
        "command": [
            "seqtrain",
            "train",
            *(f"{key.removesuffix('._target_')}={new}" for key, new in (config or {}).items()),
        ],
        "hashes": HASHES,
        "parameters": {"total": 2560},
        "flops_per_token": 6000.0,
        "context": {"eval_lanes": 4, "carry": True},
        **TASKS[made["task"]["_target_"].rpartition(".")[2]].said(),
        "measures": MEASURES,
        "signatures": {},
        "metrics": {"validation": {"loss": value, metric: value}},
        "best": {"step": 50 * len(lines), "validation": {metric: min(*values, value) if values else value}},
        "unknown": {"validation": 0},
        **{"steps": 50 * len(lines), "tokens": tokens, "flops": 6000.0 * tokens, "seconds": tokens / tokens_a_second},
        "tokens_per_second": tokens_a_second,
    }
    (path / "summary.json").write_text(json.dumps({**found, **summary}))
    return path


def seeds(folder: Path, name: str, *values: float, **options: Any) -> None:
    """Writes runs of seeds 1, 2, ... with these values."""
    for seed, value in enumerate(values, 1):
        run(folder / f"{name}-{seed}", value, seed=seed, **options)


def sweep(path: Path, variants: Mapping[str, Sequence[float]], **options: Any) -> Path:
    """Writes a sweep of runs: of each model one run for each value, the seeds counted from 1; gives its path."""
    (path / "trials").mkdir(parents=True)
    (path / "sweep.yaml").write_text(yaml.safe_dump({"kind": "grid", "overrides": [], "config_dirs": [], "trust": []}))
    trials = [(model, seed, value) for model, values in variants.items() for seed, value in enumerate(values, 1)]
    for number, (model, seed, value) in enumerate(trials):
        trial(path, number, f"model={model} seed={seed}")
        run(path / f"{number:03d}", value, model=model, seed=seed, **options)
    return path


def trial(path: Path, number: int, label: str, *, status: str = "finished", reason: str = "") -> None:
    """Writes what the sweep at `path` knows of a trial."""
    record = {"overrides": label.split(), "label": label, "status": status, "reason": reason}
    (path / "trials" / f"{number:03d}.json").write_text(json.dumps(record))


STATUSES: tuple[Status, ...] = ("finished", "failed", "refused", "pruned", "interrupted", "planned")


def of_each_status(path: Path) -> Sweep:
    """Makes a sweep of seeds whose trials stand as STATUSES says, and an index of them."""
    made = Sweep.create(path, Asked(()))
    for number, status in enumerate(STATUSES):
        ended(made.plan(number, [f"seed={number}"], f"seed={number}"), status, reason="it is so")
    made.write_index()
    return made


def ended(trial: Trial, status: Status, reason: str = "") -> None:
    """Leaves what a trial leaves that ended so; one that was refused, or is planned, has no run."""
    if status not in ("refused", "planned"):
        run = Run(trial.path) if trial.path.exists() else Run.create(trial.path)
        run.write_config({})
        run.update_summary(status=status, reason=reason)
        run.close()
    trial.conclude(status, reason)


def evaluated(path: Path, value: float, *, metric: str = "bits_per_byte", **changes: Any) -> Path:
    """Adds to a run what `seqtrain evaluate --split test` keeps of a look; `changes` of its record. Gives the run."""
    record = {
        **{"split": "test", "checkpoint": "best", "step": 50, "metrics": {metric: value, "loss": value}},
        **{"hash": "d" * 32, "date": "2026-11-21T10:00:00+00:00", "commit": "e" * 40},
        "options": {"batch_size": None, "eval_lanes": 4, "examples": None, "tokens": 900},
    }
    with (path / "evaluations.jsonl").open("a") as file:
        file.write(json.dumps(record | changes) + "\n")
    return path
