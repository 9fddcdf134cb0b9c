"""A demonstration: a claim in words, an experiment that could contradict it, and its findings."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from seqtrain.analysis import demos


class Train(Protocol):
    """A function that trains a run, or takes the finished run of an earlier call."""

    def __call__(self, name: str, *overrides: str) -> Path:
        """Return the directory of the run `name`; overrides as for `seqtrain train`."""
        ...


@dataclass(frozen=True)
class Bench:
    """The resources of a demonstration."""

    out: Path  # a folder that exists: pictures go here
    train: Train
    say: Callable[[str], None]  # tells a person what is being done
    seeds: int  # how often each training is repeated, with seeds 1, 2, ...


@dataclass(frozen=True)
class Findings:
    """The result of a demonstration: numbers, and their verdict on the claim."""

    rows: list[dict[str, str | float]]  # a table: the same columns in each row
    verdict: str  # one or two sentences, made from the numbers
    holds: bool | None  # whether the claim held here; None: these numbers do not tell
    pictures: tuple[str, ...] = ()  # names of PNG files in the bench's folder
    numbers: dict[str, float] = field(default_factory=dict)  # what else a page may quote, by name

    def record(self) -> dict[str, object]:
        """Return the result for `--json` and the file beside the pictures."""
        return asdict(self)


@dataclass(frozen=True)
class Demo:
    """A demonstration. Its module defines it under the name DEMO."""

    claim: str  # in words, one sentence
    seconds: int  # about, of one core of a small machine
    run: Callable[[Bench], Findings]


def names() -> list[str]:
    """Return the names of all demonstrations."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(demos.__path__))


def load(name: str) -> Demo:
    """Load the demonstration of this name, which is one of `names()`."""
    module = importlib.import_module(f"{demos.__name__}.{name.replace('-', '_')}")
    return module.DEMO
