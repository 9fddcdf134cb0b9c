"""The rows of a comparison as pandas DataFrames: the same numbers as those of `seqtrain compare --json`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from seqtrain.compare import records
from seqtrain.compare.entries import AXES, Entry, number
from seqtrain.compare.verdict import Conclusion, all_entries
from seqtrain.errors import Unavailable, UserError, did_you_mean

if TYPE_CHECKING:
    from pandas import DataFrame

HISTORY = ("group", "run", "variant", "seed", "step", "tokens", "seconds", "value")
CLOCK = ("step", "tokens", "seconds")
VALIDATION = "validation/"


def runs(found: Sequence[Conclusion]) -> DataFrame:
    """A row a run, in the order of the terminal's table; see `Compared.runs`."""
    variants, values, entries = _variants(found), _values(found), {}
    for place, conclusion in enumerate(found, 1):
        # The table names each run once, so its rows lead back to what was read.
        for entry in conclusion.group.entries:
            entries[place, entry.name] = entry
    rows = []
    for row in records.rows(found):
        entry = entries[row["group"], row["name"]]
        own = {"path": str(entry.path), "variant": variants[entry], "seed": entry.seed}
        # Which run it is comes first; what the comparison reckons of it stands behind its settings.
        rows.append(own | row | {"value": values.get(entry)} | _metrics(entry))
    return _pandas().DataFrame(rows)


def variants(found: Sequence[Conclusion]) -> DataFrame:
    """A row a variant; see `Compared.variants`."""
    rows = []
    for group in records.group_records(found):
        for record in group["variants"]:
            # Of one seed there is no interval, and its cells stay empty.
            low, high = record["interval"] or (None, None)
            row = {"group": group["group"], "variant": record["name"], "metric": group["metric"]}
            row |= {"mean": record["mean"], "sd": record["sd"], "low": low, "high": high}
            row |= {"seeds": len(record["values"]), "runs": len(record["runs"])}
            for axis in AXES:  # each has its column, also where no variant knows it
                row[axis] = record["costs"].get(axis)
            rows.append(row)
    return _pandas().DataFrame(rows)


def history(found: Sequence[Conclusion], metric: str) -> DataFrame:
    """A row a recorded point; see `Compared.history`."""
    names, rows = _variants(found), []
    for place, conclusion in enumerate(found, 1):
        for entry in conclusion.group.entries:
            which = [place, entry.name, names[entry], entry.seed]
            for point in _points(entry, metric):
                rows.append([*which, *point])
    if not rows:
        raise UserError(f"{metric}: no run recorded it{did_you_mean(metric, recorded(all_entries(found)))}")
    return _pandas().DataFrame(rows, columns=list(HISTORY))


def _points(entry: Entry, metric: str) -> Iterator[list[float | None]]:
    """When the run recorded the metric, and its value then."""
    for record in entry.records:
        value = number(record.get(metric))
        if value is not None:  # most records are of training alone
            yield [*map(record.get, CLOCK), value]


def recorded(entries: Sequence[Entry]) -> list[str]:
    """The metrics that any of the runs recorded."""
    names: dict[str, None] = {}
    for entry in entries:
        for record in entry.records:
            names |= dict.fromkeys(name for name in record if number(record[name]) is not None)
    return [name for name in names if name not in CLOCK]


def _variants(found: Sequence[Conclusion]) -> dict[Entry, str]:
    """The name of each run's variant."""
    names: dict[Entry, str] = {}
    for conclusion in found:
        for variant in conclusion.variants:
            names |= dict.fromkeys(variant.entries, variant.name)
    return names


def _values(found: Sequence[Conclusion]) -> dict[Entry, float]:
    """Return the value that each run that counts adds to the mean of its variant."""
    values: dict[Entry, float] = {}
    for conclusion in found:
        for variant in conclusion.variants:
            values |= zip(variant.counted, variant.values, strict=True)
    return values


def _metrics(entry: Entry) -> dict[str, float | None]:
    """Every metric of validation: the final one, or of a run that has not finished the last that it recorded."""
    names = list(map(VALIDATION.__add__, entry.metrics))
    # The summary has its metrics at the end of the training alone.
    if not entry.finished:
        names += recorded([entry])
    kept = [name for name in dict.fromkeys(names) if name.startswith(VALIDATION)]
    return {name: entry.metric(name.removeprefix(VALIDATION)) for name in kept}


def _pandas() -> Any | ModuleType:
    """pandas, which is imported only where a table is asked for."""
    try:
        import pandas
    except ImportError:  # it comes with `datasets`, which a slim installation may lack
        raise Unavailable("pandas is not installed, which tables need: pip install pandas") from None
    return pandas
