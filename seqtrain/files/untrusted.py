"""Checks of untrusted files before they are read: links that lead out, oversized files, and traps.

The number, depth and size of the values of a YAML file are limited, with its aliases expanded.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from seqtrain.errors import UserError, kind_of
from seqtrain.files.atomic import reading, walked
from seqtrain.files.checked import LINK, NO_FILE, load_json, read_checked, stays_within

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # eight times as fast where PyYAML has it
MAX_BYTES = 1 << 20
MAX_NESTING = 100  # the fast loader has no limit, and would crash the process
MAX_VALUES = 1 << 18  # with aliases expanded
MAX_NUMBER_CHARACTERS = 100  # 1:59:59 is a number, parsed in quadratic time
DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?")
NUMBER = re.compile(r"[-+]?[0-9.][-+0-9a-fA-FxXo._:]*")
# Tags that a person may write; with other tags PyYAML fails on values that do not match.
TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "float", "null", "map", "seq")}


def check_plain(text: str, *, written_by: Literal["run", "person"]) -> None:
    """Check YAML against these limits without loading it.

    Args:
        text: The YAML.
        written_by: A run writes neither aliases nor tags; a person may.

    Raises:
        yaml.YAMLError: It is not YAML, or beyond a limit.
    """
    sizes: dict[str, int] = {}  # values below each anchor
    names: list[str | None] = []
    counts = [0]  # values in each collection that is open
    for event in yaml.parse(text, LOADER):
        _check_kind(event, written_by)
        if isinstance(event, yaml.CollectionStartEvent):
            counts.append(1)
            names.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            name, size = names.pop(), counts.pop()
            sizes |= {name: size} if name else {}
            counts[-1] += size
        elif isinstance(event, yaml.AliasEvent):
            counts[-1] += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            counts[-1] += 1
        if len(names) > MAX_NESTING:
            raise yaml.YAMLError(f"it is nested more than {MAX_NESTING} deep")
        if counts[-1] > MAX_VALUES:
            raise yaml.YAMLError(f"it holds more than {MAX_VALUES:,} values, with what its aliases stand for")


def _check_kind(event: yaml.Event, written_by: str) -> None:
    """Raise YAMLError for a tag, an alias, a date or a number that is not allowed."""
    tag = getattr(event, "tag", None)
    if tag is not None and (written_by == "run" or tag not in TAGS):
        raise yaml.YAMLError(f"it holds a tag, {tag}")
    if written_by == "run" and isinstance(event, yaml.AliasEvent):
        raise yaml.YAMLError("it holds an alias, which no run writes")
    if not isinstance(event, yaml.ScalarEvent):
        return
    if written_by == "run" and event.implicit[0] and DATE.fullmatch(event.value):
        raise yaml.YAMLError("it holds a date without quotes, which no run writes")
    if event.implicit[0] and len(event.value) > MAX_NUMBER_CHARACTERS and NUMBER.fullmatch(event.value):
        raise yaml.YAMLError(f"it holds a number of {len(event.value):,} characters")


# Files of a run directory, and their largest sizes in bytes: they are read, or written, without further checks.
FILES = {
    "config.yaml": MAX_BYTES,
    "config.json": 1 << 24,
    "summary.json": 1 << 24,
    "metrics.jsonl": 1 << 32,
    "evaluations.jsonl": 1 << 24,
    "sweep.yaml": MAX_BYTES,
    "tokenizer.json": 1 << 27,
    "target_tokenizer.json": 1 << 27,
    "labels.json": 1 << 24,
    "scale.json": 1 << 12,
    "series.json": 1 << 26,
    "code.diff": 1 << 19,
    "train.sketch": 1 << 18,
    "wandb_id": 1 << 10,
    "mlflow_id": 1 << 10,
    ".lock": 1 << 10,
}

# Files by which the folder of a run, a sweep or an export is known.
MARKS = ("config.yaml", "sweep.yaml", "config.json")

# Further files in these folders, or beside them, that cannot be made again.
ALSO_KEPT = ("index.json", "study.db", "mlflow.db")

# Entries that config.json of an export must have.
EXPORTED = {"seqtrain_export": int, "step": int, "hashes": dict, "aliases": dict, "config": dict, "summary": dict}

FOLDERS = ("checkpoints", "samples", "plots", "tensorboard", "wandb")
MAX_DEPTH = 50  # of folders below a run directory
# Value of `--trust` that lets an untrusted config read environment variables.
ENVIRONMENT = "oc.env"


def check_entries(root: Path) -> None:
    """Raise UserError unless everything below a run directory is an allowed file or folder that lies in it.

    A link that leads outside would be written through, and a named pipe would block. W&B's folders of attempts are not
    entered: W&B links its logs elsewhere, and never writes there again.
    """
    home = root.resolve()
    for folder, below, files in walked(root, _cannot_list):
        if below and folder.count(os.sep) - os.fspath(root).count(os.sep) >= MAX_DEPTH:
            raise UserError(f"{root}: folders are nested more than {MAX_DEPTH} deep, which no run does; remove them")
        for name in (*below, *files):
            path = Path(folder, name)
            with contextlib.suppress(FileNotFoundError):  # a temporary file of a process that trains the run now
                if reason := _reason(path, home, top=Path(folder) == root):
                    raise UserError(f"{path}: {reason}")
        if Path(folder) == root / "wandb":
            below.clear()


def _cannot_list(error: OSError) -> None:
    """Raise UserError for a folder that cannot be listed, unless it was removed meanwhile."""
    with contextlib.suppress(FileNotFoundError), reading(Path(error.filename)):
        raise error


def _reason(path: Path, home: Path, *, top: bool) -> str | None:
    """Return why a run directory may not hold this path, or None."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        if not stays_within(path, home):
            return LINK
        found = path.stat()
    is_file, is_folder = stat.S_ISREG(found.st_mode), stat.S_ISDIR(found.st_mode)
    if not (is_file or is_folder):
        return NO_FILE
    if is_folder and (path.suffix == ".ckpt" or (top and path.name in FILES)):
        return "a folder where a run has a file"
    if is_file and top and path.name in FOLDERS:
        return "a file where a run has a folder"
    if top and found.st_size > FILES.get(path.name, found.st_size):
        return f"{found.st_size:,} bytes, but no run writes more than {FILES[path.name]:,} into this file"
    return None


def check_output(option: str, path: Path) -> None:
    """Raise UserError for an output that would overwrite a file of a run, a sweep or an export."""
    real = Path(os.path.realpath(path))
    kept = real.name in (*FILES, *ALSO_KEPT) or real.suffix in (".ckpt", ".safetensors")
    if kept and real.is_file() and any((home / mark).is_file() for home in real.parents[:2] for mark in MARKS):
        raise UserError(
            f"{option} {path}: this file belongs to {real.parent} and would be overwritten; name another file"
        )


MAX_WORD_CHARACTERS, MAX_BRACKETS = 1 << 16, 500
MAX_OTHER_BYTES = 1 << 24  # of a JSON file that FILES does not name


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, in plain values. Raises UserError if it cannot be read."""
    try:
        text = read_checked(path, FILES.get(path.name, MAX_BYTES)).decode("utf-8")
        check_plain(text, written_by="run")
        content = yaml.load(text, LOADER)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise kind_of(error)(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} cannot be read: it holds no mapping")
    return content


def is_word(word: Any) -> bool:
    """Return True if this is an override that can be parsed quickly: Hydra takes seconds for thousands of brackets."""
    return isinstance(word, str) and len(word) <= MAX_WORD_CHARACTERS and sum(map(word.count, "[{(")) <= MAX_BRACKETS


def read_json(path: Path) -> Any:
    """Return the value in a JSON file. Raises UserError if it cannot be read."""
    try:
        return load_json(path, FILES.get(path.name, MAX_OTHER_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise kind_of(error)(f"{path} cannot be read: {error}") from None


def read_export(path: Path) -> dict[str, Any]:
    """Return config.json of an export. Raises UserError if it is damaged, or written by another program or version."""
    about = read_json(path)
    if not isinstance(about, dict) or about.get("seqtrain_export") != 1:
        raise UserError(f"{path}: not written by `seqtrain export` of this version; export the run again")
    for name, kind in EXPORTED.items():
        if type(about.get(name)) is not kind:
            raise UserError(f"{path}: {name}={about.get(name)}: `seqtrain export` writes no such value")
    texts = [*about["hashes"].values(), *about["aliases"].values()]
    if not all(isinstance(text, str) for text in texts):
        raise UserError(f"{path}: hashes and aliases must be text; export the run again")
    return about


HUB = "hub:"  # before the name of a model that is downloaded from the Hugging Face hub


def is_foreign(origin: Path | str) -> bool:
    """Return True for `hub:NAME`, and for a folder of the hub: its config.json has a `model_type` and is not ours."""
    if str(origin).startswith(HUB):
        return True
    try:
        about = load_json(Path(origin) / "config.json", FILES["config.json"])
    except (OSError, ValueError, RecursionError, UserError):
        return False
    return isinstance(about, dict) and "model_type" in about and "seqtrain_export" not in about


def check_references(config: Any, where: Path, trust: Sequence[str]) -> None:
    """Raise UserError for a value resolved on this machine, such as `${oc.env:NAME}`, unless `trust` allows it.

    A run keeps only references to the environment. From there secrets would go to the loggers that the run names.

    Args:
        config: Plain containers of the config.
        where: The file, for the message.
        trust: Values of `--trust`.
    """
    if ENVIRONMENT in trust:
        return
    for path, value in _texts(config):
        if "${" in value:
            raise UserError(
                f"{where}: {path}={value}: reads the environment of this machine; "
                f"if you trust the run, add --trust {ENVIRONMENT}"
            )


def _texts(node: Any, path: str = "") -> list[tuple[str, str]]:
    """Return path and value of every text in plain containers."""
    if isinstance(node, str):
        return [(path, node)]
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [found for key, below in children for found in _texts(below, f"{path}.{key}" if path else str(key))]
