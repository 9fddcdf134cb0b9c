"""What a run was made of: versions and machine, and how secrets are kept out of its records."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
from pathlib import Path
from typing import Any

from seqtrain.runs.git_commit import commit


def environment() -> dict[str, Any]:
    """Where the run happens: versions, platform, processor, cores, and the commit of a git checkout."""
    packages = ("torch", "pytorch-lightning", "hydra-core", "datasets", "tokenizers", "wandb", "numpy", "seqtrain")
    versions = {"python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "versions": versions,
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": _cores(),
        "commit": commit(Path.cwd()),
    }


SECRETS = ("api_key", "token", "password")  # fields of loggers, at any depth
PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")  # user:password@ of an address
IN_WORD = re.compile(rf"\b({'|'.join(SECRETS)})(\s*[:=]\s*)[^,}}]+")
HIDDEN = "***"


def mask_secrets(config: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of plain values without the secrets of loggers; whatever starts a run again stays as it is.

    Fields called api_key, token or password become `***`, and `user:password@` of an address is left out. References
    such as `${oc.env:NAME}` stay: give it the unresolved config.
    """
    return {key: _masked(value) if key == "logger" else value for key, value in config.items()}


def mask_command(words: list[str]) -> list[str]:
    """Return a copy of a command line without the secrets of loggers."""
    return [_masked_word(word) if word.lstrip("+").startswith("logger") else word for word in words]


def _masked_word(word: str) -> str:
    return word if "${" in word else PASSWORD.sub("", IN_WORD.sub(rf"\1\2{HIDDEN}", word))


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        # An empty field, or a reference that says where the secret is, tells nothing.
        return {
            key: HIDDEN if key in SECRETS and below and "${" not in str(below) else _masked(below)
            for key, below in value.items()
        }
    if isinstance(value, list):
        return list(map(_masked, value))
    return value if not isinstance(value, str) or "${" in value else PASSWORD.sub("", value)


def _cores() -> int | None:
    """Those that this process may use; elsewhere than on Linux nobody says, and all of them are counted."""
    if platform.system() == "Linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
