"""The runs of a comparison: their settings, status and results, and the settings in which they differ."""

from __future__ import annotations

import collections
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from seqtrain.compare.folds import fold_of
from seqtrain.compare.settings import flattened, is_path, last_word
from seqtrain.errors import UserError, did_you_mean
from seqtrain.files.atomic import exists
from seqtrain.runs import leaks, measures
from seqtrain.runs.directory import CONFIG, Run, list_runs, stands
from seqtrain.runs.evaluations import Evaluation, Kept, kept
from seqtrain.runs.identity import digest
from seqtrain.runs.summary import Summary
from seqtrain.sweeps.folder import member_of
from seqtrain.terminal import pasted, printable

Axis = Literal["steps", "tokens", "seconds", "flops"]
AXES: tuple[Axis, ...] = get_args(Axis)
Checkpoint = Literal["final", "best"]  # whose validation is compared
Mode = Literal["min", "max"]
BEST_OF: dict[Mode, Callable[..., Any]] = {"min": min, "max": max}

SETTING_ORDER = {
    "model": 0,
    "variant": 0,
    "task": 0,
    "seed": 2,
}  # of columns; all other settings have 1
MAX_NUMBER = 1e305  # larger than any perplexity; larger values come only from an untrusted file
RECORDED = {"steps": "step", "flops": "tokens"}  # the record's key for an axis of another name; FLOPs from tokens


MOST_LINES = 12  # lines of one kind that the terminal shows for a group


@dataclass(frozen=True, eq=False)
class Entry:
    """One run of a comparison, finished or not; read once, only from its directory."""

    path: Path
    name: str  # its path, relative to the requested folder
    label: str  # what differs from other trials of its sweep, or the name of its directory
    config: dict[str, Any] = field(repr=False)
    summary: Summary = field(repr=False)
    sweep: str | None = None  # the name of the sweep's directory
    evaluation: Evaluation | None = None  # a recorded one, to compare its results instead of those of validation

    @property
    def split(self) -> str:
        """The split whose results are compared."""
        return "validation" if self.evaluation is None else self.evaluation.split

    @cached_property
    def kept(self) -> Kept:
        """The evaluations that are kept in the run. Raises UserError if they cannot be read."""
        return kept(self.path)

    @cached_property
    def status(self) -> str:
        """Finished, running, interrupted, failed, pruned or refused; correct even if the process was killed."""
        return stands(self.path, self.summary)

    @property
    def finished(self) -> bool:
        """True if the run has finished and so counts in a verdict."""
        return self.status == "finished"

    @cached_property
    def altered(self) -> str:
        """Reason why a finished run's results do not count; empty if they count."""
        if self.finished and self.summary.identity not in (None, digest(self.config)):
            return "config.yaml was changed after the training, and no longer says what was trained"
        return ""

    @property
    def reason(self) -> str:
        """Reason why the run failed, was pruned or was refused, on one line; empty if none was recorded."""
        return printable(self.summary.reason or "")

    @property
    def trust_words(self) -> list[str]:
        """Command-line arguments that trust the run's own code: without them it does not open."""
        return [word for package in self.summary.trust for word in ("--trust", str(package))]

    @property
    def seed(self) -> Any:
        """The seed of its random numbers."""
        return self.config.get("seed")

    @cached_property
    def fold(self) -> tuple[Any, Any] | None:
        """Fold of cross-validation that the run is tested on, as (fold seed, fold number); None if it has no fold."""
        return fold_of(self.config)

    @property
    def replicate(self) -> Any:
        """Fold of the run if it has one, otherwise its seed: this value differs among the runs of a variant."""
        return self.seed if self.fold is None else self.fold

    @property
    def model(self) -> str:
        """The model's name, as in `model=lstm`."""
        return str(self.settings.get("model", "?"))

    @property
    def task(self) -> str:
        """The task's name, as in `task=next_token`."""
        return str(self.settings.get("task", "?"))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The config by dotted key, without settings that change no result; `model` is the chosen option's name."""
        return flattened(self.config, self.summary)

    @property
    def leak(self) -> str | None:
        """Reason why nothing is concluded from the run's results: training read much of the measured text."""
        reason = leaks.worst(self.summary)
        if self.evaluation is None:
            return reason
        # Test comes first: if training read it, the test result is invalid, whatever is true of validation.
        place = leaks.place_of_kept(self.config.get("init_from") is not None)
        return leaks.worst_kept(self.evaluation.split, self.evaluation.leak, place) or reason

    @property
    def leak_notes(self) -> list[str]:
        """Further notes on text that training may have read."""
        found = leaks.notes(self.summary)
        if self.evaluation is not None:
            place = leaks.place_of_kept(self.config.get("init_from") is not None)
            found += leaks.notes_kept(self.evaluation.split, self.evaluation.leak, place)
        return found

    def metric(self, name: str, split: str | None = None, checkpoint: Checkpoint = "final") -> float | None:
        """Return a metric of the whole split for the last weights, or for the best ones by the run's own monitor.

        Return None if there is no value. An unfinished run has its last recorded value, or its best one. Without
        `split`, the compared split is used: a recorded evaluation has its own checkpoint.
        """
        if split is None and self.evaluation is not None:
            return number(self.evaluation.metrics.get(name))
        split = split or "validation"
        splits = self.summary.best if checkpoint == "best" else self.summary.metrics
        found = splits.get(split)
        if found is not None or self.finished:
            return number(_mapping(found).get(name))
        # The summary gets its metrics at the end: until then only the records have them.
        values = self.curve(f"{split}/{name}", "steps")[1]
        if not values:
            return None
        if checkpoint == "final":
            return values[-1]
        return BEST_OF[self.mode(name)](values)

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Final metrics of the compared split; empty if the run has not finished."""
        if self.evaluation is not None:
            return self.evaluation.metrics
        return _mapping(self.summary.metrics.get("validation"))

    @property
    def parameters(self) -> int | None:
        """Number of parameters."""
        found = number(self.summary.parameters.get("total"))
        return None if found is None else int(found)

    @property
    def state(self) -> int | None:
        """Size of the state that one lane carries between chunks; None if there is none, or it is unknown."""
        found = number(self.summary.state)
        return None if found is None else int(found)

    @property
    def speed(self) -> float | None:
        """Training speed in tokens per second; None if the run has not finished."""
        return number(self.summary.tokens_per_second)

    def mode(self, name: str) -> Mode:
        """Return "min" if a smaller value of this metric is better, "max" if a larger one is."""
        return measures.better(self.summary, name) or "min"

    def unit(self, name: str) -> str:
        """Return the unit of this metric."""
        return measures.unit(self.summary, name)

    def curve(self, metric: str, axis: Axis) -> tuple[list[float], list[float]]:
        """Return the finite points of a metric, such as `validation/loss`, against steps, tokens, seconds or FLOPs.

        Both lists are empty if nothing was recorded or, for FLOPs, if the cost per token is unknown.
        """
        factor = self.flops_per_token if axis == "flops" else 1.0
        key = RECORDED.get(axis, axis)
        xs, ys = [], []
        for record in self.records:
            x, y = number(record.get(key)), number(record.get(metric))
            if x is not None and y is not None and factor is not None:
                xs.append(x * factor)
                ys.append(y)
        return xs, ys

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Records of metrics.jsonl, read on first use: a table of finished runs does not need them."""
        return Run(self.path).metrics()

    @property
    def flops_per_token(self) -> float | None:
        """Training FLOPs per token; None if the run has not counted them yet."""
        if (known := number(self.summary.flops_per_token)) is not None:
            return known
        flops, tokens = number(self.summary.flops), number(self.summary.tokens)
        return flops / tokens if flops and tokens else None

    def cost(self, axis: Axis) -> float | None:
        """Return the training's steps, tokens, seconds or FLOPs; for an unfinished run, up to its last record."""
        known = number(getattr(self.summary, axis))
        if known is not None or self.finished:
            return known
        # The axis against itself counts all records, also those without a metric.
        costs = self.curve(RECORDED.get(axis, axis), axis)[0]
        return costs[-1] if costs else None


def read(paths: Iterable[Path | str], left_out: list[str] | None = None) -> list[Entry]:
    """Read the runs at and below these paths, each once, in the order of the paths.

    Args:
        paths: runs, sweeps, or any folders of runs.
        left_out: gets a line for each damaged run below a path; None: damaged runs are refused.

    Raises:
        UserError: a path does not exist or contains no run, a path is itself a damaged run, or no run is left.
    """
    # By their real paths: a run that several paths lead to counts once, under the first one's name.
    found: dict[Path, tuple[Path, str, bool]] = {}
    for path in map(Path, paths):
        for run in _runs_at(path, left_out):
            name = str(Path(path.resolve().name) / run.path.relative_to(path))
            found.setdefault(run.path.resolve(), (run.path, name, run.path == path))
    names = collections.Counter(name for _, name, _ in found.values())
    entries, faults, must_refuse = [], [], left_out is None
    for path, name, is_named in found.values():
        if names[name] > 1:  # such as a/runs/1 and b/runs/1
            name = str(path)
        try:
            entries.append(_read_entry(path, name))
        except UserError as fault:
            faults += fault.lines
            must_refuse |= is_named
    if faults and (must_refuse or not entries):
        raise UserError(*faults)
    if left_out is not None:
        left_out += [printable(f"left out: {line}") for line in faults]
    return entries


def differing(entries: Sequence[Entry]) -> list[str]:
    """Return the settings keys that have several values among these runs: model, task, then the rest."""
    values: dict[str, set[str]] = collections.defaultdict(set)
    for entry in entries:
        for key, value in entry.settings.items():
            values[key].add(repr(value))  # as text: a list is not hashable
    several = [key for key in values if len(values[key]) > 1 and not is_path(key)]
    return sorted(several, key=lambda key: SETTING_ORDER.get(key, 1))


def count_runs(entries: Sequence[Entry]) -> str:
    """Return the number of runs in words, such as `1 run` or `8 runs`."""
    return "1 run" if len(entries) == 1 else f"{len(entries)} runs"


def count_statuses(entries: Iterable[Entry]) -> str:
    """Return the number of runs by status, such as `8 finished, 1 failed`."""
    counts = collections.Counter(entry.status for entry in entries)
    statuses = sorted(counts, key=lambda status: (status != "finished", status))
    return ", ".join(f"{counts[status]} {status}" for status in statuses)


def few(lines: Sequence[str], width: int | None = None, rest: str = "") -> list[str]:
    """Return the first lines, cut to `width` if it is given, and a line with the number of further ones and `rest`."""
    shown = [line if width is None or len(line) <= width else f"{line[: width - 2]}.." for line in lines]
    more = len(lines) - MOST_LINES
    return [*shown[:MOST_LINES], f"and {more} more{rest}: --json has all"] if more > 0 else shown


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return each key's last word if no other key ends in it, otherwise the whole key."""
    counts = collections.Counter(map(last_word, keys))
    names = {}
    for key in keys:
        word = last_word(key)
        names[key] = word if counts[word] == 1 else key
    return names


def quantity(value: float) -> str:
    """Return a large number in a few characters, such as 1.2M or 3.4e+12."""
    rounded = float(f"{value:.3g}")  # before choosing the unit: 999,700 is 1M, not 1000k
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(rounded) < 1e12:
            return f"{rounded / size:.3g}{letter}"
    return f"{rounded:.3g}"


def decimals(size: float, digits: int = 2) -> int:
    """Return the decimal places that show a number of this size with `digits` significant digits; 8 at most."""
    return min(max(digits - 1 - math.floor(math.log10(size or 1.0)), 0), 8)


def number(value: Any) -> float | None:
    """Return the value as a float that cannot overflow in a sum of a thousand; None if it is not such a number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_NUMBER:
        return float(value)
    return None


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean; None if a value is unknown, or there are no values."""
    known = list(values)
    return None if None in known or not known else statistics.fmean(known)  # type: ignore[arg-type]


def _runs_at(path: Path, left_out: list[str] | None) -> list[Run]:
    """Return the run at this path, or those below it; raise UserError if there is none."""
    if exists(path / CONFIG):
        return [Run(path)]
    if not path.is_dir():
        siblings: list[str] = []
        if path.parent.is_dir():
            siblings = [near.name for near in path.parent.iterdir() if near.is_dir()]
        raise UserError(f"{path}: no such run, sweep or folder of runs{did_you_mean(path.name, siblings)}")
    runs = list_runs(path, left_out)
    if not runs:
        command = pasted("seqtrain", "train", f"run_dir={path / 'NAME'}")
        raise UserError(f"{path}: contains no run; `{command}` makes one")
    return runs


def _read_entry(path: Path, name: str) -> Entry:
    run, member = Run.open(path), member_of(path)
    if member is None:
        return Entry(path, name, path.resolve().name, run.config, run.summary)
    return Entry(path, name, member.label, run.config, run.summary, member.sweep)


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, otherwise an empty one: the file is untrusted."""
    return value if isinstance(value, Mapping) else {}
