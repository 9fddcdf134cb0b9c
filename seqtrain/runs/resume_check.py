"""Check that a run resumes bit for bit: an uninterrupted twin against a run killed at random moments."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seqtrain.distributed.fork_server import Child
from seqtrain.errors import RunFailed
from seqtrain.runs.checkpoint import BEST, load
from seqtrain.runs.directory import Run
from seqtrain.runs.summary import of_the_machine

PATIENCE = 600.0  # seconds to wait for a command

# Starts `seqtrain ARGS` in the folder `cwd`.
Start = Callable[..., Child]


def difference(one: Path, other: Path) -> str | None:
    """Return the first place where two finished runs differ in a bit, or None.

    It compares weights, optimizer, callbacks, carried state, every record, and the result; only the clock is left out.
    """
    names = ("status", "metrics", "best", "tokens", "steps")
    results = [{name: getattr(Run(run).summary, name) for name in names} for run in (one, other)]
    return (
        differing(records(one), records(other), "metrics.jsonl")
        or differing(final_state(one), final_state(other), "checkpoint")
        or differing(results[0], results[1], "summary.json")
    )


def records(run: Path) -> list[dict[str, Any]]:
    """Return the records of a run without entries that depend on the clock."""
    return [{key: value for key, value in record.items() if not of_the_machine(key)} for record in Run(run).metrics()]


def final_state(run: Path) -> dict[str, Any]:
    """Return the training state in the newest checkpoint, without the clock, and the weights of the best one."""
    folder = run / "checkpoints"
    newest = load(max(folder.glob("step-*.ckpt")))
    newest["callbacks"]["Recorder"].pop("seconds")
    for name in ("run", "where"):  # these name the run and its number of threads
        newest["seqtrain"].pop(name)
    names = ["global_step", "state_dict", "optimizer_states", "lr_schedulers", "callbacks", "seqtrain"]
    names += [name for name in ("current_model_state", "averaging_state") if name in newest]  # of averaged weights
    return {name: newest[name] for name in names} | {"best": load(folder / BEST)["state_dict"]}


def differing(one: Any, other: Any, place: str = "") -> str | None:
    """Return the first place where two trees of containers, tensors and values differ in a bit, or None."""
    import torch

    if type(one) is not type(other):
        return f"{place}: {type(one).__name__} and {type(other).__name__}"
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return f"{place}: keys {sorted(map(str, one.keys() ^ other.keys()))} on one side only"
        keys = list(one)
    elif isinstance(one, list | tuple):
        if len(one) != len(other):
            return f"{place}: {len(one)} and {len(other)} entries"
        keys = list(range(len(one)))
    elif isinstance(one, torch.Tensor):
        same_kind = (one.dtype, one.shape) == (other.dtype, other.shape)
        if same_kind and one.numpy().tobytes() == other.numpy().tobytes():  # by bytes: nan is not equal to itself
            return None
        return f"{place}: tensors differ"
    elif one == other or (one != one and other != other):  # the same, or both nan
        return None
    else:
        return f"{place}: {one!r} and {other!r}"
    for key in keys:
        if found := differing(one[key], other[key], f"{place}[{key!r}]"):
            return found
    return None


def newest_step(run: Path) -> int:
    """Return the step of the newest record of a run that is being written; -1 if there is none."""
    return max((record["step"] for record in Run(run).metrics()), default=-1)


def killed_and_resumed(
    start: Start, args: Sequence[str], folder: Path, *, kills: int, seed: int, trusted: Sequence[str] = ()
) -> list[int]:
    """Train in folder/killed, kill it with SIGKILL at random moments, and resume it to the end; return the steps.

    Each kill comes at a random step and a random time after it; some come before the first step.

    Args:
        start: Starts a command.
        args: Arguments of `seqtrain train`.
        folder: Folder of the run.
        kills: Number of kills.
        seed: Seed of their moments.
        trusted: Arguments that are also passed to `resume`.

    Raises:
        RunFailed: The run does not finish.
    """
    chance, run, hits = random.Random(seed), folder / "killed", []
    child = start("train", *args, f"run_dir={run}", cwd=folder)
    _wait(lambda: (run / "config.yaml").exists(), child)
    steps = Run(run).config["trainer"]["max_steps"]
    for step in sorted(chance.randrange(-1, steps) for _ in range(kills)):
        began = time.monotonic()
        if not _wait(lambda step=step: newest_step(run) >= step, child):
            break  # it ended before the kill
        time.sleep(chance.random() * min(0.05, (time.monotonic() - began) / 4 + 0.005))
        child.kill()
        if child.wait(PATIENCE) != -9:
            break
        hits.append(newest_step(run))
        child.close()
        child = start("resume", str(run), *trusted, cwd=folder)
    _finish(child, run)
    return hits


def trained(start: Start, args: Sequence[str], folder: Path) -> Path:
    """Train the uninterrupted twin in folder/twin; return its path."""
    run = folder / "twin"
    _finish(start("train", *args, f"run_dir={run}", cwd=folder), run)
    return run


def _wait(reached: Callable[[], bool], child: Child) -> bool:
    """Wait until `reached` returns True; return False if the command ended before."""
    limit = time.monotonic() + PATIENCE
    while not reached():
        if child.poll() is not None:
            return False
        if time.monotonic() > limit:
            raise RunFailed(f"the run makes no progress: nothing new for {PATIENCE:.0f} s")
        time.sleep(0.0005)
    return True


def _finish(child: Child, run: Path) -> None:
    try:
        code = child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill_group()
        raise RunFailed(f"run {run} did not end within {PATIENCE:.0f} s") from None
    finally:
        errors = [line for line in child.stderr.splitlines() if line.startswith("error: ")]
    if code:
        raise RunFailed(f"run {run} ended with exit code {code}: {errors[-1] if errors else child.stderr[-500:]}")
    child.close()
