"""Links from a page to the files of a run on the same disk."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from seqtrain.compare.entries import Entry


def links(entry: Entry, folder: Path | None) -> dict[str, str]:
    """Relative addresses of a run's folder, log and samples, of those that are there.

    Args:
        entry: the run.
        folder: in which the page will stand; None: it is served, and a browser would not be let to the disk.
    """
    if folder is None:
        return {}
    run = entry.path.resolve()
    places = {"folder": run, "log": run.parent / "logs" / f"{run.name}.txt", "samples": run / "samples"}
    if entry.sweep is None:  # the log beside a run is that of its sweep
        del places["log"]
    found = {}
    for name, place in places.items():
        if place.exists():
            found[name] = _address(place, folder.resolve())
    return found


def _address(place: Path, folder: Path) -> str:
    """A relative address; with `./` before it and every sign quoted, so that no name is read as a scheme or a query."""
    # As bytes: a name need not be text.
    address = f"./{quote(os.fsencode(os.path.relpath(place, folder)))}"
    if place.is_dir():
        address += "/"
    return address
