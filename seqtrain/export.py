"""A trained run as a folder to hand on: weights as safetensors, everything else as JSON; no history, no optimizer."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.checked_files import open_checked
from seqtrain.data.rows import Vocabularies
from seqtrain.faults import Fault
from seqtrain.files import plain_json
from seqtrain.folders import LOCK, appearing
from seqtrain.runs import EXPORT, Run
from seqtrain.safety import read_export

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = "model.safetensors"
MAX_HEADER_BYTES = 1 << 24  # some 100 for each weight
FORMAT = 1  # raise it whenever what is written here could not be read before
KEPT = (
    *("task", "metrics", "best", "baselines", "context", "monitor", "signatures", "parameters", "tokens", "steps"),
    *("unknown", "splits", "hashes", "versions"),
)
"""What of a run's summary goes along: what the numbers are, not who computed them where."""


def write(run: Run, vocabularies: Vocabularies, weights: dict[str, Tensor], step: int, target: Path) -> None:
    """Writes `target`, a new folder, whole or not at all; Fault where it exists or cannot be written."""
    if target.exists() or target.is_symlink():
        raise Fault(f"--output {target} exists already; name a new folder")
    try:
        with appearing(target) as folder:
            aliases = _write_weights(folder / WEIGHTS, weights)
            vocabularies.save(folder)
            hashes = {path.name: _hash(path) for path in sorted(folder.iterdir()) if path.name != LOCK}
            about = {"seqtrain_export": FORMAT, "step": step, "hashes": hashes, "aliases": aliases}
            about |= {"vocabulary": _sizes(vocabularies), "config": run.config}
            about["summary"] = {name: value for name, value in run.summary.items() if name in KEPT}
            (folder / EXPORT).write_text(plain_json(about, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise Fault(f"--output {target}: {error.strerror}; make room, or name another folder") from None


def read(folder: Path) -> dict[str, Any]:
    """The weights in an export, as a checkpoint has them; Fault where a file is not what was written."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    about = read_export(folder / EXPORT)
    for name, value in about["hashes"].items():
        path = folder / Path(name).name
        if not path.is_file() or _hash(path) != value:
            raise Fault(f"{path}: missing, or not what was exported; export the run again")
    _check_header(folder / WEIGHTS)
    try:
        weights = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise Fault(f"{folder / WEIGHTS} cannot be read: {error}") from None
    missing = [other for other in about["aliases"].values() if other not in weights]
    if missing:
        raise Fault(f"{folder / EXPORT}: names {missing[0]}, which {WEIGHTS} does not hold")
    weights |= {name: weights[other] for name, other in about["aliases"].items()}
    return {"state_dict": weights, "global_step": about["step"]}


def _check_header(path: Path) -> None:
    """Fault for a header longer than any export's: it is parsed whole, before a weight is looked at."""
    with open_checked(path) as file:
        size = int.from_bytes(file.read(8), "little")
    if size > MAX_HEADER_BYTES:
        raise Fault(
            f"{path} cannot be read: its header has {size:,} bytes, more than any export's; export the run again"
        )


def _write_weights(path: Path, weights: dict[str, Tensor]) -> dict[str, str]:
    """Writes each tensor once; gives for each further name of one its first name."""
    from safetensors.torch import save_file

    kept: dict[str, Tensor] = {}
    aliases, first = {}, {}
    for name, tensor in weights.items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if tensor.numel() and place in first:
            aliases[name] = first[place]
        else:
            first[place] = name
            kept[name] = tensor.clone().contiguous()  # a view would bring the whole of its storage
    save_file(kept, path)
    return aliases


def _sizes(vocabularies: Vocabularies) -> dict[str, int]:
    sizes = {"tokenizer": vocabularies.tokenizer.vocabulary, "target": vocabularies.target_tokenizer.vocabulary}
    return sizes | {"labels": len(vocabularies.labels)}


def _hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
