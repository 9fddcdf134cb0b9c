"""Options that no trial of a sweep can have: refused once, before a folder is made."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException

from seqtrain.config import check
from seqtrain.config.conf_files import ConfFiles, parsed
from seqtrain.errors import UserError
from seqtrain.sweeps.grid import values

# Of more choices the trials themselves say what is wrong: composing takes about a tenth of a second.
MOST_COMPOSED = 100

# What is wrong with a key or a word whatever values the others have.
UNKNOWN = re.compile(r": (no such |\S+ has no option |not of the form )")


def refuse_unknown(words: Sequence[str], files: ConfFiles, config_dirs: Sequence[Path]) -> None:
    """Compose the first trial of each swept choice to find keys that are unknown in all of them.

    Args:
        words: the words of the trials, as typed.
        files: the available configs.
        config_dirs: folders of the user's own configs.

    Raises:
        UserError: a key is unknown under every choice; other faults may not affect every trial.
    """
    fixed, swept, choices = _sorted(words, files)
    trials = list(itertools.islice(itertools.product(*choices), MOST_COMPOSED + 1))
    if len(trials) > MOST_COMPOSED:
        return
    common: dict[str, str] = {}
    for number, chosen in enumerate(trials):
        found = _unknown([*fixed, *swept, *chosen], config_dirs)
        # The first line is kept for each key: the others differ only in the choice that they name.
        common = found if number == 0 else {key: line for key, line in common.items() if key in found}
        if not common:
            return
    # A value that is swept may be of our own making, such as data.fold: what was typed as it stands comes first.
    shared = {check.key_of(word) for word in fixed}
    lines = [line for key, line in common.items() if key in shared]
    raise UserError(*(lines or common.values()))


def _sorted(words: Sequence[str], files: ConfFiles) -> tuple[list[str], list[str], list[list[str]]]:
    """The words that all trials share, the first value of each swept key, and all values of each swept choice."""
    fixed: list[str] = []
    swept: list[str] = []
    choices: list[list[str]] = []
    for word in words:
        override = _parsed(word)
        if override is None or not override.is_sweep_override():
            fixed.append(word)
            continue
        key = override.get_key_element()
        if override.value_type is ValueType.INTERVAL_SWEEP:
            swept.append(f"{key}={override.value().start}")  # type: ignore[union-attr]
            continue
        typed = [f"{key}={value}" for value in values(override, files)]
        # Which keys there are hangs on groups and targets alone.
        if files.is_group(override.key_or_group) or key.endswith("_target_"):
            choices.append(typed)
        else:
            swept.append(typed[0])
    return fixed, swept, choices


def _unknown(words: Sequence[str], config_dirs: Sequence[Path]) -> dict[str, str]:
    """The line of each key or word that is unknown, by key."""
    try:
        check.compose(words, config_dirs)
    except UserError as fault:
        return {re.split("[=:]", line)[0]: line for line in fault.lines if UNKNOWN.search(line)}
    return {}


def _parsed(word: str) -> Override | None:
    try:
        return parsed(word)
    except HydraException:  # told, in words of ours, where the trial is composed
        return None
