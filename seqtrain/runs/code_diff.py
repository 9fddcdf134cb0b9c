"""Difference between a run's code and its commit: a hash of all of it, and the text of what may be kept."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from seqtrain.errors import UserError
from seqtrain.files.atomic import write_text
from seqtrain.files.checked import read_checked
from seqtrain.runs.git_commit import Checkout, checkout_of
from seqtrain.runs.summary import Summary

CODE_DIFF = "code.diff"
MAX_KEPT_BYTES = 1 << 18  # of a diff's text: beyond it a run directory would grow with every trial
MAX_UNTRACKED_FILES = 200
MAX_UNTRACKED_BYTES = 1 << 20  # of one file: code is smaller
UNTRACKED_CODE = ("*.py",)  # no YAML: runs that git does not ignore write it themselves
# Names of files that hold secrets.
SECRET = re.compile(
    r"\.(env|pem|key|p12|netrc|npmrc|pypirc)\b|secret|password|passwd|credential|api_?key", re.IGNORECASE
)
FILE = re.compile(rb"^diff --git ", re.MULTILINE)


@dataclass(frozen=True)
class CodeDiff:
    """Difference between the files of a checkout and its commit."""

    hash: str  # of all tracked changes and untracked code, also of what is not kept
    text: str  # what is kept: no file that may hold secrets, at most MAX_KEPT_BYTES
    about: dict[str, Any]  # for the summary

    def write(self, run: Path) -> None:
        """Write the text into a run's directory, replacing that of an earlier attempt."""
        write_text(run / CODE_DIFF, self.text)


def code_entries(summary: Summary, diff: CodeDiff | None) -> dict[str, Any]:
    """Return the summary's entries on code: that of earlier attempts and of this one.

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
        if not name or SECRET.search(PurePosixPath(name).name):
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
        if SECRET.search(PurePosixPath(name).name):
            left_out.append(f"{name}: may hold secrets")
        elif size + len(part.encode()) > MAX_KEPT_BYTES:
            left_out.append(f"{name}: over {MAX_KEPT_BYTES:,} bytes in all")
        else:
            kept.append(part)
            size += len(part.encode())
    return "".join(kept), left_out
