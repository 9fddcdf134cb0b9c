"""Forecasts for the series of a file: values, intervals and times, in the units of the data."""

from __future__ import annotations

import csv
import tempfile
from calendar import monthrange
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from jaxtyping import Float, Int, Shaped

from seqtrain.config.instantiate import make
from seqtrain.data.sources.series import HoldsLabels, SeriesFile
from seqtrain.data.values.blocks import DECIMAL_COMMA
from seqtrain.data.values.fan import Fan
from seqtrain.data.values.reading import Reading
from seqtrain.data.values.scaling import Scaling, step_of
from seqtrain.data.values.series import Clock, Series, in_rows, months_of_a_step
from seqtrain.errors import NonFinite, UserError, first_few
from seqtrain.tasks.predictors import NamedSeries
from seqtrain.training.data import make_source

if TYPE_CHECKING:
    from seqtrain.inference.opened import Opened


LONGEST_MONTH = 31  # days
SAME_STEP = 1.15  # largest ratio of two equal steps: months and years vary in length
KEPT_OPTIONS = ("decimal", "time_column", "time_format", "id_column")  # data options of the run that apply to new files


@dataclass(frozen=True)
class Continued:
    """One series and its forecast, in the units of the data."""

    name: str
    columns: tuple[str, ...]
    times: list[str]  # of each row ahead: a date, or a number
    values: dict[str, Float[np.ndarray, "H C"]]  # `forecast`, and the ends of intervals
    history: Float[np.ndarray, "n C"]
    axis: Shaped[np.ndarray, " n+H"]  # times of history and forecast: dates, or numbers

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield an output row for each step ahead."""
        for step, time in enumerate(self.times):
            row: dict[str, Any] = {"series": self.name} if self.name else {}
            row["time"] = time
            for channel, column in enumerate(self.columns):
                for name, found in self.values.items():
                    row[column if name == "forecast" else f"{column}_{name}"] = float(found[step, channel])
            yield row

    def fan(self, channel: int) -> Fan:
        """Return one column as a fan, for a plot."""
        bands = {}
        for name in self.values:
            kind, _, percent = name.partition("_")
            if kind == "lower":
                ends = self.values[name][:, channel], self.values[f"upper_{percent}"][:, channel]
                bands[int(percent) / 100] = ends
        length = len(self.history)
        return Fan(
            history_times=self.axis[:length],
            history=self.history[:, channel],
            times=self.axis[length:],
            median=self.values["forecast"][:, channel],
            bands=bands,
            title=" ".join(filter(None, (self.name, self.columns[channel]))),
        )


def continue_file(
    opened: Opened,
    path: Path,
    *,
    called: str,
    say: Callable[[str], None],
    widths: Mapping[float, Float[np.ndarray, "H C"]] = MappingProxyType({}),
) -> list[Continued]:
    """Forecast the continuation of each series of a file.

    Args:
        opened: A run whose task reads series.
        path: csv, tsv, parquet or jsonl with the columns that the run was trained on.
        called: The file's name in messages: `--input more.csv`.
        say: Receives messages on how its rows were read.
        widths: Half the width of the interval around the forecast, in scaled units, by coverage.

    Returns:
        A continuation of each series, in the order of the file.

    Raises:
        UserError: The file lacks a column, has another kind of time than the run's data, its times do not increase, or
            a series is too short.
    """
    scaling = opened.preprocessor.series
    assert scaling is not None
    options = {key: opened.config.data[key] for key in KEPT_OPTIONS if key in opened.config.data}
    if scaling.clock is not None and scaling.clock.column is not None:
        options["time_column"] = scaling.clock.column
    try:
        source = SeriesFile(path=str(path), columns=scaling.columns, known_columns=scaling.known_columns, **options)
        series = source.series
        _check_clock(scaling, series, called)
    except UserError as fault:
        raise _of_file(fault, path, called) from None
    found, num_ahead = [], 0
    for number in range(len(series.names)):
        continued = _continued(opened, scaling, series, number, widths)
        found.append(continued)
        num_ahead += int(series.lengths[number]) - len(continued.history)
    if num_ahead:
        # Tell the user, because such rows look like missing values.
        are = "is" if num_ahead == 1 else "are"
        horizon = len(found[0].times)
        say(f"{in_rows(num_ahead)} without values at the end {are} the time ahead; the forecast has {horizon} steps")
    return found


def _of_file(fault: UserError, path: Path, called: str) -> UserError:
    """Return the fault with the name of the file here instead of data.path, and a remedy that predict takes."""
    lines = (line.replace(f"data.path={path}", called) for line in fault.lines)
    return UserError(*(line.replace(f"set {DECIMAL_COMMA}", "write points, as in training") for line in lines))


def _check_clock(scaling: Scaling, series: Series, called: str) -> None:
    """Raise UserError if the times differ in kind or step from the run's data: rows would be misread."""
    if scaling.clock is None:
        return

    def told(clock: Clock | None) -> str:
        kind = "no time" if clock is None else "dates" if clock.form else "whole numbers as times"
        return kind if clock is None or clock.offset is None else f"{kind} with a time zone"

    wanted, found = told(scaling.clock), told(series.clock)
    if found != wanted:
        raise UserError(f"{called}: has {found}, but the run was trained on {wanted}; write times as in training")
    step = step_of(series)
    if step and scaling.step_seconds and not 1 / SAME_STEP < step / scaling.step_seconds < SAME_STEP:
        unit = " s" if series.has_dates else ""
        raise UserError(
            f"{called}: its rows are {step:,}{unit} apart, but the run was trained on rows {scaling.step_seconds:,}"
            f"{unit} apart; give rows with the same step"
        )


def _continued(
    opened: Opened, scaling: Scaling, series: Series, number: int, widths: Mapping[float, Float[np.ndarray, "H C"]]
) -> Continued:
    task, config = opened.task, opened.config
    rows_ahead: int = task.rows_ahead  # type: ignore[attr-defined]
    one, origin = _with_rows_ahead(series, number, rows_ahead)
    # A shorter window could be padded, but the model has never seen one.
    needed = 1 if config.tbptt.carry else config.data.max_length
    name = f"series {series.names[number]}" if series.names[number] else "the series"
    if origin < needed:
        raise UserError(
            f"{name} has {in_rows(origin)} of values, but the model reads data.max_length={needed:,}; add more rows"
        )
    if np.isnan(one.values[0 if config.tbptt.carry else origin - needed : origin]).all():
        raise UserError(f"{name} has no value in the rows that the model reads; give some")
    separate = scaling.apart and len(scaling.columns) > 1
    read = one.apart() if separate else one
    # Use the precision of training: with another, the last digits would differ from those of `evaluate`.
    dtype = np.float64 if config.trainer.precision == "64-true" else np.float32
    reading = Reading(read, scaling, dtype)
    k2 = make(config.tbptt).k2
    parts: dict[str, list[np.ndarray]] = {}
    for begin, mean, std in zip(read.offsets[:-1], reading.mean, reading.std, strict=True):
        rows = np.arange(begin, begin + origin + rows_ahead)[None]
        found = task.ahead(opened.model, reading.features(rows)[0], k2)  # type: ignore[attr-defined]
        for share, width in widths.items():
            found[f"lower_{100 * share:.0f}"] = found["forecast"] - width
            found[f"upper_{100 * share:.0f}"] = found["forecast"] + width
        for name, values in found.items():
            parts.setdefault(name, []).append(values * std + mean)
    values = {name: np.concatenate(columns, 1) for name, columns in parts.items()}
    if not all(np.isfinite(column).all() for column in values.values()):
        raise NonFinite("the forecast contains nan or inf: a weight is nan or inf, or the model overflows")
    ahead = _times_ahead(one, origin, len(values["forecast"]))
    times, clock = np.arange(1, origin + 1), series.clock or Clock(None, "")
    if one.times is not None:
        times = one.times[:origin]
    axis = clock.local(np.append(times, ahead))
    texts = [clock.text(time) for time in ahead]
    return Continued(series.names[number], scaling.columns, texts, values, np.asarray(one.values[:origin]), axis)


def _with_rows_ahead(series: Series, number: int, count: int) -> tuple[Series, int]:
    """Return one series with `count` rows after its last value, and the index of the first of them.

    Raises UserError if the columns known ahead have fewer rows.
    """
    begin, end = series.offsets[number], series.offsets[number + 1]
    values, known = np.asarray(series.values[begin:end]), np.asarray(series.known[begin:end])
    times = None if series.times is None else np.asarray(series.times[begin:end])
    origin = len(values)
    if series.known_columns:
        # Rows at the end that have no value are the time ahead.
        seen = np.flatnonzero(~np.isnan(values).all(1))
        origin = int(seen[-1]) + 1 if len(seen) else 0
        if origin + count > len(values):
            there = f"has {len(values) - origin:,} rows" if len(values) > origin else "ends with its last value"
            wanted = "a row" if count == 1 else f"the {count:,} rows of task.horizon"
            raise UserError(
                f"{first_few(series.known_columns)}: known ahead, but the file {there}; add {wanted} for the time "
                "ahead, with no values"
            )
    else:
        values = np.concatenate([values, np.full((count, values.shape[1]), np.nan)])
        known = np.concatenate([known, np.zeros((count, 0))])
        if times is not None:
            times = np.append(times, _clock_ahead(times, series.has_dates, count))
    offsets = np.array([0, len(values)])
    return replace(
        series, values=values, known=known, times=times, offsets=offsets, names=(series.names[number],)
    ), origin


def _times_ahead(series: Series, origin: int, horizon: int) -> list[int]:
    """Return the time of each row ahead, or its number if the series has no times."""
    if series.times is None:
        return list(range(origin + 1, origin + horizon + 1))
    return _clock_ahead(series.times[:origin], series.has_dates, horizon)


def _clock_ahead(times: Int[np.ndarray, " n"], has_dates: bool, count: int) -> list[int]:
    """Continue times with the same spacing: seconds since 1970, or steps."""
    # Months vary in length: adding a fixed number of seconds would drift off the first of the month.
    months = months_of_a_step(times) if has_dates else None
    if months is not None:
        return _months_ahead(times, months, count)
    # The median, so that gaps in the file do not change the step.
    step = int(np.median(np.diff(times))) if len(times) > 1 else 1
    return [int(times[-1]) + step * ahead for ahead in range(1, count + 1)]


def _months_ahead(times: Int[np.ndarray, " n"], months: int, horizon: int) -> list[int]:
    """Repeat the same day and hour every `months` months; in a shorter month, use its last day."""
    dates = [datetime.fromtimestamp(seconds, UTC) for seconds in times.tolist()]
    last = dates[-1]
    # If every row is the last day of a month, so are the rows ahead.
    if all((date + timedelta(days=1)).month != date.month for date in dates):
        day = LONGEST_MONTH
    else:
        day = max(date.day for date in dates)
    found = []
    for ahead in range(1, horizon + 1):
        year, month = divmod(last.year * 12 + last.month - 1 + months * ahead, 12)
        length = monthrange(year, month + 1)[1]
        found.append(int(last.replace(year=year, month=month + 1, day=min(day, length)).timestamp()))
    return found


def write_csv(continued: list[Continued], file: TextIO) -> None:
    """Write a header, and a row for each step ahead of each series."""
    writer = None
    for series in continued:
        for row in series.rows():
            if writer is None:
                writer = csv.DictWriter(file, row)
                writer.writeheader()
            writer.writerow(
                {name: f"{value:.8g}" if isinstance(value, float) else value for name, value in row.items()}
            )


EXPECTED = "a path, a dict of columns, or a table of pandas or pyarrow"


def forecast_table(opened: Opened, series: Any, say: Callable[[str], None]) -> dict[str, list[Any]]:
    """Forecast the continuation of series, as columns.

    Args:
        opened: A run whose task reads series.
        series: A path, a dict of columns, or a table.
        say: Receives messages on how its rows were read.

    Raises:
        UserError: `series` is none of these, or cannot be continued.
    """
    name = opened.task.name()
    if not opened.task.reads_values():
        raise UserError(f"task={name} does not forecast series; use predict")
    if isinstance(series, str | Path):
        continued = continue_file(opened, Path(series), called=str(series), say=say)
    else:
        # Written to a file, so that tables are checked and read exactly as files are.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.parquet"
            _write(series, path)
            try:
                continued = continue_file(opened, path, called="the table", say=say)
            except UserError as fault:
                # The temporary path means nothing to the caller.
                raise UserError(*(line.replace(str(path), "the table") for line in fault.lines)) from None
    columns: dict[str, list[Any]] = {}
    for each in continued:
        for row in each.rows():
            for column, value in row.items():
                columns.setdefault(column, []).append(value)
    return columns


def _write(table: Any, path: Path) -> None:
    """Write an in-memory table as parquet. Raise UserError if it is not a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = pa.table(table)
    except (pa.ArrowException, TypeError, ValueError) as error:
        # Other formats, such as a list of rows, are not guessed.
        reason = str(error).partition("\n")[0].rstrip(".")
        raise UserError(f"expected {EXPECTED}, not a {type(table).__name__} ({reason})") from None
    pq.write_table(found, path)


def read_series(opened: Opened, path: Path, called: str) -> list[NamedSeries]:
    """Read the series of a file, in the format of the run's training data; labels are ignored.

    Args:
        opened: A run that predicts on whole series.
        path: The file.
        called: The file's name in messages: `--input more.ts`.

    Raises:
        UserError: The file cannot be read, or has other channels than the run's data.
    """
    scaling = opened.preprocessor.series
    source = make_source(opened.config)
    assert scaling is not None
    assert isinstance(source, HoldsLabels)
    try:
        series = source.series_of(path, scaling.columns)
    except UserError as fault:
        raise _of_file(fault, path, called) from None
    if series.columns != scaling.columns:
        raise UserError(
            f"{called}: its channels are {first_few(series.columns)}, but the run was trained on "
            f"{first_few(scaling.columns)}; give the same channels"
        )
    # Use the precision of training: with another, the last digits would differ from those of `evaluate`.
    reading = Reading(series, scaling, np.float64 if opened.config.trainer.precision == "64-true" else np.float32)
    found = []
    for name, begin, end in zip(series.names, series.offsets[:-1], series.offsets[1:], strict=True):
        found.append(NamedSeries(name, reading.observed(np.arange(begin, end)[None])[0]))
    return found
