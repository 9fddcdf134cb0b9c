"""The report of a comparison: one HTML file that opens from disk, fetches nothing, and trusts no text of a run.

A folder of sweeps has an index: the task, status and best variant of each sweep.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from seqtrain.compare.entries import Axis, Checkpoint, count_runs, count_statuses, read
from seqtrain.compare.page import content, curves, samples
from seqtrain.compare.variants import COSTS
from seqtrain.compare.verdict import Conclusion, all_entries, conclusions
from seqtrain.errors import UserError
from seqtrain.files.atomic import write_text
from seqtrain.runs.directory import list_runs
from seqtrain.sweeps.folder import is_sweep
from seqtrain.terminal import printable

# In loading order; the last one starts the page.
SCRIPTS = (
    "dom.js",
    "state.js",
    "charts.js",
    "verdict.js",
    "variants.js",
    "curves.js",
    "costs.js",
    "runs.js",
    "samples.js",
    "page.js",
)
# The page fetches nothing, and runs only scripts whose hashes are added to this policy.
POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; img-src data: blob:"


@dataclass(frozen=True)
class PageContent:
    """All contents of a page."""

    known: dict[str, Any]  # contents that are always loaded: title, groups, runs and so on
    blocks: dict[str, str]  # packed values of each run, unpacked on demand, by the id of their element


def write(
    path: Path,
    found: Sequence[Conclusion],
    *,
    title: str,
    missing: Sequence[str] = (),
    x: Axis | None = None,
    checkpoint: Checkpoint = "final",
) -> None:
    """Write the report on these groups of runs; raise UserError if the file cannot be written.

    Args:
        path: the HTML file to write.
        found: the groups.
        title: as in `content_of`.
        missing: as in `content_of`.
        x: as in `content_of`.
        checkpoint: as in `content_of`.
    """
    # Links of the page are relative to its folder.
    made = page(found, title=title, missing=missing, x=x, checkpoint=checkpoint, folder=path.parent)
    try:
        write_text(path, made)
    except OSError as error:
        raise UserError(f"--html {path} cannot be written: {error.strerror}; give another file") from None


def page(found: Sequence[Conclusion], **options: Any) -> str:
    """Return the report as HTML; options are those of `content_of`."""
    return text(content_of(found, **options))


def content_of(
    found: Sequence[Conclusion],
    *,
    title: str,
    missing: Sequence[str] = (),
    x: Axis | None = None,
    checkpoint: Checkpoint = "final",
    mark: str = "",
    folder: Path | None = None,
) -> PageContent:
    """Return all contents of the report.

    Args:
        found: the groups.
        title: title of the page.
        missing: sentences on trials that left no run.
        x: the axis of the comparison, as in `verdict.conclusions`.
        checkpoint: the checkpoint of the comparison.
        mark: the ETag under which the page is served; the page then polls for newer data.
        folder: folder of the page, for links to the runs; None: no links.
    """
    entries = all_entries(found)
    drawn = content.all_curves(entries)
    recorded = set().union(*(each.metrics for each in drawn))
    metrics = sorted(recorded, key=_metric_order)
    known = {
        "title": printable(title),
        "about": _about(found),
        "missing": list(missing),
        "x": x,
        "equal": "" if x is None else f"at equal {COSTS[x]}",
        "which": checkpoint,
        "made": datetime.now().strftime("%Y-%m-%d %H:%M:%S"),
        "version": metadata.version("seqtrain"),
        "script": sha256("".join(map(asset, SCRIPTS))),
        "mark": mark,
        "points": curves.MOST_POINTS,
        "sample": samples.LONGEST_SAMPLE,
        "metrics": metrics,
        "style": curves.PLAIN,
        "units": content.units(entries),
        **content.groups_and_runs(found, drawn, metrics, folder),
    }
    return PageContent(known, content.blocks(entries, drawn, metrics))


def text(made: PageContent) -> str:
    """Return the HTML page with these contents."""
    from plotly.offline import get_plotlyjs  # 5 MB of text, read only when a page is made

    plotly, script = get_plotlyjs(), "".join(map(asset, SCRIPTS))
    policy = f"{POLICY}; script-src 'sha256-{sha256(plotly)}' 'sha256-{sha256(script)}'"
    if made.known["mark"]:
        policy += "; connect-src 'self'"  # to its own server
    return Template(asset("page.html")).substitute(
        title=escape(made.known["title"]),
        policy=policy,
        style=asset("page.css"),
        data=content.safe_json(made.known),
        blocks="\n".join(
            f'<script type="text/plain" id="{name}">{text}</script>' for name, text in made.blocks.items()
        ),
        plotly=plotly,
        script=script,
    )


def data(made: PageContent) -> str:
    """Return the contents as JSON, for an open page."""
    return content.safe_json({"known": made.known, "blocks": made.blocks})


def _metric_order(name: str) -> tuple[bool, bool, str]:
    """Return the sort key of a metric: validation first, then training, then the rest."""
    return not name.startswith("validation/"), not name.startswith("train/"), name


def _about(found: Sequence[Conclusion]) -> str:
    entries = all_entries(found)
    apart = f" in {len(found)} groups that are not comparable" if len(found) > 1 else ""
    return f"{count_runs(entries)} ({count_statuses(entries)}){apart}"


def asset(name: str) -> str:
    """Read an asset file of the page."""
    return (resources.files("seqtrain.compare.page") / "assets" / name).read_text("utf-8")


def sha256(text: str) -> str:
    """Return the hash of a script as a content security policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# -- the index of a folder of sweeps -----------------------------------------------------------------------------------

SWEEP, ALL = "sweep", "all"  # reports have the addresses /sweep/NAME/ and /all/


def sweeps_of(folder: Path) -> list[Path]:
    """Return the sweeps below a folder that contain runs."""
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


def index_page(title: str, rows: Sequence[dict[str, Any]], mark: str) -> str:
    """Return the index as an HTML page. `mark` is its ETag."""
    script = "".join(map(asset, ("dom.js", "index.js")))
    policy = f"{POLICY}; script-src 'sha256-{sha256(script)}'; connect-src 'self'"
    return Template(asset("index.html")).substitute(
        title=escape(printable(title)),
        policy=policy,
        style=asset("page.css"),
        data=content.safe_json({"mark": mark, "rows": list(rows), "all": f"{ALL}/"}),
        script=script,
    )


def _row(sweep: Path, name: str) -> dict[str, Any]:
    row = {"name": printable(name), "address": f"{SWEEP}/{quote(name)}/", "when": "", "fault": ""}
    try:
        entries = read([sweep], [])
        found = conclusions(entries)
    except (UserError, OSError) as fault:  # half written, or being removed
        return row | {"runs": 0, "status": "", "task": "", "best": "", "value": None, "fault": str(fault)}
    row["when"] = max(map(content.last_record, entries))
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
