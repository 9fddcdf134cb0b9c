"""summary.json of a run: one field for each of its entries; read and written only here.

A line of metrics.jsonl is parsed here, too: both write numbers that are not finite as text.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from seqtrain.errors import UserError
from seqtrain.files.atomic import plain_json, write_text
from seqtrain.files.checked import loads_unicode, open_checked
from seqtrain.files.untrusted import read_json

RESUMED = "resumed_from"
LONGEST = 1 << 20  # bytes of a line of metrics.jsonl
NOT_FINITE = ("nan", "inf", "-inf")  # strings for these numbers in metrics.jsonl and summary.json

OF_THE_CLOCK = ("time", "seconds", "tokens_per_second")


def of_the_machine(name: str) -> bool:
    """Return True if an entry of a record depends on clock or machine: equal runs may differ in it."""
    return name in OF_THE_CLOCK or name.startswith("system/")


def ends_line(path: Path) -> bool:
    """Return True if the last line of a file is complete."""
    with open_checked(path) as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def parsed(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in `line`; None if it is incomplete, empty, or not Unicode."""
    if not line.startswith(b"{"):  # a sparse file may have gigabytes of zeros, which JSON parses slowly
        return None
    try:
        record = loads_unicode(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    # Callers compare these two with ints.
    if not isinstance(record.get("step", 0), int) or not isinstance(record.get(RESUMED, 0), int):
        return None
    return numbers(record)


def numbers(value: Any) -> Any:
    """Return `value` with the strings nan, inf and -inf converted to numbers."""
    if isinstance(value, dict):
        return {key: numbers(below) for key, below in value.items()}
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    return value


@dataclass
class Summary:
    """Facts about a run. A field that is not known has its default, and no entry in the file.

    Change it by `update` and `remove`. They keep the entries in the order in which they became known, so that a resumed
    run writes the same file as before, except for the changes.

    Fields that hold a mapping guarantee only its type. The file may be untrusted: readers check the contents.
    """

    # Status of the newest attempt, and the command that began the run.
    status: str | None = None  # running, finished, interrupted, failed, pruned or refused
    reason: str | None = None  # why it failed, was pruned or refused
    after_pruning: bool = False  # it was pruned, and the user has resumed it to train to the end
    command: list[str] = field(default_factory=list)  # the command that began it, with secrets masked
    trust: list[str] = field(default_factory=list)  # packages that --trust named

    # Environment.
    versions: dict[str, Any] = field(default_factory=dict)  # of packages, by name
    platform: str | None = None
    cpu: str | None = None
    cores: int | None = None
    commit: str | None = None  # of the checkout that it ran in; null in the file where there was none
    world_size: int | None = None  # processes

    # Description of the task, so that the record can be read without the task's code.
    task: str | None = None  # its class
    monitor: list[str] = field(default_factory=list)  # the metric that selects the best checkpoint, and min or max
    compared_by: str | None = None  # the metric that runs are compared by
    measures: dict[str, Any] | None = None  # metric -> its unit, direction and label
    trained_by: list[str] | None = None  # options of the task that matter only in training
    answered_by: list[str] | None = None  # options that change the search for an answer, not the targets
    signatures: dict[str, Any] | None = None  # metric -> how exactly it is computed, such as sacreBLEU's signature
    baseline_words: dict[str, Any] = field(default_factory=dict)  # baseline -> its name and what it knows
    example_text: str | None = None  # example arguments for `seqtrain predict`

    # Identity of the run.
    identity: str | None = None  # hash of the options that affect results; checkpoints contain the options themselves
    hashes: dict[str, Any] = field(default_factory=dict)  # of splits, tokenizers and labels
    parent: str | None = None  # hash of the run that init_from named
    lineage: list[str] | None = None  # hashes of all ancestors by init_from, the parent's first
    extended: list[str] = field(default_factory=list)  # limits that were changed during training, and at which step
    code: list[str] = field(default_factory=list)  # each code it was trained with: commit, `+`, hash of the changes
    diff: dict[str, Any] | None = None  # of the working tree: its `hash`, `bytes`, and what was left out
    data: dict[str, Any] = field(default_factory=dict)  # description by the source itself
    sizes: dict[str, Any] = field(default_factory=dict)  # split -> its `documents` and the `bytes` of their text
    leaks: dict[str, Any] = field(default_factory=dict)  # split -> `train` or `init_from` -> the part found there

    # Cost and method of evaluation, known before the first step.
    parameters: dict[str, Any] = field(default_factory=dict)  # part -> parameters, also frozen ones; with `total`
    padding: float | None = None  # fraction of the positions that are padding
    state: int | None = None  # size of the state that one lane carries; None for a model without state
    max_steps: int | None = None  # unknown if the time limit decides
    flops_per_token: float | None = None  # of training: forward and backward
    context: dict[str, Any] | None = None  # settings that evaluation results depend on, besides weights and text
    budget: dict[str, Any] = field(default_factory=dict)  # kind -> value asked, value reached, relative distance
    from_data: dict[str, Any] = field(default_factory=dict)  # option that was auto -> what followed from the data

    # Results.
    metrics: dict[str, Any] = field(default_factory=dict)  # split -> metric -> value with the last weights
    best: dict[str, Any] = field(default_factory=dict)  # `step` of the best checkpoint, and split -> metric -> value
    baselines: dict[str, Any] = field(default_factory=dict)  # split -> baseline -> metric -> value
    splits: list[str] = field(default_factory=list)  # splits of the data
    steps: int | None = None
    ended_by: str | None = None  # steps, seconds or early_stopping
    tokens: int | None = None  # tokens read in training, without padding and warm-up
    skipped: int | None = None  # steps whose gradient was not finite
    clipped: dict[str, Any] | None = None  # `share` of updates whose gradient was clipped, `by` the mean norm / limit
    flops: float | None = None
    seconds: float | None = None  # of training, over all attempts
    joules: float | None = None  # energy of the processors, including validations; None if they do not report it
    tokens_per_second: float | None = None  # the median of the records
    unknown: dict[str, Any] | None = None  # split -> its number of <unk> tokens

    other: dict[str, Any] = field(default_factory=dict)  # all other entries, of another version or task
    order: list[str] = field(default_factory=list)  # names of all entries that are known

    @classmethod
    def read(cls, path: Path) -> Summary:
        """Read summary.json.

        Raises:
            UserError: The file is damaged, or an entry of RELIED_ON has another type.
        """
        content = read_json(path)
        if not isinstance(content, dict):
            raise UserError(f"{path} cannot be read: it is not a mapping")
        for name in RELIED_ON:
            if name in content and type(content[name]) is not TYPES[name][0]:
                raise UserError(f"{path}: {name}={content[name]}: not in the form that a run writes")
        return cls.from_plain(content)

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> Summary:
        """Return a summary from plain, possibly untrusted values. An entry of the wrong type counts as absent."""
        summary = cls()
        for name, value in content.items():
            # The string `nan` means the number, except in fields of strings.
            if str not in TYPES.get(name, ()):
                value = numbers(value)
            if name not in TYPES or type(value) in TYPES[name]:
                summary._set(name, value)
        return summary

    def to_plain(self) -> dict[str, Any]:
        """Return all known entries by name, in the order of the file."""
        return {name: getattr(self, name) if name in TYPES else self.other[name] for name in self.order}

    def write(self, path: Path) -> None:
        """Write summary.json atomically."""
        write_text(path, plain_json(self.to_plain(), indent=2) + "\n")

    def update(self, **entries: Any) -> None:
        """Set entries. A known entry keeps its place, others follow; an entry without a field goes to `other`."""
        for name, value in entries.items():
            self._set(name, value)

    def _set(self, name: str, value: Any) -> None:
        # Not by keyword: an untrusted file may name an entry `self`.
        if name in TYPES:
            setattr(self, name, value)
        else:
            self.other[name] = value
        if name not in self.order:
            self.order.append(name)

    def remove(self, name: str) -> None:
        """Remove the value of a field, if it is known."""
        if name in self.order:
            self.order.remove(name)
            setattr(self, name, getattr(Summary(), name))


def _json_types(hint: Any) -> tuple[type, ...]:
    """Return the types of JSON values that a field with this type hint takes, its own first."""
    if isinstance(hint, UnionType):
        return tuple(kind for each in get_args(hint) for kind in _json_types(each))
    kind = get_origin(hint) or hint
    return (float, int) if kind is float else (kind,)


# The types that each entry may have in JSON.
TYPES = {name: _json_types(hint) for name, hint in get_type_hints(Summary).items() if name not in ("other", "order")}

# Entries that the handling of a run depends on: a wrong type is refused instead of ignored.
RELIED_ON = ("status", "steps", "max_steps", "hashes", "metrics", "parent", "identity")
