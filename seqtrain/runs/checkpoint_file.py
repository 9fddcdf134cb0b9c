"""Format of a checkpoint: one safetensors file whose metadata holds everything else as JSON.

Nothing in it can be executed, and other tools can read its tensors. JSON writes a tensor as `{"$tensor": name}`, a
tuple as `{"$tuple": [...]}`, a set as `{"$set": [...]}`, and a mapping with other keys than plain text as
`{"$items": [...]}`. A digest of the whole file detects damage.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

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
