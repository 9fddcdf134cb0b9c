"""Checkpoint files: written atomically, verified before they are read, and unable to execute code.

A checkpoint is one safetensors file whose metadata holds everything else as JSON, so other tools can read its tensors.
JSON writes a tensor as `{"$tensor": name}`, a tuple as `{"$tuple": [...]}`, a set as `{"$set": [...]}`, and a mapping
with other keys than plain text as `{"$items": [...]}`. A digest of the whole file detects damage.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from seqtrain.errors import Unavailable, UserError
from seqtrain.files.atomic import atomic, exists, listed, remove_temporary
from seqtrain.runs.identity import other_writer

if TYPE_CHECKING:
    from torch import Tensor


FORMAT = "seqtrain checkpoint 1"
NO_DIGEST = "0" * 8  # placeholder in the header while the digest, a CRC-32, is computed
MAX_HEADER_BYTES = 100_000_000  # as in safetensors
MAX_DEPTH = 64
PICKLED = b"PK\x03\x04"  # first bytes of torch's own checkpoints
CHUNK = 1 << 20

CUT = "it was truncated or changed on disk"
FOREIGN = "it is a pickle file of seqtrain 0.1, which could run code when opened; train the run again"
OTHER = "its content is not a checkpoint"

# Types of tensors, by their names in safetensors.
TYPES = {
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool"},
    **{"I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8"},
}
NAMES = {f"torch.{name}": short for short, name in TYPES.items()}


class Unsound(ValueError):
    """A file is damaged or not a checkpoint; the message is the reason."""


def write(content: Any, file: IO[bytes]) -> None:
    """Write tensors and plain containers into an open file.

    Raises:
        TypeError: `content` contains something else. The message names the place. Nothing is written.
    """
    tensors: dict[str, Tensor] = {}
    plain = _encoded(content, "checkpoint", tensors, {})
    # Large types first, so that each tensor begins at a multiple of its own size.
    stored = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    metadata = {"digest": NO_DIGEST, "format": FORMAT, "content": json.dumps(plain)}
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, tensor in stored:
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": NAMES[str(tensor.dtype)], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    size = len(text).to_bytes(8, "little")
    digest = zlib.crc32(size + text)
    for _, tensor in stored:
        digest = zlib.crc32(_bytes(tensor), digest)
    file.write(size + text.replace(NO_DIGEST.encode(), f"{digest:08x}".encode(), 1))  # the first entry of the header
    for _, tensor in stored:
        file.write(_bytes(tensor))


def read(path: Path, *, tensors: bool = True) -> Any:
    """Read what `write` wrote, on the CPU.

    Args:
        path: The file.
        tensors: False: each tensor is read only for the digest, and returned as None.

    Raises:
        Unsound: The file is damaged, or is not a checkpoint.
        OSError: The file cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    try:
        text, names = _verified(path)
        found: dict[str, Any] = dict.fromkeys(names)
        if tensors:
            with safe_open(path, "pt") as file:
                # Copied for alignment: in the mapped file a tensor may begin at any address, and the last bit of a
                # matrix product depends on it. A resumed run needs the alignment of torch's own allocator.
                found = {name: file.get_tensor(name).clone() for name in names}
        return json.loads(text, object_hook=lambda node: _decoded(node, found))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise error if isinstance(error, Unsound) else Unsound(OTHER) from None


def _verified(path: Path) -> tuple[str, list[str]]:
    """Return the JSON of a file and the names of its tensors. Raises Unsound if a bit was changed."""
    with open(path, "rb") as file:
        size = file.read(8)
        if size.startswith(PICKLED):
            raise Unsound(FOREIGN)
        length, num_bytes = int.from_bytes(size, "little"), os.fstat(file.fileno()).st_size
        if not 0 < length <= min(MAX_HEADER_BYTES, num_bytes):
            raise Unsound(CUT)
        text = file.read(length)
        try:
            header = json.loads(text)
            metadata = header.pop("__metadata__")
            written = metadata["digest"]
            end = max([0, *(entry["data_offsets"][1] for entry in header.values())])
            # Checked before the digest, which reads the whole file, whatever its size.
            if num_bytes != len(size) + length + end:
                raise Unsound(CUT)
            digest = zlib.crc32(size + text.replace(written.encode(), NO_DIGEST.encode(), 1))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Unsound(CUT) from None
        while chunk := file.read(CHUNK):
            digest = zlib.crc32(chunk, digest)
    if f"{digest:08x}" != written:
        raise Unsound(CUT)
    if metadata.get("format") != FORMAT:
        raise Unsound(OTHER)
    return metadata["content"], list(header)


def _bytes(tensor: Tensor) -> memoryview:
    import torch

    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _encoded(value: Any, place: str, tensors: dict[str, Tensor], seen: dict[Any, str], depth: int = 0) -> Any:
    """Return a value as plain JSON; its tensors are added to `tensors` by their place.

    Args:
        value: Tensors and plain containers, at any depth.
        place: Name of the value.
        tensors: Receives each tensor once, on the CPU and contiguous.
        seen: Names of tensors by their memory: tied weights are stored once.
        depth: Containers around the value.
    """
    import torch

    def below(each: Any, name: str) -> Any:
        return _encoded(each, name, tensors, seen, depth + 1)

    if depth > MAX_DEPTH:
        raise TypeError(f"{place[:60]}... is nested more than {MAX_DEPTH} deep")
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return _encoded_tensor(value.detach(), place, tensors, seen)
    if isinstance(value, dict):
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: below(each, f"{place}[{key!r}]") for key, each in value.items()}
        pairs = [(below(key, f"a key of {place}"), below(each, f"{place}[{key!r}]")) for key, each in value.items()]
        return {"$items": pairs}
    if isinstance(value, list | tuple | set):
        entries = [below(each, f"{place}[{number}]") for number, each in enumerate(value)]
        return entries if isinstance(value, list) else {f"${'set' if isinstance(value, set) else 'tuple'}": entries}
    if type(value) not in (str, int, float, bool, type(None)):
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise TypeError(f"{place} is a {kind}: a checkpoint contains only tensors and plain containers")
    return value


def _encoded_tensor(value: Tensor, place: str, tensors: dict[str, Tensor], seen: dict[Any, str]) -> dict[str, Any]:
    import torch

    if value.layout != torch.strided or value.is_meta or str(value.dtype) not in NAMES:
        raise TypeError(f"{place} is a tensor of {value.dtype}, {value.layout}, on {value.device}: it cannot be stored")
    key = (value.data_ptr(), value.shape, value.stride(), value.dtype, value.device) if value.numel() else place
    # Dimensions in memory order: fused optimizers ignore strides, so the layout is kept.
    order = sorted(range(value.dim()), key=lambda dim: -value.stride(dim))
    moved = [] if value.is_contiguous() or not value.permute(order).is_contiguous() else order
    if key not in seen:
        seen[key] = place
        tensors[place] = (value.permute(moved) if moved else value).cpu().contiguous()
    return {"$tensor": seen[key], **({"$order": moved} if moved else {})}


def _decoded(node: dict[str, Any], tensors: dict[str, Any]) -> Any:
    """Decode a JSON object; everything inside it is decoded already."""
    if "$tensor" in node:
        found = tensors[node["$tensor"]]
        order = node.get("$order")
        if order is None or found is None:
            return found
        return found.permute([order.index(dim) for dim in range(len(order))])
    for name, kind in (("$tuple", tuple), ("$set", set), ("$items", dict)):
        if name in node:
            return kind(node[name])
    return node


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
        write(obj, file)


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
        return read(path, tensors=tensors)
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
