"""Provenance of a run: versions and machine; secrets are kept out of its records."""

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
    """Return the environment of the run: versions, platform, processor, cores, and the commit of a git checkout."""
    packages = ("torch", "pytorch-lightning", "hydra-core", "datasets", "tokenizers", "wandb", "numpy", "seqtrain")
    versions = {"python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "versions": versions,
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": cores(),
        "commit": commit(Path.cwd()),
    }


SECRETS = ("api_key", "token", "password")  # fields of loggers, at any depth
PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")  # user:password@ of an address
IN_WORD = re.compile(rf"\b({'|'.join(SECRETS)})(\s*[:=]\s*)[^,}}]+")
HIDDEN = "***"


def mask_secrets(config: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of plain values without the secrets of loggers. Values needed to start a run again are kept.

    Fields called api_key, token or password become `***`, and `user:password@` of an address is left out. References
    such as `${oc.env:NAME}` are kept: pass the unresolved config.
    """
    return {**config, "logger": _masked(config["logger"])} if "logger" in config else config


def mask_command(words: list[str]) -> list[str]:
    """Return a copy of a command line without the secrets of loggers."""
    return list(map(_masked_word, words))


def _masked_word(word: str) -> str:
    if "${" in word or not word.lstrip("+").startswith("logger"):
        return word
    return PASSWORD.sub("", IN_WORD.sub(rf"\1\2{HIDDEN}", word))


def _masked(value: Any, key: str = "") -> Any:
    if not value or (isinstance(value, str) and "${" in value):  # a reference does not contain the secret
        return value
    if key in SECRETS:
        return HIDDEN
    if isinstance(value, dict):
        return {name: _masked(below, name) for name, below in value.items()}
    if isinstance(value, list):
        return list(map(_masked, value))
    return PASSWORD.sub("", value) if isinstance(value, str) else value


def cores() -> int | None:
    """Return the number of cores that this process may use; outside Linux, of all cores."""
    if platform.system() == "Linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
