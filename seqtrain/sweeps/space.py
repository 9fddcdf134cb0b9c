"""The space of a search, from the words of a command line and the files of conf/sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from seqtrain.config.check import key_of
from seqtrain.config.conf_files import ConfFiles, parsed
from seqtrain.config.schema import first_lines, show
from seqtrain.errors import UserError
from seqtrain.sweeps import study as studies
from seqtrain.sweeps.folder import Asked

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

EXAMPLE = "optimizer.lr='tag(log,interval(1e-4,1e-1))'"


def space(params: Mapping[str, Any], words: Sequence[str]) -> tuple[dict[str, BaseDistribution], list[str]]:
    """Return the searched distributions by key, and the words that all trials share.

    A word replaces the entry of its key in `params`; `~key` removes a key of `params` from the space.

    Raises:
        UserError: a word cannot be read.
    """
    given = {str(key): _parsed(f"{key}={value}") for key, value in params.items()}
    # Words come after the file's keys: the last word about a key counts, and a new key is searched last.
    for text in words:
        override = _parsed(text)
        if override.is_delete() and override.key_or_group in given:
            del given[override.key_or_group]
        else:
            given[override.key_or_group] = override
    swept: dict[str, BaseDistribution] = {}
    fixed = []
    for override in given.values():
        if override.is_sweep_override():
            swept[override.get_key_element()] = _distribution(override)
        else:
            fixed.append(str(override.input_line))
    return swept, fixed


def other_model(params: Mapping[str, Any], words: Sequence[str], asked: Asked) -> Iterator[str]:
    """Yield a line if the typed model is not the one that the space names: a model of the user may want that."""
    if "model" not in params:
        return
    for word in words:
        if key_of(word) != "model":
            continue
        model = _parsed(word).value()
        if model in (None, params["model"]):
            continue
        named = "hydra.sweeper.params"
        chosen = [word for word in asked.overrides if key_of(word) == "sweep"]
        if chosen:
            named = chosen[0]
        line = f"{word}: searched in the space of {named}"
        if model in ConfFiles(list(map(Path, asked.config_dirs))).options("sweep"):
            line += f"; sweep={model} is its own"
        yield line


def _parsed(text: str) -> Override:
    try:
        return parsed(text)
    except HydraException as error:
        raise UserError(f"{text}: not of the form key=value: {first_lines(error)}") from None


def _distribution(override: Override) -> BaseDistribution:
    """Return the distribution that Hydra's own sweeper for Optuna makes of a choice, a range or an interval."""
    studies.import_optuna()
    try:
        from hydra_plugins.hydra_optuna_sweeper._impl import create_optuna_distribution_from_override as distribution
    except ImportError:
        raise UserError("sweep=optuna: needs hydra-optuna-sweeper: pip install 'seqtrain[sweep]'") from None
    try:
        return distribution(override)
    except (AssertionError, NotImplementedError, ValueError) as error:
        raise UserError(f"{override.input_line}: no space to search: {first_lines(error)}; see {EXAMPLE}") from None


def ends(kind: Any) -> tuple[Any, Any]:
    """Return the first and the last value of a distribution."""
    from optuna.distributions import CategoricalDistribution

    if isinstance(kind, CategoricalDistribution):
        return kind.choices[0], kind.choices[-1]
    return kind.low, kind.high


def short(value: Any) -> str:
    """Return a value as it is written in a label."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return show(value)
