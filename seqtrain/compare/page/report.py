"""The report of a comparison: one HTML file that opens from disk, fetches nothing, and trusts no text of a run's."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import Any

from seqtrain.compare import importance, kept_figures, pareto
from seqtrain.compare.entries import Axis, Checkpoint, Entry, count_runs, count_statuses, differing, short_names
from seqtrain.compare.page import curves, style
from seqtrain.compare.verdict import COSTS, Conclusion, all_entries
from seqtrain.errors import UserError
from seqtrain.files.atomic import write_text
from seqtrain.files.checked import open_checked
from seqtrain.runs import measures
from seqtrain.runs.directory import CONFIG, METRICS, Run
from seqtrain.terminal import printable

SCRIPTS = ("state.js", "draw.js", "tables.js", "page.js")
# The page fetches nothing, and of scripts only those run whose hashes are added to this.
POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; img-src data: blob:"
LONGEST_SAMPLE, LONGEST_CONFIG = 1500, 20_000  # characters
# Entries of summary.json that say where and how a run was made, beside the versions of packages.
ENVIRONMENT = ("command", "trust", "platform", "cpu", "cores", "world_size", "commit")


def write(
    path: Path,
    found: Sequence[Conclusion],
    *,
    title: str,
    missing: Sequence[str] = (),
    x: Axis | None = None,
    checkpoint: Checkpoint = "final",
) -> None:
    """Writes the report on these groups of runs; options as those of `page`. UserError where it cannot be written."""
    text = page(found, title=title, missing=missing, x=x, checkpoint=checkpoint)
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
    checkpoint: Checkpoint = "final",
    mark: str = "",
) -> str:
    """The report as text.

    Args:
        missing: sentences on trials that left no run.
        x, checkpoint: what the groups were concluded by, as of `verdict.conclusions`.
        mark: the ETag under which it is served; the page then asks for newer ones.
    """
    from plotly.offline import get_plotlyjs  # 5 MB of text, read only where a page is made

    entries = all_entries(found)
    drawn, recorded = [], set()
    for entry in entries:
        drawn.append(_curves(entry.path, _stamp(entry.path / METRICS)))
        recorded.update(drawn[-1].metrics)
    metrics = sorted(recorded, key=_metric_order)
    plotly, script = get_plotlyjs(), "".join(map(_asset, SCRIPTS))
    policy = f"{POLICY}; script-src 'sha256-{_sha256(plotly)}' 'sha256-{_sha256(script)}'"
    if mark:
        policy += "; connect-src 'self'"  # to the server that it came from
    content = {
        "title": printable(title),
        "about": _about(found),
        "missing": list(missing),
        "x": x,
        "equal": "" if x is None else f"at equal {COSTS[x]}",
        "which": checkpoint,
        "made": datetime.now().strftime("%Y-%m-%d %H:%M:%S"),
        "version": metadata.version("seqtrain"),
        "mark": mark,
        "points": curves.MOST_POINTS,
        "sample": LONGEST_SAMPLE,
        "metrics": metrics,
        "style": style.PLAIN,
        "units": _units(entries),
        **_groups_and_runs(found, drawn, metrics),
    }
    return Template(_asset("page.html")).substitute(
        title=escape(printable(title)),
        policy=policy,
        style=_asset("page.css"),
        data=safe_json(content),
        blocks="\n".join(_blocks(entries, drawn, metrics)),
        plotly=plotly,
        script=script,
    )


def safe_json(value: Any) -> str:
    """JSON of plain values that may stand inside a script element: ASCII only, and nothing that could end it."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def pack(value: Any) -> str:
    """JSON, compressed, as text that may stand anywhere."""
    # Without the time of its making: the same runs give the same page.
    return base64.b64encode(gzip.compress(safe_json(value).encode(), mtime=0)).decode()


def _blocks(entries: Sequence[Entry], drawn: Sequence[curves.Curves], metrics: Sequence[str]) -> Iterator[str]:
    """Script elements of packed data, one value for each run: the page unpacks a block when it is looked at."""
    clocks, samples, configs, environments = [], [], [], []
    for entry, each in zip(entries, drawn, strict=True):
        clocks.append({"steps": each.steps, "tokens": each.tokens, "seconds": each.seconds, "tick": each.tick})
        samples.append(_sample(entry))
        configs.append(_text(entry.path / CONFIG, LONGEST_CONFIG))
        environments.append(_environment(entry))
    packed = {"clock": clocks, "samples": samples, "configs": configs, "environment": environments}
    for place, name in enumerate(metrics):
        packed[f"metric-{place}"] = [each.metrics.get(name) for each in drawn]
    for name, values in packed.items():
        yield f'<script type="text/plain" id="block-{name}">{pack(values)}</script>'


def _units(entries: Sequence[Entry]) -> dict[str, str]:
    """The unit of each metric, by its name; of runs that differ, as the first one says."""
    units: dict[str, str] = {}
    for entry in entries:
        units = measures.units(entry.summary) | units
    return units


def _groups_and_runs(
    found: Sequence[Conclusion], drawn: Sequence[curves.Curves], metrics: Sequence[str]
) -> dict[str, Any]:
    """The groups, which know their runs by index, the runs, and the settings that all of them share."""
    entries = all_entries(found)
    settings = differing(entries)
    groups, runs = [], []
    for conclusion in found:
        variants = {}
        for variant in conclusion.variants:
            variants |= dict.fromkeys(map(id, variant.entries), variant.name)
        own, recorded = [], set()
        for entry in conclusion.group.entries:
            index = len(runs)  # `entries` lists them group by group, too
            own.append(index)
            recorded.update(drawn[index].metrics)
            run = _run(entry, conclusion.group.metric, settings)
            runs.append(run | {"index": index, "variant": variants[id(entry)]})
        places = [place for place, name in enumerate(metrics) if name in recorded]
        groups.append(_group(conclusion) | {"runs": own, "metrics": places})
    common = {}
    if entries:  # any one of them has what all share
        common = {key: _plain(value) for key, value in entries[0].settings.items() if key not in settings}
    return {"groups": groups, "runs": runs, "common": common, "short": short_names(settings)}


def _group(found: Conclusion) -> dict[str, Any]:
    group, variants, standings = found.group, [], pareto.standings(found)
    for each in found.variants:
        row = {"name": each.name, "mean": each.mean, "interval": each.interval, "seeds": len(each.values)}
        variants.append(row | {"pareto": standings.get(each.name, {})})  # by cost: front, perhaps, near, behind
    return {
        "metric": group.metric,
        "mode": group.mode,
        "reason": group.reason,
        "notes": group.notes,
        "remarks": [*found.caveats, *found.remarks],
        "verdict": found.sentences,
        "variants": variants,
        "keys": differing(group.entries),
        "importance": importance.importances(found).record(),
    }


def _run(entry: Entry, metric: str, settings: Sequence[str]) -> dict[str, Any]:
    return {
        "name": printable(entry.name),
        "label": printable(entry.label),
        "status": printable(entry.status),
        "reason": entry.reason,
        "values": {key: _plain(entry.settings[key]) for key in settings if key in entry.settings},
        "final": entry.metric(metric),
        "best": entry.metric(metric, checkpoint="best"),
        "test": kept_figures.columns(entry, metric)["test"],
        "looks": entry.kept.looks(),
        "tokens": entry.cost("tokens"),
        "flops": entry.cost("flops"),
        "seconds": entry.cost("seconds"),
        "tokens_per_second": entry.speed,
        "parameters": entry.parameters,
        "flops_per_token": entry.flops_per_token,
    }


def _plain(value: Any) -> Any:
    """A value of a config as JSON knows it; what it does not know, as text."""
    if value is None or isinstance(value, bool | str) or curves.finite(value) is not None:
        return value
    return str(value)


def _environment(entry: Entry) -> dict[str, str]:
    found = {"run": str(entry.path)}
    for name in ENVIRONMENT:
        value = getattr(entry.summary, name)
        if value not in (None, [], ""):
            found[name] = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    for name, version in entry.summary.versions.items():
        found[str(name)] = str(version)
    return found


def _sample(entry: Entry) -> tuple[int, str] | None:
    """Step and text of the newest sample; None where there is none."""
    newest = None
    # The names are padded with zeros, so the order of names is that of steps.
    for path in sorted((entry.path / "samples").glob("step-*.txt")):
        if path.stem[5:].isdecimal():
            newest = path
    return None if newest is None else (int(newest.stem[5:]), _text(newest, LONGEST_SAMPLE))


def _text(path: Path, most: int) -> str:
    """The beginning of a text file, of at most so many characters."""
    with open_checked(path) as file:
        return file.read(4 * most).decode("utf-8", "replace")[:most]  # a whole character may take four bytes


@functools.lru_cache(maxsize=10_000)
def _curves(run: Path, stamp: tuple[int, int]) -> curves.Curves:
    """The curves of a run as it was then: those of a served page are reckoned once."""
    return curves.curves(Run(run).metrics())


def _stamp(path: Path) -> tuple[int, int]:
    """What changes whenever the file does: its time in nanoseconds and its size in bytes."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _metric_order(name: str) -> tuple[bool, bool, str]:
    """What was validated first, then what was trained, then the rest."""
    return not name.startswith("validation/"), not name.startswith("train/"), name


def _about(found: Sequence[Conclusion]) -> str:
    entries = all_entries(found)
    apart = f" in {len(found)} groups that are not alike" if len(found) > 1 else ""
    return f"{count_runs(entries)} ({count_statuses(entries)}){apart}"


def _asset(name: str) -> str:
    return (resources.files("seqtrain.compare.page") / "assets" / name).read_text("utf-8")


def _sha256(text: str) -> str:
    """The hash of a script as a policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
