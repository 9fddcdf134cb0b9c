"""What a demonstration is: a claim in words, an experiment that could contradict it, and what came of it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from seqtrain.analysis import demos


class Train(Protocol):
    """Trains a run, or takes the finished one of an earlier call."""

    def __call__(self, name: str, *overrides: str) -> Path:
        """The run's directory, which is called `name`; overrides as for `seqtrain train`."""
        ...


@dataclass(frozen=True)
class Bench:
    """What a demonstration is given to work with."""

    out: Path  # a folder that exists: pictures go here
    train: Train
    say: Callable[[str], None]  # tells a person what is being done
    seeds: int  # how often each training is repeated, with seeds 1, 2, ...


@dataclass(frozen=True)
class Findings:
    """What came of a demonstration: numbers, and what they say of the claim."""

    rows: list[dict[str, str | float]]  # a table: the same columns in each row
    verdict: str  # one or two sentences, made from the numbers
    holds: bool | None  # whether the claim held here; None: these numbers do not tell
    pictures: tuple[str, ...] = ()  # names of PNG files in the bench's folder
    numbers: dict[str, float] = field(default_factory=dict)  # what else a page may quote, by name

    def record(self) -> dict[str, object]:
        """For `--json` and the file beside the pictures."""
        return asdict(self)


@dataclass(frozen=True)
class Demo:
    """A demonstration, as its module gives it under the name DEMO."""

    claim: str  # in words, one sentence
    seconds: int  # about, of one core of a small machine
    run: Callable[[Bench], Findings]


def names() -> list[str]:
    """What `seqtrain demo` can show."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(demos.__path__))


def load(name: str) -> Demo:
    """The demonstration of this name, which is one of `names()`."""
    module = importlib.import_module(f"{demos.__name__}.{name.replace('-', '_')}")
    return module.DEMO
