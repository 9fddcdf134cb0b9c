"""The files that a data set names must be its own: a README, or a copy's record, may name any file of this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from seqtrain.faults import Fault


def check_own(path: str, folder: Path | None, files: Iterable[str]) -> None:
    """Fault for a file that is not below `folder`, the local data set of `data.path`; None: not on the hub."""
    for file in files:
        home = folder and folder.resolve()  # a file itself may be a link, as in the hub's own cache
        own = "://" in file if home is None else Path(os.path.abspath(file)).is_relative_to(home)
        if not own:
            raise Fault(f"data.path={path}: names {file}, which is not below it; keep its files together")


def stored_files(folder: Path) -> list[str]:
    """The files that a save_to_disk copy names; OSError, ValueError, KeyError or TypeError where it is damaged."""
    states = {path.parent: json.loads(path.read_text("utf-8")) for path in folder.resolve().rglob("state.json")}
    return [str(home / each["filename"]) for home, state in states.items() for each in state["_data_files"]]
