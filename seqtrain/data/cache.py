"""Cache that concurrent runs share: each entry is built once, and a partial entry is never visible."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from seqtrain.errors import Unavailable, UserError
from seqtrain.files.atomic import expanded, sync
from seqtrain.files.checked import load_json, open_append, open_new

MAX_BYTES = 1 << 26  # of a JSON file
VERSION = 1  # part of every key; increment it whenever the same key would give another entry or layout
Entry = TypeVar("Entry")


class Store:
    """A cache of entries: folders, named by a hash of their key, in groups."""

    def __init__(self, root: Path | None = None) -> None:
        """Set the folder. `root`: by default $SEQTRAIN_CACHE, or else ~/.cache/seqtrain."""
        self.root = root or Path(os.environ.get("SEQTRAIN_CACHE") or expanded("~/.cache/seqtrain"))

    def entry(self, group: str, key: str, write: Callable[[Path], None], read: Callable[[Path], Entry]) -> Entry:
        """Return the result of `read` for the entry's folder.

        If `read` raises, because the entry is missing or damaged, `write` fills a new folder first.

        Args:
            group: Name of the group.
            key: Key of the entry; it contains everything that the content depends on.
            write: Fills a new, empty folder.
            read: Reads a folder.

        Raises:
            UserError: The cache cannot be written.
        """
        folder = self.root / group / hashlib.blake2b(f"{VERSION} {key}".encode(), digest_size=16).hexdigest()
        try:
            with self._locked(folder):
                # A damaged entry of any kind can be built again.
                try:
                    return read(folder)
                except (OSError, ValueError, KeyError, UserError):
                    self._build(folder, write)
                    return read(folder)
        except OSError as error:
            raise Unavailable(
                f"SEQTRAIN_CACHE={self.root}: {error.strerror or error}; set SEQTRAIN_CACHE to a folder that can be "
                "written and has space"
            ) from error

    def _build(self, folder: Path, write: Callable[[Path], None]) -> None:
        temporary = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
        try:
            write(temporary)
            shutil.rmtree(folder, ignore_errors=True)  # a damaged entry; os.rename cannot replace a folder with files
            os.rename(temporary, folder)
            sync(folder.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    @contextmanager
    def _locked(self, folder: Path) -> Iterator[None]:
        """Hold the entry's lock, which one process can hold at a time; it is released when the process ends."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open_append(folder.with_name(folder.name + ".lock")) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for stale in folder.parent.glob(f"{folder.name}-*"):  # left by a process that was killed
                shutil.rmtree(stale, ignore_errors=True)
            yield


def cached_json(key: str, make: Callable[[], Any], cache: Path | None = None) -> Any:
    """Return the JSON value of `key`; if it is not cached, make it and cache it."""

    def write(folder: Path) -> None:
        with durable(folder / "value.json") as file:
            file.write(json.dumps({"value": make()}).encode())

    return Store(cache).entry("json", key, write, lambda folder: read_json(folder / "value.json")["value"])


@contextmanager
def durable(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file and sync it to the disk when the block ends."""
    with open_new(path) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def read_json(path: Path) -> Any:
    """Read a JSON file of at most `MAX_BYTES`."""
    return load_json(path, MAX_BYTES)
