"""A grid: every combination of the given values, in the order typed."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException

from seqtrain.config.conf_files import ConfFiles, parsed
from seqtrain.config.schema import first_lines
from seqtrain.errors import UserError
from seqtrain.sweeps.folder import INDEX, Trial
from seqtrain.sweeps.sweeper import Sweeper

# Maximum number of trials of a grid: a typing error can make millions.
MOST = 10_000


class Grid(Sweeper):
    """The sweeper of a grid: trial 0 has the first value of every key, and the last key changes fastest."""

    @functools.cached_property
    def total(self) -> int:  # cached: it is read for every line, after planning
        return len(self.folder.trials())

    def plan(self, words: Sequence[str]) -> None:
        """Plan every trial at once, so that a glob's matches and a shuffled order stay the same on resume."""
        if (self.folder.path / INDEX).exists():
            return
        files = ConfFiles([Path(folder) for folder in self.folder.asked.config_dirs])
        combined = combinations(words, files)
        planned = dict.fromkeys(combined)
        if len(planned) < len(combined):
            self.attempt.say(f"{len(combined) - len(planned)} of {len(combined)} combinations are repeated: left out")
        self.attempt.say(f"{len(planned):,} trial{'s' if len(planned) > 1 else ''}")
        for number, (overrides, label) in enumerate(planned):
            Trial(self.folder.path, number, overrides, label).conclude("planned")
        self.folder.write_index()  # last, as it marks the plan as complete

    def trials(self) -> Iterator[Trial]:
        yield from self.folder.trials()


def combinations(words: Sequence[str], files: ConfFiles) -> list[tuple[tuple[str, ...], str]]:
    """Return the overrides of each combination, in the order typed, and its label: the overrides that differ.

    Raises:
        UserError: an override cannot be used.
    """
    columns: list[list[tuple[str, bool]]] = []
    for word in words:
        try:
            override = parsed(word)
        except HydraException:
            columns.append([(word, False)])  # reported with our own message when the trial is composed
            continue
        columns.append(
            [(f"{override.get_key_element()}={value}", True) for value in values(override, files)]
            if override.is_sweep_override()
            else [(word, False)]
        )
    total = math.prod(map(len, columns))
    if total > MOST:
        raise UserError(
            f"{total:,} trials: a grid has at most {MOST:,}; name fewer values, or choose a search with sweep="
        )
    return [
        (tuple(word for word, _ in chosen), " ".join(word for word, swept in chosen if swept))
        for chosen in itertools.product(*columns)
    ]


def values(override: Override, files: ConfFiles) -> list[str]:
    """Return the values of a swept override in order, each as typed; raise UserError if they cannot be listed."""
    key, word = override.key_or_group, override.input_line
    if override.value_type is ValueType.INTERVAL_SWEEP:
        raise UserError(
            f"{word}: an interval is searched, not listed: choose a search with sweep=, or use {key}=range(...)"
        )
    if override.value_type is ValueType.GLOB_CHOICE_SWEEP:
        found = override.value().filter(files.options(key))  # type: ignore[union-attr]
        if not found:
            raise UserError(f"{word}: matches no {key}; there are {', '.join(files.options(key)) or 'none'}")
        return found
    try:
        found = list(itertools.islice(override.sweep_string_iterator(), MOST + 1))
    except (HydraException, ValueError) as error:
        raise UserError(f"{word}: {first_lines(error)}") from None
    if not found:
        raise UserError(f"{word}: has no value, so there is no trial; give at least one")
    if len(found) > MOST:
        raise UserError(
            f"{word}: a grid has at most {MOST:,} trials; name fewer values, or choose a search with sweep="
        )
    return found
