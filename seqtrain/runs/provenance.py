"""What a run was made of: versions and machine, and how secrets are kept out of its records."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
from pathlib import Path
from typing import Any, Literal

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
        "cores": len(os.sched_getaffinity(0))
        if os.name == "posix" and platform.system() == "Linux"
        else os.cpu_count(),
        "commit": commit(Path.cwd()),
    }


PLAIN_WORDS = {"token", "key", "auth"}  # secret only where the value is text: key_dim=64 is none
SECRET_WORDS = {"secret", "secrets", "password", "passwords", "passwd", "credential", "credentials", "apikey"}
SECRET_TEXT = re.compile(r"(?<=://)[^/@\s]+(?=@)|\b(?:hf_|sk-|ghp_|github_pat_)\w{16,}")  # user:password@, known tokens
REFERENCE = re.compile(r"\$\{oc\.env:\w+\}")  # says where a secret is, not what it is
HIDDEN = "***"


def mask_secrets(config: dict[str, Any]) -> dict[str, Any]:
    """A copy of plain values with `***` for secrets: give it the unresolved config, so that `${oc.env:X}` stays.

    By key (words such as token, key, secret, password, credential) and by look (`user:password@host`, `hf_...`).
    """
    return {key: _masked(value, secret=_secrecy(str(key))) for key, value in config.items()}


def mask_command(words: list[str]) -> list[str]:
    """A copy of a command line with `***` for the values of secret keys."""
    masked = []
    for word in words:
        key, equals, value = word.partition("=")
        secret = _secrecy(re.split(r"[./@+~]", key)[-1]) != "open"
        masked.append(f"{key}={HIDDEN}" if equals and secret and value else SECRET_TEXT.sub(HIDDEN, word))
    return masked


def _secrecy(key: str) -> Literal["open", "text", "all"]:
    words = set(re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower()))
    return "all" if words & SECRET_WORDS else "text" if words & PLAIN_WORDS else "open"


def _masked(value: Any, secret: Literal["open", "text", "all"]) -> Any:
    if isinstance(value, dict):
        return {key: _masked(below, _secrecy(str(key)) if secret == "open" else secret) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(below, secret) for below in value]
    if value is None or isinstance(value, bool) or value == "" or REFERENCE.fullmatch(str(value)):
        return value
    if secret == "all" or (secret == "text" and isinstance(value, str)):
        return HIDDEN
    return SECRET_TEXT.sub(HIDDEN, value) if isinstance(value, str) else value


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
