"""Export of a trained run: weights as safetensors, everything else as JSON; no history and no optimizer."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.data.preprocess import LABELS, SCALE, SERIES, TARGET_TOKENIZER, TOKENIZER, Preprocessor
from seqtrain.errors import UserError
from seqtrain.files.atomic import plain_json
from seqtrain.files.checked import open_checked
from seqtrain.files.folders import LOCK, appearing
from seqtrain.files.untrusted import read_export
from seqtrain.runs.checkpoint import TYPES
from seqtrain.runs.directory import EXPORT, Run

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from seqtrain.runs.summary import Summary

WEIGHTS = "model.safetensors"
MAX_HEADER_BYTES = 1 << 24  # about 100 bytes for each weight
FILES = (TOKENIZER, TARGET_TOKENIZER, LABELS, SCALE, SERIES)
FORMAT = 1  # increase it when older versions cannot read what is written here
MOST_NAMES = 1 << 16  # maximum number of weights
# Entries of a run's summary in an export: results, but nothing about the user or the machine.
KEPT = (
    *("task", "metrics", "best", "baselines", "context", "monitor", "signatures", "parameters", "tokens", "steps"),
    *("unknown", "reason", "splits", "hashes", "versions", "measures", "compared_by", "parent", "lineage"),
)


PARENT = "parent"  # folder in a run with adapters: an export of the run that it began with


def write(run: Run, preprocessor: Preprocessor, weights: dict[str, Tensor], step: int, target: Path) -> None:
    """Write `target`, a new folder, atomically. Raises UserError if it exists or cannot be written.

    Args:
        run: Run to export.
        preprocessor: Its tokenizers, labels and scaling.
        weights: Weights of model and task, by name.
        step: Step of the weights.
        target: Folder to create.
    """
    if target.exists() or target.is_symlink():
        raise UserError(f"--output {target} exists already; name a new folder")
    from safetensors import SafetensorError

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with appearing(target) as folder:
            fill(folder, run.config, run.summary, preprocessor, weights, step)
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"--output {target}: {why}; make room, or name another folder") from None


def fill(
    folder: Path,
    config: dict[str, Any],
    summary: Summary,
    preprocessor: Preprocessor,
    weights: dict[str, Tensor],
    step: int,
) -> None:
    """Write the files of an export into an empty folder.

    Args:
        folder: Folder to fill.
        config: Config of the run, in plain values.
        summary: Its summary; only the entries of KEPT are written.
        preprocessor: Its tokenizers, labels and scaling.
        weights: Weights of model and task, by name.
        step: Step of the weights.
    """
    aliases = save_weights(folder / WEIGHTS, weights)
    preprocessor.save(folder)
    hashes = {path.name: _hash(path) for path in sorted(folder.iterdir()) if path.name != LOCK}
    about = {"seqtrain_export": FORMAT, "step": step, "hashes": hashes, "aliases": aliases}
    about |= {"vocabulary": _sizes(preprocessor), "config": config}
    about["summary"] = {name: value for name, value in summary.to_plain().items() if name in KEPT}
    (folder / EXPORT).write_text(plain_json(about, indent=2) + "\n", "utf-8")


def described(folder: Path) -> dict[str, Tensor]:
    """Return the weights in an export by name, on the meta device. Raises UserError if the file is invalid.

    An untrusted file may have any size: it is hashed and loaded only after its weights match those of its model.
    """
    path = folder / WEIGHTS
    if not path.is_file():
        raise _other(path)
    return _with_aliases(folder, shapes_of(path), read_export(folder / EXPORT)["aliases"])


def shapes_of(path: Path, *, remedy: str = "export the run again") -> dict[str, Tensor]:
    """Return the weights of a safetensors file by name, on the meta device, reading only its header.

    Args:
        path: File, which may be untrusted.
        remedy: Advice for messages about an invalid file.

    Raises:
        UserError: The file is damaged, or does not contain the weights of a model.
    """
    import torch
    from safetensors import SafetensorError, safe_open

    _check_header(path, remedy)
    try:
        with safe_open(path, "pt") as file:  # checks the file's size against its header
            names = file.keys()
            if len(names) > MOST_NAMES:
                raise UserError(f"{path}: {len(names):,} weights, more than any model has; {remedy}")
            slices = {name: file.get_slice(name) for name in names}
            return {
                name: torch.empty(each.get_shape(), dtype=_type(path, name, each.get_dtype(), remedy), device="meta")
                for name, each in slices.items()
            }
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None


def read(folder: Path) -> dict[str, Any]:
    """Return the weights in an export in the form of a checkpoint. Raises UserError if a file was changed."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    about = read_export(folder / EXPORT)
    for name, value in about["hashes"].items():
        path = folder / name
        if name not in (WEIGHTS, *FILES) or not path.is_file() or _hash(path) != value:
            raise _other(path)
    try:
        weights = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder / WEIGHTS} cannot be read: {error}") from None
    return {"state_dict": _with_aliases(folder, weights, about["aliases"]), "global_step": about["step"]}


def _other(path: Path) -> UserError:
    return UserError(f"{path}: missing, or changed since the export; export the run again")


def _with_aliases(folder: Path, weights: dict[str, Tensor], aliases: dict[str, str]) -> dict[str, Tensor]:
    """Return the weights; those that have several names appear under each of them."""
    missing = [other for other in aliases.values() if other not in weights]
    if missing:
        raise UserError(f"{folder / EXPORT}: names {missing[0]}, which is not in {WEIGHTS}")
    return weights | {name: weights[other] for name, other in aliases.items()}


def _type(path: Path, name: str, written: str, remedy: str) -> torch.dtype:
    import torch

    if written not in TYPES:
        raise UserError(f"{path}: {name} is {written}, a type that no weight of a model has; {remedy}")
    return getattr(torch, TYPES[written])


def _check_header(path: Path, remedy: str) -> None:
    """Raise UserError if the header is too long: it is parsed completely before any weight is read."""
    with open_checked(path) as file:
        size = int.from_bytes(file.read(8), "little")
    if size > MAX_HEADER_BYTES:
        raise UserError(f"{path} cannot be read: its header has {size:,} bytes, more than any model needs; {remedy}")


def save_weights(path: Path, weights: dict[str, Tensor]) -> dict[str, str]:
    """Write each tensor once, into a file that others may read.

    Args:
        path: File to write.
        weights: Weights by name.

    Returns:
        The first name of a tensor for each of its further names.
    """
    from safetensors.torch import save_file

    kept: dict[str, Tensor] = {}
    aliases, first = {}, {}
    for name, tensor in weights.items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if tensor.numel() and place in first:
            aliases[name] = first[place]
        else:
            first[place] = name
            kept[name] = tensor.clone().contiguous()  # without the copy, a view would save its whole storage
    path.touch()
    mode = path.stat().st_mode  # as set by the umask; save_file replaces the file by one with mode 0600
    save_file(kept, path, metadata={"format": "pt"})  # transformers requires it
    path.chmod(mode)
    return aliases


def _sizes(preprocessor: Preprocessor) -> dict[str, int]:
    sizes = {"tokenizer": preprocessor.tokenizer.vocab_size, "target": preprocessor.target_tokenizer.vocab_size}
    return sizes | {"labels": len(preprocessor.labels)}


def _hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
