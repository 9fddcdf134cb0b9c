"""Contents of the page: groups, runs, their curves, samples and environments, as plain values."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from seqtrain.compare import baselines, held_out, importance, pareto, records
from seqtrain.compare.comparisons import Comparison
from seqtrain.compare.entries import AXES, Entry, decimals, differing, mean_of, number, short_names
from seqtrain.compare.filters import FIGURES, GRAMMAR, value, words
from seqtrain.compare.names import COMMIT, LABEL, TAG, by_value
from seqtrain.compare.page import answers, course, curves, samples
from seqtrain.compare.page.course import Course, Endings, mean_cost
from seqtrain.compare.variants import Variant
from seqtrain.compare.verdict import Conclusion, all_entries
from seqtrain.runs import measures
from seqtrain.runs.directory import METRICS, Run
from seqtrain.terminal import printable

# Entries of summary.json on where and how a run was made, in addition to the versions of packages.
ENVIRONMENT = ("command", "trust", "platform", "cpu", "cores", "world_size", "commit")


def safe_json(value: Any) -> str:
    """Return plain values as JSON for use in a script element: ASCII only, and nothing that could end the element."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def pack(value: Any) -> str:
    """Compress a value's JSON into base64 text."""
    # mtime=0, so that the same runs give the same page.
    return base64.b64encode(gzip.compress(safe_json(value).encode(), mtime=0)).decode()


def all_curves(entries: Sequence[Entry]) -> list[curves.Curves]:
    """Return the curves of each run."""
    return [_recorded(entry.path, samples.stamp(entry.path / METRICS))[0] for entry in entries]


def endings(found: Conclusion) -> Endings:
    """Return for each run of a group how validation and training ended in its metric, by the id of its entry."""
    group = found.group
    known = {}
    for entry in group.entries:
        courses = _recorded(entry.path, samples.stamp(entry.path / METRICS))[1]
        known[id(entry)] = course.ending(courses.get(group.metric), group.mode)
    return known


def blocks(entries: Sequence[Entry], drawn: Sequence[curves.Curves], metrics: Sequence[str]) -> dict[str, str]:
    """Return the blocks that the page unpacks on demand, by the id of their element: each has a value for each run."""
    clocks, environments = [], []
    for entry, each in zip(entries, drawn, strict=True):
        clocks.append({"steps": each.steps, "tokens": each.tokens, "seconds": each.seconds, "tick": each.tick})
        environments.append(_environment(entry))
    found: dict[str, list[Any]] = {"clock": clocks, "environment": environments}
    found |= {"samples": samples.samples(entries), "confusion": samples.confusions(entries)}
    found["attention"] = samples.attention(entries)
    for place, name in enumerate(metrics):  # by index, since a name may be any text
        found[f"metric-{place}"] = [each.packed(name) for each in drawn]
    return {f"block-{name}": pack(values) for name, values in found.items()}


def units(entries: Sequence[Entry]) -> dict[str, str]:
    """Return the unit of each metric, by its name; if runs differ, the first one decides."""
    units: dict[str, str] = {}
    for entry in entries:
        units = measures.units(entry.summary) | units
    return units


def groups_and_runs(
    found: Sequence[Conclusion],
    drawn: Sequence[curves.Curves],
    metrics: Sequence[str],
    folder: Path | None = None,
) -> dict[str, Any]:
    """Return the groups, which know their runs by index, the runs, and the settings that all of them share.

    Args:
        found: the groups.
        drawn: the curves of each run, group by group.
        metrics: names of all recorded metrics; a group knows its own by index.
        folder: folder of the page, for links to the runs; None: no links.
    """
    entries = all_entries(found)
    common = _shared(entries)
    measured = dict.fromkeys(name for entry in entries for name in entry.metrics)
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
            run = _run(entry, conclusion.group.metric)
            run["settings"] = {key: _plain(each) for key, each in entry.settings.items() if key not in common}
            run["metrics"] = {name: entry.metric(name) for name in measured}
            runs.append(run | {"index": index, "variant": variants[id(entry)], "links": links(entry, folder)})
        places = [place for place, name in enumerate(metrics) if name in recorded]
        groups.append(_group(conclusion) | {"runs": own, "metrics": places})
    return {
        "groups": groups,
        "runs": runs,
        "common": {key: _plain(each) for key, each in common.items()},
        "short": short_names(differing(entries)),
        "known": {"words": words(entries), "figures": list(FIGURES), "grammar": GRAMMAR},
    }


def _group(found: Conclusion) -> dict[str, Any]:
    group, standings, ends = found.group, pareto.standings(found), endings(found)
    variants = rows(found, ends)
    for row in variants:
        row["pareto"] = standings.get(row["name"], {})  # by cost: front, perhaps, near, behind
    return {
        **records.statement(found),
        "first": answers.read_first(found),
        "refused": group.refusal is not None,
        "answers": answers.answers(found, ends),
        "variants": variants,
        "digits": digits(found.variants),
        "baselines": baselines.baselines(group.entries),
        "keys": differing(group.entries),
        "importance": importance.importances(found).record(),
    }


def _run(entry: Entry, metric: str) -> dict[str, Any]:
    return {
        **{name: value(entry, name) for name in FIGURES},
        "name": printable(entry.name),
        "label": printable(entry.label),
        "status": printable(entry.status),
        "marks": {LABEL: by_value(entry, LABEL), TAG: by_value(entry, TAG), COMMIT: by_value(entry, COMMIT)},
        "final": entry.metric(metric),
        "best": entry.metric(metric, checkpoint="best"),
        "test": held_out.columns(entry, metric)["test"],
        "looks": entry.kept.looks(),
        "flops_per_token": entry.flops_per_token,
        "progress": course.progress(entry),
        "words": course.progress_words(entry),
        "resume": course.resume_command(entry),
    }


def _plain(value: Any) -> Any:
    """Return a config value as plain JSON; other types become text."""
    return value if value is None or isinstance(value, bool | str) or number(value) is not None else str(value)


def _environment(entry: Entry) -> dict[str, str]:
    found = {"run": str(entry.path)}
    for name in ENVIRONMENT:
        value = getattr(entry.summary, name)
        if value not in (None, [], ""):
            found[name] = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    for name, version in entry.summary.versions.items():
        found[str(name)] = str(version)
    return found


@functools.lru_cache(maxsize=10_000)
def _recorded(run: Path, stamp: tuple[int, ...]) -> tuple[curves.Curves, dict[str, Course]]:
    """Return a run's curves and the course of its validations; cached by `stamp` for a served page."""
    recorded = Run(run).metrics()
    return curves.curves(recorded), course.courses(recorded)


def _shared(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the settings that every run has, with the same value in all of them."""
    found = dict(entries[0].settings) if entries else {}
    for entry in entries:
        found = {key: each for key, each in found.items() if key in entry.settings and entry.settings[key] == each}
    return found


def last_record(entry: Entry) -> str:
    """Return the time of the run's last record, to the minute; empty if its record is missing."""
    try:
        changed = (entry.path / METRICS).stat().st_mtime
    except OSError:  # removed in the meantime
        return ""
    return datetime.fromtimestamp(changed).strftime("%Y-%m-%d %H:%M")


def links(entry: Entry, folder: Path | None) -> dict[str, str]:
    """Return relative addresses of a run's folder, log and samples, if they exist.

    Args:
        entry: the run.
        folder: folder of the page; None: the page is served, and a browser may not open files.
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
    """Return a relative address, quoted and with `./` in front, so that no name is read as a scheme or a query."""
    # As bytes: a name need not be valid Unicode.
    address = f"./{quote(os.fsencode(os.path.relpath(place, folder)))}"
    if place.is_dir():
        address += "/"
    return address


# -- the table of variants ------------------------------------------------------------------------------------------


def rows(found: Conclusion, endings: Endings) -> list[dict[str, Any]]:
    """Return one row for each variant of a group, the best first."""
    pairs = {}
    references = set()
    for comparison in found.comparisons:
        pairs[id(comparison.other)] = comparison
        references.add(id(comparison.reference))
    several = len(references) > 1  # with `--by`: then each row names its reference
    made = []
    for variant in found.variants:
        row = _row(variant, found.group.metric, endings)
        row["comparison"] = _comparison(pairs.get(id(variant)), named=several)
        row["reference"] = id(variant) in references
        made.append(row)
    return made


def digits(variants: Sequence[Variant]) -> int:
    """Return the decimal places of the means of a table: four, and more for small numbers."""
    for variant in variants:  # the best first: the others are compared with it
        if variant.mean:
            size = abs(variant.mean)
            return max(decimals(size, 4), min(decimals(size, 5), 4))
    return 4


def _row(variant: Variant, metric: str, endings: Endings) -> dict[str, Any]:
    own = variant.counted or variant.entries
    # The cost so far; for runs that count, the cost at the measured weights.
    costs = {name: mean_cost(own, name) for name in ("steps", *records.COSTING)}
    if variant.counted:
        costs |= {axis: variant.costs.get(axis) for axis in AXES}
    ends = [end for end in map(endings.get, map(id, own)) if end is not None]
    judged = [end.overfits for end in ends if end.overfits is not None]
    tests = [held_out.columns(entry, metric)["test"] for entry in variant.counted]
    return {
        "name": variant.name,
        "mean": variant.mean,
        "interval": variant.interval,
        "values": list(variant.values),
        "so_far": _so_far(variant, metric),
        "seeds": len(variant.values),
        "runs": len(variant.entries),
        "costs": costs,
        "gap": mean_of(end.gap for end in ends),
        "lost": mean_of(end.lost for end in ends),
        "overfits": sum(judged),
        "judged": len(judged),
        # None unless all runs have one: otherwise it would be a mean over other seeds than the row's.
        "test": mean_of(tests),
        "tested": len(tests) - tests.count(None),
    }


def _so_far(variant: Variant, metric: str) -> float | None:
    """Return the mean of the last validations of a variant without finished runs; None for other variants."""
    values = [entry.metric(metric) for entry in variant.entries if not variant.values]
    return mean_of(each for each in values if each is not None)  # some may not have been validated yet


def _comparison(found: Comparison | None, *, named: bool) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "against": found.reference.name if named else "",  # otherwise the head of the column names it
        "difference": found.difference,
        "low": found.low,
        "high": found.high,
        "digits": decimals((found.high - found.low) / 2),
        "shown": found.significant,
        "effect": found.effect,
        "needed": found.seeds_needed,
    }
