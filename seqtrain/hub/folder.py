"""A possibly untrusted folder in the format of the Hugging Face hub: JSON and safetensors, no code."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.errors import UserError, kind_of
from seqtrain.files.checked import load_json, open_checked
from seqtrain.runs.export import shapes_of

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
SPECIAL_TOKENS = ("special_tokens_map.json", "tokenizer_config.json")  # the second takes precedence
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
MAX_CONFIG_BYTES = 1 << 20
MAX_JSON_BYTES = 1 << 27


@dataclass(frozen=True)
class HubFolder:
    """A folder of the hub. Every method raises UserError for a file that is missing, damaged or not allowed."""

    path: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """Content of config.json."""
        if not (self.path / CONFIG).is_file():
            raise UserError(f"{self.path}: has no {CONFIG}; name a folder of the Hugging Face hub")
        about = self.json(CONFIG, MAX_CONFIG_BYTES)
        if not isinstance(about, dict):
            raise UserError(f"{self.path / CONFIG}: expected a JSON object")
        if "auto_map" in about:
            raise UserError(f"{self.path / CONFIG}: auto_map needs code from the folder, which is never run")
        return about

    def json(self, name: str, limit: int = MAX_JSON_BYTES) -> Any:
        """Return the content of a JSON file."""
        try:
            return load_json(self.path / name, limit)
        except (OSError, ValueError, RecursionError) as error:
            raise kind_of(error)(f"{self.path / name} cannot be read: {error}") from None

    def optional_json(self, name: str) -> dict[str, Any]:
        """Return the mapping in a JSON file; empty if the folder has no such file."""
        content = self.json(name) if (self.path / name).is_file() else {}
        return content if isinstance(content, dict) else {}

    @cached_property
    def files(self) -> list[Path]:
        """Files with weights; none is missing."""
        if (self.path / WEIGHTS).is_file():
            return [self.path / WEIGHTS]
        if not (self.path / INDEX).is_file():
            if any((self.path / name).is_file() for name in PICKLES):
                raise UserError(
                    f"{self.path}: has weights only as a pickle, which could run code; save them as safetensors"
                )
            raise UserError(f"{self.path}: has no {WEIGHTS}")
        index = self.json(INDEX)
        names = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise UserError(f"{self.path / INDEX}: has no weight_map")
        files = []
        for name in sorted(set(names.values())):
            if Path(name).name != name:
                raise UserError(f"{self.path / INDEX}: {name} is outside the folder")
            if not (self.path / name).is_file():
                raise UserError(f"{self.path}: {name} is missing, but {INDEX} names it")
            files.append(self.path / name)
        return files

    @cached_property
    def shapes(self) -> dict[str, Tensor]:
        """Weights by name on the meta device, read from the file headers only."""
        found: dict[str, Tensor] = {}
        for path in self.files:
            found |= shapes_of(path, remedy="get the folder again")
        return found

    def weights(self) -> dict[str, Tensor]:
        """Return all weights by name, in float32."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        found: dict[str, Tensor] = {}
        for path in self.files:
            try:
                found |= {name: value.float() for name, value in load_file(path).items()}
            except (OSError, SafetensorError) as error:
                raise UserError(f"{path} cannot be read: {error}") from None
        return found

    @property
    def hash(self) -> str:
        """Hash of everything that a conversion reads: config, tokenizer, special tokens, weights."""
        digest = hashlib.sha256()
        for path in (*(self.path / name for name in (CONFIG, TOKENIZER, *SPECIAL_TOKENS)), *self.files):
            if path.is_file():
                found = path.stat()
                digest.update(f"{path.name} {_hash(path, found.st_size, found.st_mtime_ns)}".encode())
        return digest.hexdigest()


@functools.cache
def _hash(path: Path, size: int, changed: int) -> str:
    """Return the hash of a file. It is cached until size or time change, because a start needs it several times."""
    with open_checked(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
