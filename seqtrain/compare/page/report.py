"""The report of a comparison: one HTML file that opens from disk, fetches nothing, and trusts no text of a run's."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from html import escape
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import Any

from seqtrain.compare.entries import Axis, Entry, Which, differing, short_names, standing
from seqtrain.compare.page import curves
from seqtrain.compare.verdict import COSTS, Conclusion
from seqtrain.errors import UserError
from seqtrain.files.atomic import write_text
from seqtrain.files.checked import open_checked
from seqtrain.runs import measures
from seqtrain.runs.directory import CONFIG, METRICS, Run
from seqtrain.terminal import printable

SCRIPTS = ("state.js", "draw.js", "tables.js", "page.js")
POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; img-src data: blob:"
LONGEST_SAMPLE, LONGEST_CONFIG = 1500, 20_000  # characters
ENVIRONMENT = ("command", "trust", "platform", "cpu", "cores", "world_size", "commit")
"""Fields of a summary that say where and how a run was made, beside the versions of packages."""


def write(
    path: Path,
    found: Sequence[Conclusion],
    *,
    title: str,
    missing: Sequence[str] = (),
    x: Axis | None = None,
    which: Which = "final",
) -> None:
    """Writes the report on these groups of runs; options as those of `page`. UserError where it cannot be written."""
    text = page(found, title=title, missing=missing, x=x, which=which)
    try:
        write_text(path, text)
    except OSError as error:
        raise UserError(f"--html {path} cannot be written: {error.strerror}; give another file") from None


def page(
    found: Sequence[Conclusion],
    *,
    title: str,
    missing: Sequence[str] = (),
    x: Axis | None = None,
    which: Which = "final",
    mark: str = "",
) -> str:
    """The report as text.

    `missing`: sentences on trials that left no run. `x`, `which`: what the groups were concluded by, as of
    `verdict.conclusions`. `mark`: the ETag under which it is served; the page then asks for newer ones.
    """
    from plotly.offline import get_plotlyjs

    entries = _entries(found)
    drawn = [_curves(entry.path, _stamp(entry.path / METRICS)) for entry in entries]
    metrics = sorted({name for each in drawn for name in each.metrics}, key=_metric_order)
    plotly, script = get_plotlyjs(), "".join(map(_asset, SCRIPTS))
    content = {
        "title": printable(title),
        "about": _about(found),
        "missing": list(missing),
        "x": x,
        "equal": "" if x is None else f"at equal {COSTS[x]}",
        "which": which,
        "made": datetime.now().strftime("%Y-%m-%d %H:%M:%S"),
        "version": metadata.version("seqtrain"),
        "mark": mark,
        "points": curves.MOST_POINTS,
        "sample": LONGEST_SAMPLE,
        "metrics": metrics,
        "units": _units(entries),
        **_runs(found, drawn, metrics),
    }
    packed = {
        "clock": [{"steps": c.steps, "tokens": c.tokens, "seconds": c.seconds, "tick": c.tick} for c in drawn],
        "samples": [_sample(entry) for entry in entries],
        "configs": [_text(entry.path / CONFIG, LONGEST_CONFIG) for entry in entries],
        "environment": [_environment(entry) for entry in entries],
        **{f"metric-{place}": [c.metrics.get(name) for c in drawn] for place, name in enumerate(metrics)},
    }
    scripts = " ".join(f"'sha256-{_sha256(text)}'" for text in (plotly, script))
    return Template(_asset("page.html")).substitute(
        title=escape(printable(title)),
        policy=f"{POLICY}; script-src {scripts}" + ("; connect-src 'self'" if mark else ""),
        style=_asset("page.css"),
        data=safe_json(content),
        blocks="\n".join(
            f'<script type="text/plain" id="block-{name}">{pack(what)}</script>' for name, what in packed.items()
        ),
        plotly=plotly,
        script=script,
    )


def _units(entries: Sequence[Entry]) -> dict[str, str]:
    """The unit of each metric, by its name; of runs that differ, as the first one says."""
    found: dict[str, str] = {}
    for entry in entries:
        found = measures.units(entry.summary) | found
    return found


def safe_json(value: Any) -> str:
    """JSON of plain values that may stand inside a script element: ASCII only, and nothing that could end it."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def pack(value: Any) -> str:
    """JSON, compressed, as text that may stand anywhere."""
    return base64.b64encode(gzip.compress(safe_json(value).encode(), mtime=0)).decode()


def _runs(found: Sequence[Conclusion], drawn: Sequence[curves.Curves], metrics: Sequence[str]) -> dict[str, Any]:
    """The groups and the runs, of which groups know the index."""
    entries = _entries(found)
    keys, place = differing(entries), {id(entry): index for index, entry in enumerate(entries)}
    groups, runs = [], []
    for conclusion in found:
        own = [place[id(entry)] for entry in conclusion.group.entries]
        recorded = [index for index, name in enumerate(metrics) if any(name in drawn[run].metrics for run in own)]
        groups.append(_group(conclusion) | {"runs": own, "metrics": recorded})
        names = {id(entry): variant.name for variant in conclusion.variants for entry in variant.entries}
        for index, entry in zip(own, conclusion.group.entries, strict=True):
            runs.append(_run(entry, conclusion.group.metric, keys) | {"index": index, "variant": names[id(entry)]})
    common = {key: _plain(value) for key, value in entries[0].settings.items() if key not in keys} if entries else {}
    return {"groups": groups, "runs": runs, "common": common, "short": short_names(keys)}


def _group(found: Conclusion) -> dict[str, Any]:
    group, keys = found.group, differing(found.group.entries)
    return {
        "metric": group.metric,
        "mode": group.mode,
        "reason": group.reason,
        "notes": group.notes,
        "remarks": found.remarks,
        "verdict": found.sentences,
        "variants": [
            {"name": variant.name, "mean": variant.mean, "interval": variant.interval, "seeds": len(variant.values)}
            for variant in found.variants
        ],
        "keys": keys,
    }


def _run(entry: Entry, metric: str, keys: Sequence[str]) -> dict[str, Any]:
    return {
        "name": printable(entry.name),
        "label": printable(entry.label),
        "status": printable(entry.status),
        "reason": entry.reason,
        "values": {key: _plain(entry.settings[key]) for key in keys if key in entry.settings},
        "final": entry.metric(metric),
        "best": entry.metric(metric, which="best"),
        "tokens": entry.cost("tokens"),
        "flops": entry.cost("flops"),
        "seconds": entry.cost("seconds"),
        "tokens_per_second": entry.speed,
        "parameters": entry.parameters,
        "flops_per_token": entry.flops_per_token,
    }


def _plain(value: Any) -> Any:
    """A value of a config as JSON knows it; what it does not know, as text."""
    return value if value is None or isinstance(value, bool | str) or curves.finite(value) is not None else str(value)


def _environment(entry: Entry) -> dict[str, Any]:
    found = {"run": str(entry.path)}
    for name in ENVIRONMENT:
        value = getattr(entry.summary, name)
        if value not in (None, [], ""):
            found[name] = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return found | {str(name): str(version) for name, version in entry.summary.versions.items()}


def _sample(entry: Entry) -> tuple[int, str] | None:
    """Step and text of the newest sample; None where there is none."""
    files = [path for path in sorted((entry.path / "samples").glob("step-*.txt")) if path.stem[5:].isdecimal()]
    return (int(files[-1].stem[5:]), _text(files[-1], LONGEST_SAMPLE)) if files else None


def _text(path: Path, most: int) -> str:
    """The beginning of a text file; a whole character may take four bytes."""
    with open_checked(path) as file:
        return file.read(4 * most).decode("utf-8", "replace")[:most]


@functools.lru_cache(maxsize=10_000)
def _curves(run: Path, stamp: tuple[int, int]) -> curves.Curves:
    """The curves of a run as it was then: those of a served page are reckoned once."""
    return curves.curves(Run(run).metrics())


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _metric_order(name: str) -> tuple[bool, bool, str]:
    return not name.startswith("validation/"), not name.startswith("train/"), name


def _about(found: Sequence[Conclusion]) -> str:
    entries = _entries(found)
    apart = f" in {len(found)} groups that are not alike" if len(found) > 1 else ""
    return f"{len(entries)} run{'s' * (len(entries) != 1)} ({standing(entries)}){apart}"


def _entries(found: Sequence[Conclusion]) -> list[Entry]:
    return [entry for conclusion in found for entry in conclusion.group.entries]


def _asset(name: str) -> str:
    return (resources.files("seqtrain.compare.page") / "assets" / name).read_text("utf-8")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
