"""Answers of `seqtrain serve`: reports on folders of runs, their changes, and an index of sweeps."""

from __future__ import annotations

import gzip
import hashlib
import os
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, quote

from seqtrain.cli.arguments import say
from seqtrain.compare.entries import read
from seqtrain.compare.page import index, report
from seqtrain.compare.page.content import safe_json
from seqtrain.compare.page.parts import Changes, PageContent
from seqtrain.compare.table import not_run
from seqtrain.compare.verdict import conclusions
from seqtrain.errors import UserError
from seqtrain.runs.directory import CONFIG, METRICS, SUMMARY
from seqtrain.runs.evaluations import EVALUATIONS
from seqtrain.runs.listing import is_written, list_runs

WAITING = b"""<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="3">
<title>seqtrain</title><p>There is no run yet that can be shown; this page looks again every 3 seconds.</p></html>"""

# Times as long as a report took to make it stays as it is: the machine is there for the runs.
REST_FACTOR = 3.0
HTML, JSON = "text/html; charset=utf-8", "application/json"
CHANGES = "changes"  # the last word of an address that gives what has changed since `?since=MARK`
# Parts of a run that the report shows: files, and folders that validations write files into.
SHOWN = (CONFIG, METRICS, SUMMARY, EVALUATIONS, "samples", "plots")


@dataclass
class Answer:
    """An answer to a browser. An empty body means that nothing has changed."""

    body: bytes
    kind: str
    mark: str  # its ETag
    _packed: bytes = b""

    def packed(self) -> bytes:
        """Return the compressed body; it is compressed once for all requests."""
        if not self._packed:
            self._packed = gzip.compress(self.body, 6, mtime=0)
        return self._packed


class Answers(ABC):
    """Answers by address, from a fixed set: no address is looked up on the disk."""

    @abstractmethod
    def answer(self, path: str, query: str) -> Answer | None:
        """Return the answer for a path such as `/`, or None if there is none."""


@dataclass
class Report(Answers):
    """The newest report on the runs below a folder."""

    folder: Path
    mark: str = '"none"'  # what it was made of
    rest: float = 10.0  # seconds that it stays as it is at least
    trouble: str = ""  # why there is none, or no newer one
    changes: Changes = field(default_factory=Changes)
    _parts: PageContent | None = None
    _page: Answer | None = None
    _seen: str = ""
    _until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str, query: str) -> Answer | None:
        """Return the page for `/`, and its changes for `/changes?since=MARK`."""
        if path == "/":
            return self.newest()
        if path == f"/{CHANGES}":
            return self.changed(parse_qs(query).get("since", [""])[0])
        return None

    def newest(self) -> Answer:
        """Return the page. It is made again if the runs have changed and the last one is old enough."""
        # Several browsers may ask at once; one report is enough for all of them.
        with self._lock:
            self._renew()
            if self._page is None or self._page.mark != self.mark:
                text = WAITING if self._parts is None else report.text(self._parts).encode()
                self._page = Answer(text, HTML, self.mark)
            return self._page

    def changed(self, since: str) -> Answer:
        """Return the changes since a mark: everything if the mark is unknown, an empty body if nothing changed."""
        with self._lock:
            self._renew()
            if self._parts is None or since == self.mark:
                return Answer(b"", JSON, self.mark)
            return Answer(safe_json(self.changes.since(since)).encode(), JSON, self.mark)

    def _renew(self) -> None:
        if time.monotonic() < self._until:
            return
        mark = state_of(self.folder)
        if mark == self._seen:
            return
        start = time.monotonic()
        self._make(mark)
        took = time.monotonic() - start
        self._seen = mark  # also where it failed: it is tried again when a run has changed
        self._until = time.monotonic() + max(self.rest, REST_FACTOR * took)

    def _make(self, mark: str) -> None:
        try:
            missing: list[str] = []
            results = conclusions(read([self.folder], missing))
            missing += not_run(self._sweeps())
            parts = report.parts(results, title=str(self.folder), missing=missing, mark=mark)
        except (UserError, OSError) as error:  # the last one stays: a run may be half written, or being removed
            if str(error) != self.trouble:
                say(f"no newer report: {error}")
            self.trouble = str(error)
        else:
            self._parts, self.mark, self.trouble = parts, mark, ""
            self.changes.update(parts, mark)

    def _sweeps(self) -> list[Path]:
        return sorted({self.folder, *(run.path.parent for run in list_runs(self.folder, []))})


@dataclass
class Site(Answers):
    """The report on a folder. A folder of several sweeps has an index, a report for each, and one for all."""

    folder: Path
    rest: float = 10.0
    _reports: dict[Path, Report] = field(default_factory=dict)
    _index: index.Index = field(default_factory=index.Index)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str, query: str) -> Answer | None:
        """Return the answer of a report or the index at this path. The address of each report ends in a slash."""
        sweeps = index.sweeps_of(self.folder)
        if len(sweeps) < 2:
            return self._report(self.folder).answer(path, query)
        home, _, word = path.rpartition("/")
        if home == "":
            return self._list(sweeps, word, query)
        folders = {f"/{index.ALL}": self.folder}
        for sweep in sweeps:
            folders[f"/{index.SWEEP}/{quote(str(sweep.relative_to(self.folder)))}"] = sweep
        # A dictionary of what there is: no part of the address becomes a path.
        folder = folders.get(home)
        return None if folder is None else self._report(folder).answer(f"/{word}", query)

    def _report(self, folder: Path) -> Report:
        with self._lock:
            if folder not in self._reports:
                self._reports[folder] = Report(folder, rest=self.rest)
            return self._reports[folder]

    def _list(self, sweeps: list[Path], word: str, query: str) -> Answer | None:
        with self._lock:
            rows = self._index.rows(self.folder, sweeps, state_of)
            mark = hashlib.blake2b(safe_json(rows).encode(), digest_size=12).hexdigest()
        mark = f'"{mark}"'
        if word == "":
            return Answer(index.page(str(self.folder), rows, mark).encode(), HTML, mark)
        if word != CHANGES:
            return None
        if parse_qs(query).get("since", [""])[0] == mark:
            return Answer(b"", JSON, mark)
        return Answer(safe_json({"mark": mark, "rows": rows}).encode(), JSON, mark)


def state_of(folder: Path) -> str:
    """Return a mark that changes when a run below the folder records or keeps something, or is killed."""
    digest = hashlib.blake2b(digest_size=12)
    for run in list_runs(folder, []):
        for name in SHOWN:
            try:
                state = os.stat(run.path / name)
                words = f"{run.path / name} {state.st_mtime_ns} {state.st_size} {is_written(run.path)}\n"
            except (UserError, OSError):  # removed, or not readable: the report says so
                continue
            digest.update(words.encode("utf-8", "surrogateescape"))
    return f'"{digest.hexdigest()}"'  # in quotes, as an ETag has to be
