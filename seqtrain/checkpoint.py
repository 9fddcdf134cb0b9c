"""Checkpoint files that are written whole or not at all, verified before they are read, and execute nothing."""

from __future__ import annotations

import pickle
import re
import shutil
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqtrain.faults import Fault
from seqtrain.runs import atomic

STEP = re.compile(r"step-(\d+)\.ckpt")
BEST = "best.ckpt"
SPACE = 64 << 20  # bytes that `probe` wants free


def step_name(step: int) -> str:
    """The file name of the checkpoint after `step` optimiser steps: `step-00000100.ckpt`."""
    return f"step-{step:08d}.ckpt"


def step_of(path: Path) -> int:
    """The step in a checkpoint's file name: the inverse of `step_name`."""
    return int(path.stem.removeprefix("step-"))


def save(obj: Any, path: Path) -> None:
    """Writes tensors and plain containers to `path`; until that is done, and on any error, the old file stands.

    TypeError, with the place, for anything that `load` would refuse; OSError when the disk is full.
    """
    import torch

    _refuse_foreign(obj, "checkpoint")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as file:
        try:
            torch.save(obj, file)
        except RuntimeError as error:  # torch's own, about its writer; what stopped the writer is behind it
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None


def load(path: Path) -> Any:
    """What `save` wrote, on the CPU; Fault when the file is missing, damaged, or holds more than plain values."""
    import torch

    if not path.is_file():
        raise Fault(f"checkpoint {path} does not exist")
    damaged = f"checkpoint {path} is damaged: it was cut short or changed on disk"
    if not _sums_hold(path):
        raise Fault(damaged)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise Fault(
            f"checkpoint {path} refused: it holds more than tensors and plain containers, and opening it could run code"
        ) from None
    except RuntimeError:
        raise Fault(damaged) from None


def is_valid(path: Path) -> bool:
    """Whether `load` takes the file, and what it gives is what was written (by the checksums of the zip entries)."""
    import torch

    if not _sums_hold(path):
        return False
    try:
        torch.load(path, map_location="cpu", weights_only=True, mmap=True)  # no tensor is read
    except (RuntimeError, pickle.UnpicklingError):
        return False
    return True


def newest_valid(folder: Path, say: Callable[[str], None]) -> Path | None:
    """The sound `step-*.ckpt` of the largest step, or None; tells `say` of each damaged one that it skipped."""
    for _, path in reversed(_steps(folder)):
        if is_valid(path):
            return path
        say(f"skipped {path}: it was cut short or changed on disk")
    return None


def keep_newest(folder: Path, count: int, *, step: int) -> None:
    """Deletes all `step-*.ckpt` but the `count` newest up to `step`, which was just saved.

    Files beyond `step` are of a past that a resume left behind, or damaged: kept, they would push out sound ones.
    """
    steps = _steps(folder)
    kept = [path for number, path in steps if number <= step][-count:]
    for _, path in steps:
        if path not in kept:
            path.unlink(missing_ok=True)


def probe(folder: Path, *, space: int = SPACE) -> None:
    """Fault unless `folder` can be written and has `space` bytes free; sweeps what a killed writer left behind.

    For the process that writes the run, at its start.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob(".*.tmp"):
            stale.unlink(missing_ok=True)
        with atomic(folder / ".probe") as file:
            file.write(b"\0" * 4096)
        (folder / ".probe").unlink()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise Fault(f"checkpoints cannot be written to {folder}: {error.strerror}; give another run_dir") from None
    if free < space:
        raise Fault(
            f"checkpoints cannot be written to {folder}: {free >> 20} MiB are free, {space >> 20} MiB are needed; "
            "make room or give another run_dir"
        )


def _sums_hold(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except Exception:  # a damaged header raises anything from struct.error to NotImplementedError
        return False


def _steps(folder: Path) -> list[tuple[int, Path]]:
    matches = [(STEP.fullmatch(path.name), path) for path in folder.glob("step-*.ckpt")]
    return sorted((int(match[1]), path) for match, path in matches if match)


def _refuse_foreign(value: Any, place: str) -> None:
    """TypeError with its place for a value that `torch.load(weights_only=True)` may refuse: NumPy scalars, Path..."""
    import torch

    if type(value) in (dict, OrderedDict):
        for key, below in value.items():
            _refuse_foreign(key, f"a key of {place}")
            _refuse_foreign(below, f"{place}[{key!r}]")
    elif type(value) in (list, tuple, set):
        for number, below in enumerate(value):
            _refuse_foreign(below, f"{place}[{number}]")
    elif type(value) not in (
        *(torch.Tensor, torch.nn.Parameter, torch.Size, torch.dtype, torch.device),
        *(str, bytes, int, float, bool, type(None)),
    ):
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise TypeError(f"{place} is a {kind}: a checkpoint holds tensors and plain containers only")
