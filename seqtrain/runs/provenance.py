"""Provenance of a run: versions, machine and commit; secrets are kept out of its records.

The commit is read without running any code from the checkout. Even `git status` runs programs named in .git/config:
core.fsmonitor, filters, the configurations of submodules. So git compares the checkout through our own git folder,
which has no configuration. `git rev-parse` runs none of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from seqtrain.errors import UserError
from seqtrain.files.atomic import write_text
from seqtrain.files.checked import copy_checked, read_checked
from seqtrain.runs.summary import Summary


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


PATIENCE_SECONDS = 5
MAX_INDEX_BYTES = 1 << 28
PLACES = ("--show-toplevel", "--absolute-git-dir", "--path-format=absolute", "--git-common-dir")


def commit(folder: Path) -> str | None:
    """Return the commit of the checkout that contains `folder`: with `+` if files differ, `?` if git cannot tell.

    Returns None if there is no checkout, or it cannot be read.
    """
    found = checkout_of(folder)
    return None if found is None else found.head + _difference(found)


@dataclass(frozen=True)
class Checkout:
    """A git checkout and its commit."""

    head: str
    top: Path
    home: Path  # its git folder
    shared: Path  # the git folder of the repository, which differs from `home` in a worktree

    def ask(self, *words: str) -> bytes | None:
        """Return git's output about the files of this checkout; None if git fails.

        Args:
            words: A command and its options, such as `status`.
        """
        with tempfile.TemporaryDirectory(prefix="seqtrain-") as own:
            try:
                env = self._environment(Path(own))
                copy_checked(self.home / "index", Path(own, "index"), MAX_INDEX_BYTES)
            except (OSError, UserError):
                return None
            return _git(self.top, env, *words)

    def _environment(self, own: Path) -> dict[str, str]:
        """Create a git folder without any configuration, and return the environment that makes git use it."""
        kind = "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n"
        (own / "config").write_text(kind if len(self.head) == 64 else "")
        (own / "HEAD").write_text(f"{self.head}\n")
        (own / "refs").mkdir()
        return {
            "GIT_DIR": str(own),
            "GIT_WORK_TREE": str(self.top),
            "GIT_OBJECT_DIRECTORY": str(self.shared / "objects"),
        }


def _git(folder: Path, env: dict[str, str], *words: str) -> bytes | None:
    """Return git's output in a folder, without the settings of user and system; None if git fails.

    Args:
        folder: Working folder of git.
        env: Changes of the environment.
        words: A command and its options.
    """
    search = os.environ.get("PATH", os.defpath).split(os.pathsep)
    git = shutil.which("git", path=os.pathsep.join(filter(os.path.isabs, search)))  # never a git in the working folder
    if git is None:
        return None
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    kept |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    kept |= {"GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    # safe.directory: git refuses checkouts of other users because their settings may run programs; ours do not.
    command = [git, "-c", f"core.hooksPath={os.devnull}", "-c", "safe.directory=*", *words]
    try:
        answer = subprocess.run(
            command, env=kept | env, cwd=folder, capture_output=True, timeout=PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if answer.returncode else answer.stdout


def checkout_of(folder: Path) -> Checkout | None:
    """Return the checkout that holds `folder`; None if there is none, or it has no commit that git can read."""
    answer = _git(folder, {}, "rev-parse", *PLACES, "--verify", "--end-of-options", "HEAD")
    if answer is None:
        return None
    places = os.fsdecode(answer).rstrip("\n").split("\n")
    if len(places) != 4:  # a folder's name contains a line break
        return None
    top, home, shared, head = places
    return Checkout(head, Path(top), Path(home), Path(shared))


def _difference(checkout: Checkout) -> str:
    """Return `+` if a file of the checkout differs from its commit, `?` if git cannot tell, or an empty string."""
    answer = checkout.ask("status", "--porcelain", "-uno", "--ignore-submodules=all")
    if answer is None:
        return "?"
    return "+" if answer.strip() else ""


CODE_DIFF = "code.diff"
MAX_KEPT_BYTES = 1 << 18  # of a diff's text: run directories must stay small
MAX_UNTRACKED_FILES = 200
MAX_UNTRACKED_BYTES = 1 << 20  # of one file: code is smaller
UNTRACKED_CODE = ("*.py",)  # no YAML: runs in the checkout write YAML themselves
# Names of files that hold secrets.
SECRET_FILE = re.compile(
    r"\.(env|pem|key|p12|netrc|npmrc|pypirc)\b|secret|password|passwd|credential|api_?key", re.IGNORECASE
)
FILE = re.compile(rb"^diff --git ", re.MULTILINE)


@dataclass(frozen=True)
class CodeDiff:
    """Difference between the files of a checkout and its commit."""

    hash: str  # of all tracked changes and untracked code, also of parts that are not stored
    text: str  # the stored part: no file that may contain secrets, at most MAX_KEPT_BYTES
    about: dict[str, Any]  # for the summary

    def write(self, run: Path) -> None:
        """Write the text into a run's directory, replacing that of an earlier attempt."""
        write_text(run / CODE_DIFF, self.text)


def code_entries(summary: Summary, diff: CodeDiff | None) -> dict[str, Any]:
    """Return the summary's entries on code, of earlier attempts and of this one.

    Args:
        summary: Summary that already has the commit.
        diff: Difference between the code and that commit. None: there is none.
    """
    if summary.commit is None:
        return {}
    code = summary.commit
    if diff is not None:
        code = f"{code.rstrip('+')}+{diff.hash}"
    entries: dict[str, Any] = {"code": list(dict.fromkeys([*summary.code, code]))}
    if diff is not None:
        entries["diff"] = diff.about
    return entries


def code_diff(folder: Path) -> CodeDiff | None:
    """Return the difference between the code and its commit in the checkout that holds `folder`, or None.

    Files that git ignores are left out. Of untracked files, Python files are hashed, and their names are kept without
    the content.
    """
    checkout = checkout_of(folder)
    if checkout is None:
        return None
    words = ("--no-ext-diff", "--no-textconv", "--no-color", "--full-index", "--ignore-submodules=all")
    tracked = checkout.ask("diff", checkout.head, *words)
    untracked = _untracked(checkout)
    if not tracked and not untracked:
        return None
    tracked = tracked or b""
    digest = hashlib.blake2b(tracked, digest_size=4)
    for name, content in untracked.items():
        digest.update(name.encode() + b"\0" + hashlib.blake2b(content).digest())
    text, left_out = _kept(tracked)
    about = {"hash": digest.hexdigest(), "bytes": len(tracked), "untracked": list(untracked), "left_out": left_out}
    return CodeDiff(digest.hexdigest(), text, about)


def _untracked(checkout: Checkout) -> dict[str, bytes]:
    """Return the content of untracked code, by path."""
    answer = checkout.ask("ls-files", "-z", "--others", "--exclude-standard", "--", *UNTRACKED_CODE)
    found = {}
    for name in sorted((answer or b"").decode(errors="replace").split("\0"))[: MAX_UNTRACKED_FILES + 1]:
        if not name or SECRET_FILE.search(PurePosixPath(name).name):
            continue
        try:
            found[name] = read_checked(checkout.top / name, MAX_UNTRACKED_BYTES)
        except (OSError, UserError):  # a link, or too large for code
            continue
    return found


def _kept(diff: bytes) -> tuple[str, list[str]]:
    """Return the text of a diff without what may not be kept, and a line for each file that was left out."""
    starts = [match.start() for match in FILE.finditer(diff)]
    kept: list[str] = []
    left_out: list[str] = []
    size = 0
    # If the only change is an untracked file, the diff is empty and has no parts.
    ends = [*starts[1:], len(diff)][: len(starts)]
    for start, end in zip(starts, ends, strict=True):
        part = diff[start:end].decode(errors="replace")
        name = part.partition("\n")[0].rpartition(" b/")[2].strip('"')
        if SECRET_FILE.search(PurePosixPath(name).name):
            left_out.append(f"{name}: may hold secrets")
        elif size + len(part.encode()) > MAX_KEPT_BYTES:
            left_out.append(f"{name}: over {MAX_KEPT_BYTES:,} bytes in all")
        else:
            kept.append(part)
            size += len(part.encode())
    return "".join(kept), left_out
