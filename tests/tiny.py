"""A tiny text, the options of a tiny run on it, and what two equal runs must share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from seqtrain.checkpoint import load
from seqtrain.launch import Child
from seqtrain.runs import Run

PATIENCE = 60.0  # seconds that a test waits for something to happen
CLOCK = ("seconds", "tokens_per_second")  # of a record: the only numbers that may differ between equal runs

OPTIONS = (
    "data=text",
    "data.path=corpus.txt",
    "data.split_by=position",
    "data.test_fraction=0.05",
    "tokenizer=char",
    "tbptt.k2=8",
    "data.lanes=4",
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


def newest_step(run: Path) -> int:
    """The step of the newest record of a run that is being written; -1 where there is none."""
    return max((record["step"] for record in Run(run).metrics()), default=-1)


def wait_until(reached: Callable[[], Any], child: Child, what: str) -> None:
    """Returns once `reached()` is true; AssertionError if the command ends before."""
    limit = time.monotonic() + PATIENCE
    while not reached():
        assert child.poll() is None, f"ended with {child.poll()} before {what}: {child.stderr}"
        assert time.monotonic() < limit, f"waited {PATIENCE} s for {what}"
        time.sleep(0.0005)


def records(run: Path) -> list[dict[str, Any]]:
    """The records of a run without what the clock says."""
    return [{key: value for key, value in record.items() if key not in CLOCK} for record in Run(run).metrics()]


def final_state(run: Path) -> dict[str, Any]:
    """What the newest checkpoint holds of the training, without the clock, and the weights of the best one."""
    newest = load(max((run / "checkpoints").glob("step-*.ckpt")))
    newest["callbacks"]["Recorder"].pop("seconds")
    names = ("global_step", "state_dict", "optimizer_states", "lr_schedulers", "callbacks", "seqtrain")
    return {name: newest[name] for name in names} | {"best": load(run / "checkpoints" / "best.ckpt")["state_dict"]}


def difference(one: Any, other: Any, place: str = "") -> str | None:
    """Where two trees of containers, tensors and values first differ in a single bit, or None."""
    if type(one) is not type(other):
        return f"{place}: {type(one).__name__} and {type(other).__name__}"
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return f"{place}: keys {sorted(map(str, one.keys() ^ other.keys()))} on one side only"
        pairs = [(f"{place}[{key!r}]", one[key], other[key]) for key in one]
    elif isinstance(one, list | tuple):
        if len(one) != len(other):
            return f"{place}: {len(one)} and {len(other)} entries"
        pairs = [(f"{place}[{index}]", *pair) for index, pair in enumerate(zip(one, other, strict=True))]
    elif isinstance(one, torch.Tensor):
        alike = (one.dtype, one.shape) == (other.dtype, other.shape)
        return None if alike and one.numpy().tobytes() == other.numpy().tobytes() else f"{place}: tensors differ"
    else:
        return None if one == other or (one != one and other != other) else f"{place}: {one!r} and {other!r}"
    return next((found for pair in pairs if (found := difference(pair[1], pair[2], pair[0]))), None)


def assert_twins(one: Path, other: Path) -> None:
    """Two runs end with the same bits: weights, optimizer, callbacks, carried state, every logged number, result."""
    names = ("status", "metrics", "best", "tokens", "steps")
    summaries = [{name: Run(run).summary[name] for name in names} for run in (one, other)]
    found = (
        difference(records(one), records(other), "metrics")
        or difference(final_state(one), final_state(other), "checkpoint")
        or difference(summaries[0], summaries[1], "summary")
    )
    assert found is None, found
