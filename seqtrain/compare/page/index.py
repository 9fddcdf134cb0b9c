"""An index of the sweeps below a folder: what each was, how it stands, and the best variant's value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from seqtrain.compare.entries import count_statuses, read
from seqtrain.compare.page import report
from seqtrain.compare.page.content import last_record, safe_json
from seqtrain.compare.verdict import Conclusion, conclusions
from seqtrain.errors import UserError
from seqtrain.runs.listing import list_runs
from seqtrain.sweeps.folder import is_sweep
from seqtrain.terminal import printable

SWEEP, ALL = "sweep", "all"  # how the addresses of reports begin: /sweep/NAME/ and /all/
SCRIPTS = ("dom.js", "index.js")


def sweeps_of(folder: Path) -> list[Path]:
    """Return the sweeps below a folder that hold runs."""
    return sorted({run.path.parent for run in list_runs(folder, []) if is_sweep(run.path.parent)})


@dataclass
class Index:
    """The rows of an index; a sweep is read again only when it has changed."""

    _known: dict[Path, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def rows(self, folder: Path, sweeps: Sequence[Path], state_of: Callable[[Path], str]) -> list[dict[str, Any]]:
        """Return a row for each sweep, newest first. `state_of` returns a mark that changes with a folder."""
        rows = []
        for sweep in sweeps:
            state, name = state_of(sweep), str(sweep.relative_to(folder))
            if self._known.get(sweep, ("",))[0] != state:
                self._known[sweep] = (state, _row(sweep, name))
            rows.append(self._known[sweep][1])
        return sorted(rows, key=lambda row: row["when"], reverse=True)


def page(title: str, rows: Sequence[dict[str, Any]], mark: str) -> str:
    """Return the index as an HTML page. `mark` is its ETag."""
    script = "".join(map(report.asset, SCRIPTS))
    policy = f"{report.POLICY}; script-src 'sha256-{report.sha256(script)}'; connect-src 'self'"
    return Template(report.asset("index.html")).substitute(
        title=escape(printable(title)),
        policy=policy,
        style=report.asset("page.css"),
        data=safe_json({"mark": mark, "rows": list(rows), "all": f"{ALL}/"}),
        script=script,
    )


def _row(sweep: Path, name: str) -> dict[str, Any]:
    row = {"name": printable(name), "address": f"{SWEEP}/{quote(name)}/", "when": "", "fault": ""}
    try:
        entries = read([sweep], [])
        found = conclusions(entries)
    except (UserError, OSError) as fault:  # half written, or being removed
        return row | {"runs": 0, "status": "", "task": "", "best": "", "value": None, "fault": str(fault)}
    row["when"] = max(map(last_record, entries))
    tasks = sorted({entry.task for entry in entries})
    row |= {"runs": len(entries), "status": count_statuses(entries), "task": ", ".join(tasks)}
    return row | _best(found)


def _best(found: Sequence[Conclusion]) -> dict[str, Any]:
    """Return the best mean of the largest group, and its number of seeds."""
    largest = max(found, key=lambda each: len(each.group.entries))
    known = [variant for variant in largest.variants if variant.mean is not None]
    apart = f" (the largest of {len(found)} groups)" if len(found) > 1 else ""
    if not known:
        return {"best": "", "value": None, "metric": largest.group.metric + apart, "seeds": 0}
    best = known[0]
    return {
        **{"best": best.name, "value": best.mean, "seeds": len(best.values)},
        "metric": largest.group.metric + apart,
    }
