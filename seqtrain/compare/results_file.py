"""Results of other programs: a CSV file with a row for each variant and seed, read as the runs of a comparison."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from seqtrain.compare.entries import Entry, Mode, number
from seqtrain.compare.filters import as_number, parsed
from seqtrain.errors import UserError, did_you_mean, first_few
from seqtrain.files.atomic import reading
from seqtrain.files.checked import open_checked
from seqtrain.runs.evaluations import Kept
from seqtrain.runs.summary import Summary

VARIANT, SEED, METRIC = "variant", "seed", "metric"  # columns of the file; --metric names another one
# Optional columns with the costs of a row.
COSTS = ("parameters", "state", "steps", "tokens", "flops", "seconds", "tokens_per_second")

Row = dict[str, str]


@dataclass(frozen=True, eq=False)
class Result(Entry):
    """A row of the file: a run with known numbers and nothing else."""

    @property
    def split(self) -> str:
        """The file's name, as the measured split is unknown."""
        return self.path.name

    @property
    def task(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    @property
    def model(self) -> str:
        """The variant, as the file names it."""
        return self.config[VARIANT]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Variant and seed; further columns are used only by --by."""
        return {name: self.config[name] for name in (VARIANT, SEED)}

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """None: a row has no learning curve."""
        return []

    @cached_property
    def kept(self) -> Kept:
        """None: a row was never evaluated here."""
        return Kept()


def read_results(
    path: Path, metric: str | None, better: Mode | None, *, where: Sequence[str] = (), by: Sequence[str] = ()
) -> tuple[list[Entry], list[str]]:
    """Read a CSV file with a header.

    Args:
        path: the file; it needs the columns variant, seed and the metric, in any order.
        metric: column of the numbers to compare; None: METRIC.
        better: min if less is better, max if more is.
        where: conditions on rows, as in `filters.chosen`.
        by: arguments of `--by`: columns in which rows with the same variant and seed may differ.

    Returns:
        The rows, and the conditions not applied yet: those on variant, seed and metric, which hide seeds.

    Raises:
        UserError: the file cannot be read, lacks a column, has a row without a number, or one seed twice; it has fewer
            than two variants; or `better` is not given.
    """
    metric = metric or METRIC
    lines = list(_lines(path, metric))
    if better is None:
        raise UserError(f"--from {path}: is less or more of {metric} better? add --better min, or --better max")
    # Conditions on other columns first: a file with several data sets has each seed several times.
    left = []
    for text in where:
        condition = parsed(text, "--where ")
        if condition.key in (VARIANT, SEED, metric):
            left.append(text)
            continue
        if condition.key not in lines[0][1]:
            raise UserError(f"--where {text}: no such column in {path}{did_you_mean(condition.key, lines[0][1])}")
        condition.check([row[condition.key] for _, row in lines], "--where ")
        lines = [(line, row) for line, row in lines if condition.holds(row[condition.key])]
        if not lines:
            raise UserError(f"--where {text}: no row of {path} matches")
    columns = [VARIANT, SEED, *(word.strip() for word in ",".join(by).split(","))]
    first: dict[tuple[str | None, ...], int] = {}
    for line, row in lines:
        before = first.setdefault(tuple(map(row.get, columns)), line)
        if before != line:
            raise UserError(
                f"{path}:{line}: variant {row[VARIANT]} has seed {row[SEED]} in line {before}, too; keep one of them, "
                "or choose among rows by --where"
            )
    if len({row[VARIANT] for _, row in lines}) < 2 and not by:
        raise UserError(f"{path}: {lines[0][1][VARIANT]} is the only variant; a comparison needs two")
    return [_result(path, line, row, metric, better) for line, row in lines], left


def _lines(path: Path, metric: str) -> Iterator[tuple[int, Row]]:
    """Yield each row with the number of its last line; raise UserError if the file is malformed."""
    try:
        with reading(path), open_checked(path) as file:
            # Excel writes a byte order mark at the beginning of a file.
            reader = csv.DictReader(io.TextIOWrapper(file, "utf-8-sig", newline=""), skipinitialspace=True, strict=True)
            header = reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
            _check_header(path, header, metric)
            row = None
            for row in reader:
                if None in row or None in row.values():
                    raise UserError(f"{path}:{reader.line_num}: not as many fields as the header has ({len(header)})")
                cells = {name: cell.strip() for name, cell in row.items()}
                yield reader.line_num, cells | {SEED: _seed(cells[SEED])}
            if row is None:
                raise UserError(f"{path}: has a header and no rows")
    except FileNotFoundError:
        raise UserError(f"--from {path}: no such file") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a CSV file in UTF-8 ({error})") from None


def _seed(cell: str) -> str:
    """Return the seed 01 or 1.0 as 1; any other text as it is."""
    value = as_number(cell)
    if value is None or not value.is_integer():
        return cell
    return str(int(cell if cell.isdecimal() else value))


def _check_header(path: Path, header: Sequence[str], metric: str) -> None:
    """Raise UserError if a column is missing or occurs twice."""
    if not header:
        raise UserError(f"{path}: is empty; give a file with a header and rows")
    for name in (VARIANT, SEED, metric):
        if name not in header:
            remedy = f"; --metric names another one of {first_few(header)}"
            if name != METRIC:
                remedy = did_you_mean(name, header)
            raise UserError(f"{path}: no column {name} in its first line{remedy}")
        if header.count(name) > 1:
            raise UserError(f"{path}: two columns {name}; rename one of them")


def _result(path: Path, line: int, row: Row, metric: str, better: Mode) -> Result:
    """Make a run from a row; raise UserError for a cell that is empty or not a number."""
    if not row[VARIANT] or not row[SEED]:
        raise UserError(f"{path}:{line}: {SEED if row[VARIANT] else VARIANT} is empty")
    costs: dict[str, Any] = {}
    for name in (metric, *COSTS):
        cell = row.get(name, "")
        value = number(as_number(cell))
        if value is None and (cell or name == metric):
            raise UserError(f"{path}:{line}: {name} is {cell or 'empty'}, not a finite number")
        if value is not None:
            costs[name] = value
    summary = Summary(
        status="finished",
        compared_by=metric,
        measures={metric: {"better": better}},
        metrics={"validation": {metric: costs.pop(metric)}},
        parameters={"total": costs.pop("parameters", None)},
        **costs,
    )
    config = row | {SEED: int(row[SEED]) if row[SEED].isdecimal() else row[SEED]}
    return Result(path, f"line {line}", row[VARIANT], config, summary)
