"""A comparison for machines: rows of runs and records of groups as plain values, and the same numbers as DataFrames."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from seqtrain.compare import baselines, held_out, importance, pareto
from seqtrain.compare.entries import AXES, Entry, differing, number
from seqtrain.compare.filters import ordered, resolved, value
from seqtrain.compare.variants import Variant
from seqtrain.compare.verdict import Conclusion, all_entries
from seqtrain.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from pandas import DataFrame

IDENTITY = ("name", "label", "sweep", "status", "reason")  # keys that identify the run of a row
COSTING = ("tokens", "flops", "seconds", "tokens_per_second", "parameters", "state")
CLOCK = ("step", "tokens", "seconds")
VALIDATION = "validation/"


def rows(
    found: Sequence[Conclusion],
    *,
    sort: str | None = None,
    costs: Sequence[pareto.Cost] = (),
    beside: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return one row per run: its group, status, settings that differ between runs, metrics and costs.

    Args:
        found: the groups.
        sort: the key to sort by; None: the best first.
        costs: costs for which a row also has its variant's standing on the Pareto front, as in `pareto.Standing`.
        beside: keys of further columns after the metric.
    """
    settings = differing(all_entries(found))
    variants = _variants(found)
    is_tested = any(entry.kept.looks() for entry in all_entries(found))
    table = []
    for place, conclusion, entries in in_order(found, sort):
        metric = conclusion.group.metric
        standings = pareto.standings(conclusion) if costs else {}
        for entry in entries:
            row: dict[str, Any] = {"group": place}
            for name in IDENTITY:
                row[name] = value(entry, name)
            for key in settings:
                row[key] = entry.settings.get(key)
            row["metric"] = metric
            for checkpoint in ("final", "best"):
                row[checkpoint] = entry.metric(metric, "validation", checkpoint)
            row |= dict.fromkeys(beside)
            if is_tested:
                row |= held_out.columns(entry, metric)
            for name in ("steps", *COSTING):
                row[name] = value(entry, name)
            own = standings.get(variants[entry].name, {})
            row |= {f"pareto_{cost}": own.get(cost, "") for cost in costs}
            table.append(row)
    return table


def record(found: Sequence[Conclusion], *, sort: str | None = None) -> dict[str, Any]:
    """Return the rows as plain values and, for each group, its variants, verdict, fronts and options."""
    records = group_records(found)
    for one, conclusion in zip(records, found, strict=True):
        fronts = {cost: list(map(pareto.Point.record, points)) for cost, points in pareto.fronts(conclusion).items()}
        one |= {"pareto": fronts, "importance": importance.importances(conclusion).record()}
    return {"runs": rows(found, sort=sort), "groups": records}


def group_records(found: Sequence[Conclusion]) -> list[dict[str, Any]]:
    """Return the variants and the verdict of each group as plain values."""
    records = []
    for place, conclusion in enumerate(found, 1):
        variants = list(map(_variant_record, conclusion.variants))
        known = baselines.baseline_records(conclusion.group, conclusion.variants)
        records.append({"group": place, **statement(conclusion), "variants": variants, "baselines": known})
    return records


def statement(found: Conclusion) -> dict[str, Any]:
    """Return as plain values how a group was measured, and all sentences about it."""
    group = found.group
    return {
        **{name: getattr(group, name) for name in ("metric", "mode", "split", "reason", "remedy", "notes")},
        **{"verdict": found.sentences, "caveats": found.caveats, "remarks": found.remarks},
    }


def as_csv(table: Sequence[dict[str, Any]]) -> str:
    """Return rows as comma-separated values, with a header; None is an empty cell."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()


def in_order(found: Sequence[Conclusion], sort: str | None) -> Iterator[tuple[int, Conclusion, list[Entry]]]:
    """Yield each group's number, from 1, with its runs in order: by the key `sort`, otherwise the best first."""
    name, key = "final", "name"
    if sort is not None:
        name = sort.removeprefix("-")
    if name not in ("final", "best", "run"):
        # Over the runs of all groups: a key may be missing in some of them.
        key = resolved(all_entries(found), name, f"--sort {sort}")
    for place, conclusion in enumerate(found, 1):
        group = conclusion.group
        descending = group.mode == "max" if sort is None else sort.startswith("-")
        value_of = partial(value, key=key)
        if name in ("final", "best"):
            value_of = methodcaller("metric", group.metric, checkpoint=name)
        entries = ordered(group.entries, list(map(value_of, group.entries)), descending=descending)
        yield place, conclusion, entries


def _variant_record(variant: Variant) -> dict[str, Any]:
    return {
        "name": variant.name,
        "runs": [entry.name for entry in variant.entries],
        "values": list(variant.values),
        "mean": variant.mean,
        "sd": variant.sd,
        "interval": variant.interval and list(variant.interval),
        "costs": variant.costs,
    }


# -- DataFrames ----------------------------------------------------------------------------------------------------


def run_frame(found: Sequence[Conclusion]) -> DataFrame:
    """Return one row per run, in the order of the terminal's table; see `Compared.runs`."""
    from pandas import DataFrame

    # Each run has one row, so group and name identify its entry.
    entries = {(place, entry.name): entry for place, each in enumerate(found, 1) for entry in each.group.entries}
    variants, values = _variants(found), {}
    for variant in variants.values():
        values |= zip(variant.counted, variant.values, strict=True)
    table = []
    for row in rows(found):
        entry = entries[row["group"], row["name"]]
        own = {"path": str(entry.path), "variant": variants[entry].name, "seed": entry.seed}
        # Identity first, then settings, then computed values.
        table.append(own | row | {"value": values.get(entry)} | _metrics(entry))
    return DataFrame(table)


def variant_frame(found: Sequence[Conclusion]) -> DataFrame:
    """Return one row per variant; see `Compared.variants`."""
    from pandas import DataFrame

    table = []
    for group in group_records(found):
        for record in group["variants"]:
            # With one seed there is no interval: its cells are empty.
            low, high = record["interval"] or (None, None)
            row = {"group": group["group"], "variant": record["name"], "metric": group["metric"]}
            row |= {"mean": record["mean"], "sd": record["sd"], "low": low, "high": high}
            row |= {"seeds": len(record["values"]), "runs": len(record["runs"])}
            # Every axis has a column, even if no variant has recorded it.
            table.append(row | {axis: record["costs"].get(axis) for axis in AXES})
    return DataFrame(table)


def history_frame(found: Sequence[Conclusion], metric: str) -> DataFrame:
    """Return one row per recorded point; see `Compared.history`."""
    from pandas import DataFrame

    variants, table = _variants(found), []
    for place, conclusion in enumerate(found, 1):
        for entry in conclusion.group.entries:
            which = [place, entry.name, variants[entry].name, entry.seed]
            for record in entry.records:
                value = number(record.get(metric))
                if value is not None:  # most records have only training metrics
                    table.append([*which, *map(record.get, CLOCK), value])
    if not table:
        raise UserError(f"{metric}: no run recorded it{did_you_mean(metric, _recorded(all_entries(found)))}")
    return DataFrame(table, columns=["group", "run", "variant", "seed", *CLOCK, "value"])


def _variants(found: Sequence[Conclusion]) -> dict[Entry, Variant]:
    """Return each run's variant."""
    return {entry: variant for each in found for variant in each.variants for entry in variant.entries}


def _metrics(entry: Entry) -> dict[str, float | None]:
    """Return every validation metric: the final value or, for an unfinished run, the last recorded one."""
    names = [f"{VALIDATION}{name}" for name in entry.metrics]
    # The summary gets its metrics only at the end of training.
    if not entry.finished:
        names += [name for name in _recorded([entry]) if name.startswith(VALIDATION)]
    return {name: entry.metric(name.removeprefix(VALIDATION)) for name in dict.fromkeys(names)}


def _recorded(entries: Sequence[Entry]) -> list[str]:
    """Return the metrics that any of the runs recorded."""
    names: dict[str, None] = {}
    for entry in entries:
        for record in entry.records:
            names |= dict.fromkeys(name for name in record if number(record[name]) is not None)
    return [name for name in names if name not in CLOCK]
