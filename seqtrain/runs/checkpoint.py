"""Checkpoint files: written atomically, verified before they are read, and unable to execute code."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqtrain.errors import Unavailable, UserError
from seqtrain.files.atomic import atomic, exists, listed, remove_temporary
from seqtrain.runs import checkpoint_file
from seqtrain.runs.checkpoint_file import CUT, Unsound
from seqtrain.runs.identity import other_writer

STEP = re.compile(r"step-([0-9]{8,15})\.ckpt")
BEST = "best.ckpt"
UNREADABLE = "it may be undamaged: make it readable, or move it elsewhere to continue without it"
SPACE = 64 << 20  # free bytes that `probe` requires


def step_name(step: int) -> str:
    """Return the file name of the checkpoint after `step` optimiser steps: `step-00000100.ckpt`."""
    return f"step-{step:08d}.ckpt"


def best_name(step: int) -> str:
    """Return the file name of one of several best checkpoints: `best-00000100.ckpt`."""
    return f"best-{step:08d}.ckpt"


def step_of(path: Path) -> int:
    """Return the step in a checkpoint's file name: the inverse of `step_name`."""
    return int(path.stem.removeprefix("step-"))


def save(obj: Any, path: Path) -> None:
    """Write tensors and plain containers to `path` atomically; on an error the old file is kept.

    Args:
        obj: Tensors and plain containers, at any depth.
        path: File to write.

    Raises:
        TypeError: `obj` contains something that `load` would refuse. The message names the place.
        OSError: The disk is full.
    """
    path.parent.mkdir(exist_ok=True)  # without its parents: a run folder that the user has removed stays removed
    with atomic(path) as file:
        checkpoint_file.write(obj, file)


def load(path: Path) -> Any:
    """Load what `save` wrote, on the CPU. Raises UserError if the file is missing, damaged, or has other content."""
    if not exists(path):
        raise Unavailable(f"checkpoint {path} does not exist")
    try:
        return _opened(path)
    except Unsound as error:
        raise UserError(f"checkpoint {path} {'is damaged' if str(error) == CUT else 'refused'}: {error}") from None


def _opened(path: Path, *, tensors: bool = True) -> Any:
    """Return the contents of a sound file. Raises Unsound, with the reason."""
    try:
        return checkpoint_file.read(path, tensors=tensors)
    except OSError as error:
        raise UserError(f"checkpoint {path} cannot be read: {error.strerror}; {UNREADABLE}") from None


def newest_valid(folder: Path, say: Callable[[str], None], *, run: dict[str, Any] | None = None) -> Path | None:
    """Return the path that `newest_sound` finds, or None."""
    found = newest_sound(folder, say, run=run)
    return None if found is None else found[0]


def newest_sound(
    folder: Path, say: Callable[[str], None], *, run: dict[str, Any] | None = None
) -> tuple[Path, dict[str, Any]] | None:
    """Return the newest sound `step-*.ckpt` and its contents, or None; log each file skipped, with the reason.

    Tensors are not read, except for the checksum of the file.

    Args:
        folder: Folder of checkpoints.
        say: Called with a line for each file skipped.
        run: Identity of the run that must have written it. None: any.

    Raises:
        UserError: All sound files were written by another run: config.yaml was edited, or they were put there. Or the
            folder or a file cannot be read: it may be sound, and continuing without it would overwrite what it saved.
    """
    of_others: dict[Path, str] = {}
    for _, path in reversed(_steps(folder)):
        try:
            found = _of_step(path)
        except Unsound as error:
            say(f"skipped {path}: {error}")
            continue
        if run is not None and (other := other_writer(_writer(found), run)):
            of_others[path] = f"another run wrote it: {other}"
        else:
            for skipped, other in of_others.items():
                say(f"skipped {skipped}: {other}")
            return path, found
    for path, other in of_others.items():
        raise UserError(f"checkpoint {path}: {other}; restore config.yaml, or start a new run")
    return None


def refuse_other(path: Path, found: Any, run: dict[str, Any]) -> None:
    """Raise UserError unless the contents of a checkpoint say that the run of this identity wrote it."""
    if other := other_writer(_writer(found), run):
        raise UserError(f"checkpoint {path}: another run wrote it: {other}; restore the original file, or config.yaml")


def written_under(found: dict[str, Any]) -> dict[str, Any]:
    """Return the limits and the environment under which a checkpoint was written; its writer must be known."""
    where = found["seqtrain"].get("where")
    return where if isinstance(where, dict) else {}


def _of_step(path: Path) -> dict[str, Any]:
    """Return the contents of a sound file without its tensors. Raises Unsound if the step differs from its name."""
    found = _opened(path, tensors=False)
    if not isinstance(found, dict) or found.get("global_step") != step_of(path):
        raise Unsound("its content is not a checkpoint of this step")
    return found


def _writer(found: Any) -> Any:
    """Return the identity of the run that wrote a checkpoint; None if the checkpoint does not contain it."""
    entry = found.get("seqtrain") if isinstance(found, dict) else None
    return entry.get("run") if isinstance(entry, dict) else None


def keep_newest(folder: Path, count: int, *, step: int) -> None:
    """Delete all `step-*.ckpt` except the `count` newest up to `step`, which was just saved.

    Files beyond `step` were superseded by a resume, or are damaged. If kept, they would displace sound ones.
    """
    remove_older(folder, count, step=step)
    for number, path in _steps(folder):
        if number > step:
            path.unlink(missing_ok=True)


def remove_older(folder: Path, count: int, *, step: int) -> None:
    """Delete the `step-*.ckpt` up to `step` except the `count` newest; keep those beyond `step`."""
    for path in [path for number, path in _steps(folder) if number <= step][:-count]:
        path.unlink(missing_ok=True)


def probe(folder: Path, *, space: int = SPACE) -> None:
    """Raise UserError unless `folder` is writable with `space` bytes free; remove files left by a killed writer.

    Called at the start of the process that writes the run.
    """
    try:
        folder.mkdir(exist_ok=True)
        remove_temporary(folder)
        with atomic(folder / ".probe") as file:
            file.write(b"\0" * 4096)
        (folder / ".probe").unlink()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise Unavailable(
            f"checkpoints cannot be written to {folder}: {error.strerror}; give another run_dir"
        ) from None
    if free < space:
        raise Unavailable(
            f"checkpoints cannot be written to {folder}: {free >> 20} MiB are free, {space >> 20} MiB are needed; "
            "make room or give another run_dir"
        )


def _steps(folder: Path) -> list[tuple[int, Path]]:
    matches = [(STEP.fullmatch(path.name), path) for path in listed(folder, "step-*.ckpt")]
    return sorted((int(match[1]), path) for match, path in matches if match)
