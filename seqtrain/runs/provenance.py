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
        "cores": _cores(),
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
        if equals and value and _secrecy(re.split(r"[./@+~]", key)[-1]) != "open":
            masked.append(f"{key}={HIDDEN}")
        else:
            masked.append(SECRET_TEXT.sub(HIDDEN, word))
    return masked


# A key with a text as its value, in a line of a program, of YAML, or of JSON.
LITERAL = re.compile(r"""(?P<key>[A-Za-z_][\w.-]*)["']?\s*[:=]\s*[bfr]?["'](?P<value>[^"']{6,})["']""")
# A key with a value that has no quotes, as YAML and files of an environment have it.
PLAIN = re.compile(r"""^\W*(?:export )?(?P<key>[A-Za-z_][\w.-]*)\s*[:=]\s*(?P<value>[^\s()]{6,})$""")


def mask_line(line: str) -> str:
    """A line of a program or a configuration with `***` for texts of secret keys, and for what looks secret."""
    for pattern in (LITERAL, PLAIN):
        for found in reversed(list(pattern.finditer(line))):
            secrecy = _secrecy(found["key"])
            if secrecy == "all" or (secrecy == "text" and pattern is LITERAL):
                line = f"{line[: found.start('value')]}{HIDDEN}{line[found.end('value') :]}"
    return SECRET_TEXT.sub(HIDDEN, line)


def says_secret(name: str) -> bool:
    """Whether a name, such as that of a file, says that a secret is in it."""
    separated = re.split(r"[^a-z]+", name.lower())
    return not SECRET_WORDS.isdisjoint(separated)


def _secrecy(key: str) -> Literal["open", "text", "all"]:
    """Whether values under this key are hidden: none, those that are text, or all."""
    separated = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key)  # apiKey has the words api and key
    words = set(re.split(r"[^a-z]+", separated.lower()))
    if words & SECRET_WORDS:
        return "all"
    if words & PLAIN_WORDS:
        return "text"
    return "open"


def _masked(value: Any, secret: Literal["open", "text", "all"]) -> Any:
    if isinstance(value, dict) and secret == "open":
        return mask_secrets(value)
    if isinstance(value, dict):  # all that lies below a secret key is secret, whatever its own key says
        return {key: _masked(below, secret) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(below, secret) for below in value]
    if value is None or isinstance(value, bool) or value == "" or REFERENCE.fullmatch(str(value)):
        return value
    if secret == "all" or (secret == "text" and isinstance(value, str)):
        return HIDDEN
    if isinstance(value, str):
        return SECRET_TEXT.sub(HIDDEN, value)
    return value


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
