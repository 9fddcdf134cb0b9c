"""What of a run directory is refused before it is read, since a stranger may have made it: ways out, bombs, traps."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from seqtrain.faults import Fault

FILES = {
    "config.yaml": 1 << 20,
    "config.json": 1 << 24,
    "summary.json": 1 << 24,
    "metrics.jsonl": 1 << 32,
    "tokenizer.json": 1 << 28,
    "target_tokenizer.json": 1 << 28,
    "labels.json": 1 << 24,
    "wandb_id": 1 << 10,
    "wandb_sent": 1 << 10,
    "mlflow_id": 1 << 10,
    ".lock": 1 << 10,
}
"""Files of a run directory, and the most bytes that each may have: they are read, or written, without a second look."""

SUMMARY = {"status": str, "steps": int, "max_steps": int, "hashes": dict, "metrics": dict}
"""Entries of summary.json that others rely on."""

EXPORTED = {"seqtrain_export": int, "step": int, "hashes": dict, "aliases": dict, "config": dict, "summary": dict}
"""Entries that config.json of an export must have."""

FOLDERS = ("checkpoints", "samples", "plots", "tensorboard", "wandb")
ENVIRONMENT = "oc.env"
"""What `--trust` names to let a configuration of others read environment variables."""


def check_entries(root: Path) -> None:
    """Fault unless everything below a run directory is a file or a folder of its own, and of a kind that it may be.

    A link that leads outside would be written through, and a named pipe waited for. What W&B keeps in the folder of
    each sitting is its own: it links its logs elsewhere, and never writes there again.
    """
    home = root.resolve()
    for folder, below, files in os.walk(root):
        for name in (*below, *files):
            path = Path(folder, name)
            with contextlib.suppress(FileNotFoundError):  # a temporary file of whoever trains the run right now
                if reason := _reason(path, home, top=Path(folder) == root):
                    raise Fault(f"{path}: {reason}")
        if Path(folder) == root / "wandb":
            below.clear()


def _reason(path: Path, home: Path, *, top: bool) -> str | None:
    """Why a run directory may not hold this, or None."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        if not _inside(path, home):
            return "a link that leads out of the run directory, which is not followed; put there what it points to"
        found = path.stat()
    is_file, is_folder = stat.S_ISREG(found.st_mode), stat.S_ISDIR(found.st_mode)
    if not (is_file or is_folder):
        return "neither a file nor a folder; remove it"
    if is_folder and (path.suffix == ".ckpt" or (top and path.name in FILES)):
        return "a folder where a run has a file"
    if is_file and top and path.name in FOLDERS:
        return "a file where a run has a folder"
    if top and found.st_size > FILES.get(path.name, found.st_size):
        return f"{found.st_size:,} bytes, more than any run writes there ({FILES[path.name]:,})"
    return None


def _inside(link: Path, home: Path) -> bool:
    try:
        return link.resolve().is_relative_to(home)
    except (OSError, RuntimeError):  # a circle of links
        return False


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # eight times as fast where PyYAML has it
MOST_NESTED = 100  # levels of YAML: the fast loader has no limit of its own, and would end the process


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file, in plain values; Fault when it cannot be read."""
    try:
        text = path.read_text("utf-8")
        _check_plain(text)
        content = yaml.load(text, _LOADER)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise Fault(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise Fault(f"{path} cannot be read: it holds no mapping")
    return content


def _check_plain(text: str) -> None:
    """YAMLError unless YAML is as large and as deep as it looks: a few aliases may stand for gigabytes."""
    depth = 0
    for event in yaml.parse(text, _LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("it holds an alias, which no run writes")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_NESTED:
            raise yaml.YAMLError(f"it is nested more than {MOST_NESTED} deep, which no run is")


def read_json(path: Path) -> Any:
    """The value in a JSON file; Fault when it cannot be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Fault(f"{path} cannot be read: {error}") from None


def read_summary(path: Path) -> dict[str, Any]:
    """The summary of a run; Fault where it is damaged, or where what others rely on is of another kind."""
    summary = read_json(path)
    if not isinstance(summary, dict):
        raise Fault(f"{path} cannot be read: it holds no mapping")
    for name, kind in SUMMARY.items():
        if name in summary and type(summary[name]) is not kind:
            raise Fault(f"{path}: {name}={summary[name]}: not what a run writes there")
    return summary


def read_export(path: Path) -> dict[str, Any]:
    """What config.json of an export says; Fault where it is damaged, or of another program or version."""
    about = read_json(path)
    if not isinstance(about, dict) or about.get("seqtrain_export") != 1:
        raise Fault(f"{path}: not what this version of `seqtrain export` writes; export the run again")
    for name, kind in EXPORTED.items():
        if type(about.get(name)) is not kind:
            raise Fault(f"{path}: {name}={about.get(name)}: not what `seqtrain export` writes there")
    texts = [*about["hashes"].values(), *about["aliases"].values()]
    if not all(isinstance(text, str) for text in texts):
        raise Fault(f"{path}: hashes or aliases hold something else than text; export the run again")
    return about


def check_references(config: Any, where: Path, trust: Sequence[str]) -> None:
    """Fault for a value that would be worked out on this machine, such as `${oc.env:NAME}`, unless that is trusted.

    A run keeps only references to the environment, and from there secrets would go to the loggers that it names.
    """
    if ENVIRONMENT in trust:
        return
    for path, value in _texts(config):
        if "${" in value:
            raise Fault(
                f"{where}: {path}={value}: reads the environment of this machine; "
                f"if you trust the run, add --trust {ENVIRONMENT}"
            )


def _texts(node: Any, path: str = "") -> list[tuple[str, str]]:
    """Path and value of every text in plain containers."""
    if isinstance(node, str):
        return [(path, node)]
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [found for key, below in children for found in _texts(below, f"{path}.{key}" if path else str(key))]
