"""The runs of a comparison: what each was, what came out of it, and in what they differ."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from seqtrain.errors import UserError, did_you_mean
from seqtrain.files.atomic import exists
from seqtrain.runs import measures
from seqtrain.runs.directory import CONFIG, Run
from seqtrain.runs.listing import list_runs, stands
from seqtrain.runs.summary import Summary
from seqtrain.sweeps.folder import member_of
from seqtrain.terminal import pasted, printable

Axis = Literal["steps", "tokens", "seconds", "flops"]
AXES: tuple[Axis, ...] = get_args(Axis)
Which = Literal["final", "best"]

GROUPS = ("task", "data", "model", "tokenizer", "tbptt", "optimizer", "schedule")
"""Groups of a config whose target says which option was chosen."""

NO_SETTINGS = {
    *("logger", "run_dir", "dry_run", "data.workers", "data.eval_batch_size"),
    *(f"trainer.{name}" for name in ("check_ranks_every", "checkpoint_every", "keep_last", "keep_best", "log_every")),
}
"""What of a config changes no number."""

LARGEST = 1e305
"""Beyond it, and beyond any perplexity, lie infinities and what only a stranger writes."""

RECORDED = {"steps": "step", "flops": "tokens"}
"""What a record calls an axis, where that is not its own name; of FLOPs, what they are reckoned from."""


@dataclass(frozen=True, eq=False)
class Entry:
    """One run of a comparison, finished or not; read once, from its directory alone."""

    path: Path
    name: str  # its path, from the folder that was asked for
    label: str  # what differs from other trials of its sweep, or the name of its directory
    config: dict[str, Any] = field(repr=False)
    summary: Summary = field(repr=False)
    sweep: str | None = None  # the name of the sweep's directory

    @cached_property
    def status(self) -> str:
        """finished, running, interrupted, failed, pruned or refused: also where a killed process could not say it."""
        return stands(self.path, self.summary)

    @property
    def finished(self) -> bool:
        """Whether it counts in a verdict."""
        return self.status == "finished"

    @property
    def reason(self) -> str:
        """Why it failed, was pruned or refused, on one line; empty where it says nothing."""
        return printable(self.summary.reason or "")

    @property
    def seed(self) -> Any:
        """The seed that it was drawn from."""
        return self.config.get("seed")

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
        """The config by dotted key, without what changes no number; `model` and its like are the options chosen."""
        found: dict[str, Any] = {}
        for key, value in self.config.items():
            if key == "callbacks" and isinstance(value, dict):  # ours only show; another's may end the training
                value = {name: node for name, node in value.items() if not _shows(node)}
            _flatten(str(key), value, found)
        return found

    def metric(self, name: str, split: str = "validation", which: Which = "final") -> float | None:
        """A metric of the whole split: of the last weights, or of those that the run's own measure calls best.

        None where there is none. Of a run that is not finished, the last that was recorded.
        """
        splits = self.summary.best if which == "best" else self.summary.metrics
        found = splits.get(split)
        if found is not None or self.finished:
            return number(_mapping(found).get(name))
        values = self.curve(f"{split}/{name}", "steps")[1]
        if not values:
            return None
        return values[-1] if which == "final" else (min, max)[self.maximises(name)](values)

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The final metrics of validation; empty where it is not finished."""
        return _mapping(self.summary.metrics.get("validation"))

    @property
    def parameters(self) -> int | None:
        """Trainable numbers."""
        found = number(self.summary.parameters.get("total"))
        return None if found is None else int(found)

    @property
    def speed(self) -> float | None:
        """Tokens a second of training; None where it is not finished."""
        return number(self.summary.tokens_per_second)

    def maximises(self, name: str) -> bool:
        """Whether more of this metric is better."""
        return measures.better(self.summary, name) == "max"

    def unit(self, name: str) -> str:
        """What stands behind a number of this metric."""
        return measures.unit(self.summary, name)

    def curve(self, metric: str, axis: Axis) -> tuple[list[float], list[float]]:
        """A recorded metric, such as `validation/loss`, against steps, tokens, seconds or FLOPs; finite points only.

        Both lists are empty where nothing was recorded, or, of FLOPs, where the run does not know its cost.
        """
        factor = self.flops_per_token if axis == "flops" else 1.0
        key = RECORDED.get(axis, axis)
        points = [(number(record.get(key)), number(record.get(metric))) for record in self.records]
        sound = [(x * factor, y) for x, y in points if x is not None and y is not None and factor is not None]
        return [x for x, _ in sound], [y for _, y in sound]

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """What metrics.jsonl says, read when it is first asked for."""
        return Run(self.path).metrics()

    @property
    def flops_per_token(self) -> float | None:
        """Training operations per token; None where the run has not come so far as to count them."""
        if (known := number(self.summary.flops_per_token)) is not None:
            return known
        flops, tokens = number(self.summary.flops), number(self.summary.tokens)
        return flops / tokens if flops and tokens else None

    def cost(self, axis: Axis) -> float | None:
        """How far it has come; of a run that is not finished, at its last record."""
        known = number(getattr(self.summary, axis))
        if known is not None or self.finished:
            return known
        key = RECORDED.get(axis, axis)
        last = next((x for record in reversed(self.records) if (x := number(record.get(key))) is not None), None)
        if axis == "flops" and last is not None:
            return None if self.flops_per_token is None else last * self.flops_per_token
        return last


def read(paths: Iterable[Path | str], left_out: list[str] | None = None) -> list[Entry]:
    """The runs at, and below, these paths: runs, sweeps, or any folder of runs; each once, in the order of paths.

    Damaged runs below a path are left out, with a line each in `left_out`. UserError where a path does not exist or
    holds
    no run, for damaged runs that are named themselves, and where nothing is left or nobody hears what is left out.
    """
    found: dict[Path, tuple[Path, str, bool]] = {}
    for path in map(Path, paths):
        for run in _below(path, left_out):
            inside = run.path.relative_to(path)
            name = str(Path(path.resolve().name) / inside) if inside.parts else path.resolve().name
            found.setdefault(run.path.resolve(), (run.path, name, not inside.parts))
    names = collections.Counter(name for _, name, _ in found.values())
    entries, faults, named = [], [], left_out is None
    for path, name, asked in found.values():
        try:
            entries.append(_entry(path, name if names[name] == 1 else str(path)))
        except UserError as fault:
            faults += fault.lines
            named |= asked
    if faults and (named or not entries):
        raise UserError(*faults)
    if left_out is not None:
        left_out += [printable(f"left out: {line}") for line in faults]
    return entries


def differing(entries: Sequence[Entry]) -> list[str]:
    """Keys of settings that take several values among the runs that have them: the model, the task, then the rest."""
    values: dict[str, set[str]] = {}
    for entry in entries:
        for key, value in entry.settings.items():
            values.setdefault(key, set()).add(repr(value))
    found = [key for key, several in values.items() if len(several) > 1 and not is_path(key)]
    return sorted(found, key=lambda key: (key not in ("model", "task"), key == "seed"))


def standing(entries: Iterable[Entry]) -> str:
    """How many of them stand how, such as `8 finished, 1 failed`."""
    counts = collections.Counter(entry.status for entry in entries)
    return ", ".join(f"{counts[status]} {status}" for status in sorted(counts, key=lambda s: (s != "finished", s)))


def is_path(key: str) -> bool:
    """Whether a key says where data lies; what it holds is compared by its hash."""
    return key.startswith("data.") and key.endswith("path")


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Each key's last word where no other one ends in it, and else the whole key."""
    last = [key.rpartition(".")[2] for key in keys]
    return {key: word if last.count(word) == 1 else key for key, word in zip(keys, last, strict=True)}


def number(value: Any) -> float | None:
    """A number of which a thousand can be added up, or None."""
    sound = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
    return float(value) if sound else None


def option(target: str) -> str:
    """The name by which a target is chosen: MinGRU is min_gru, AdamW adamw."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z]\w)|(?<=[A-Z])(?=[A-Z][a-z])", "_", target.rpartition(".")[2]).lower()


def _below(path: Path, left_out: list[str] | None) -> list[Run]:
    if exists(path / CONFIG):
        return [Run(path)]
    if not path.is_dir():
        others = [near.name for near in path.parent.iterdir() if near.is_dir()] if path.parent.is_dir() else []
        raise UserError(f"{path}: no such run, sweep or folder of runs{did_you_mean(path.name, others)}")
    if not (runs := list_runs(path, left_out)):
        raise UserError(
            f"{path}: holds no run; `{pasted('seqtrain', 'train', 'run_dir=' + str(path / 'NAME'))}` makes one"
        )
    return runs


def _entry(path: Path, name: str) -> Entry:
    run, member = Run.open(path), member_of(path)
    label, sweep = (path.resolve().name, None) if member is None else (member.label, member.sweep)
    return Entry(path, name, label, run.config, run.summary, sweep)


def _flatten(key: str, value: Any, found: dict[str, Any]) -> None:
    if key in NO_SETTINGS or key.rpartition(".")[2] in ("_recommend_", "_partial_"):
        return
    if isinstance(value, Mapping):
        for below, inner in value.items():
            _flatten(f"{key}.{below}", inner, found)
    elif key.endswith("._target_"):
        owner = key.removesuffix("._target_")
        found[owner if owner in GROUPS else key] = option(str(value)) if owner in GROUPS else value
    else:
        found[key] = value


def _shows(callback: Any) -> bool:
    return not isinstance(callback, dict) or str(callback.get("_target_")).startswith("seqtrain.")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
