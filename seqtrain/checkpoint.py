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
from seqtrain.files import atomic

STEP = re.compile(r"step-([0-9]{8,15})\.ckpt")
BEST = "best.ckpt"
MAGIC = b"PK\x03\x04"  # how a zip file begins
CUT = "it was cut short or changed on disk"
SPACE = 64 << 20  # bytes that `probe` wants free


def step_name(step: int) -> str:
    """The file name of the checkpoint after `step` optimiser steps: `step-00000100.ckpt`."""
    return f"step-{step:08d}.ckpt"


def best_name(step: int) -> str:
    """The file name of one of the best checkpoints, where several are kept: `best-00000100.ckpt`."""
    return f"best-{step:08d}.ckpt"


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
    damaged = f"checkpoint {path} is damaged: {CUT}"
    if not _sums_hold(path):
        raise Fault(damaged)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        _refuse_foreign(found, "checkpoint")
    except (pickle.UnpicklingError, TypeError, RecursionError):
        raise Fault(
            f"checkpoint {path} refused: it holds more than tensors and plain containers, and opening it could run code"
        ) from None
    except Exception:  # a pickle that breaks its own rules raises anything from IndexError to struct.error
        raise Fault(damaged) from None
    return found


def is_valid(path: Path) -> bool:
    """Whether `load` takes the file, and what it gives is what was written (by the checksums of the zip entries)."""
    return _seen(path) is not None


def newest_valid(folder: Path, say: Callable[[str], None], *, run: str | None = None) -> Path | None:
    """The sound `step-*.ckpt` of the largest step, or None; tells `say` of each one that it skipped, and why.

    `run`: the identity of the run that must have written it; None: any.
    """
    for _, path in reversed(_steps(folder)):
        flaw = _flaw(path, run)
        if flaw is None:
            return path
        say(f"skipped {path}: {flaw}")
    return None


def _flaw(path: Path, run: str | None) -> str | None:
    """Why this is not the checkpoint that its name and place say; None where it is."""
    found = _seen(path)
    if found is None:
        return CUT
    if not isinstance(found, dict) or found.get("global_step") != step_of(path):
        return "what it holds is not a checkpoint of this step"
    writer = found["seqtrain"].get("run") if isinstance(found.get("seqtrain"), dict) else None
    return "another run wrote it" if run is not None and writer != run else None


def _seen(path: Path) -> Any:
    """What a sound file holds, without reading a tensor; None where it is damaged or holds more than plain values."""
    import torch

    if not _sums_hold(path):
        return None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        _refuse_foreign(found, "checkpoint")
    except Exception:  # as in `load`
        return None
    return found


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
        with open(path, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:  # another kind of file, which torch would read in another way
                return False
        with zipfile.ZipFile(path) as archive:
            # torch packs nothing: what says that it is larger than its file would fill the memory.
            as_large = sum(entry.file_size for entry in archive.infolist()) <= path.stat().st_size
            return as_large and archive.testzip() is None
    except Exception:  # a damaged header raises anything from struct.error to NotImplementedError
        return False


def _steps(folder: Path) -> list[tuple[int, Path]]:
    matches = [(STEP.fullmatch(path.name), path) for path in folder.glob("step-*.ckpt")]
    return sorted((int(match[1]), path) for match, path in matches if match)


def _refuse_foreign(value: Any, place: str) -> None:
    """TypeError with its place for a value that `torch.load(weights_only=True)` may refuse: NumPy scalars, Path...

    And for a tensor that is larger than what is stored of it: a few bytes would fill the memory.
    """
    import torch

    if type(value) in (dict, OrderedDict):
        for key, below in value.items():
            _refuse_foreign(key, f"a key of {place}")
            _refuse_foreign(below, f"{place}[{key!r}]")
    elif type(value) in (list, tuple, set):
        for number, below in enumerate(value):
            _refuse_foreign(below, f"{place}[{number}]")
    elif type(value) in (torch.Tensor, torch.nn.Parameter):
        if value.layout != torch.strided or value.is_meta or value.nbytes > value.untyped_storage().nbytes():
            raise TypeError(f"{place} is a tensor of which not every number is stored")
    elif type(value) not in (
        *(torch.Size, torch.dtype, torch.device),
        *(str, bytes, int, float, bool, type(None)),
    ):
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise TypeError(f"{place} is a {kind}: a checkpoint holds tensors and plain containers only")
