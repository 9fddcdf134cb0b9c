"""Hydra's part of a sweep: its sweeper and launcher with their options; checked, then made."""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from seqtrain.config.check import key_of
from seqtrain.config.conf_files import UNUSABLE, ConfFiles, parsed, reads_environment
from seqtrain.config.groups import GLOBAL
from seqtrain.config.nodes import leaves
from seqtrain.config.ranges import RANGES, is_number, out_of_range
from seqtrain.config.schema import first_lines, show
from seqtrain.config.trust import trusted
from seqtrain.errors import Unavailable, UserError, did_you_mean, refuse_tilde
from seqtrain.files.untrusted import ENVIRONMENT
from seqtrain.sweeps.folder import TRIALS

OURS = "seqtrain.sweeps"
# Launchers of others that may run, and the extra of the package that brings them.
FOREIGN = {
    "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher": "joblib",
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher": "slurm",
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher": "slurm",
}

PLUGINS = "hydra_plugins"
# Options of a launcher that are, or become, commands: whoever asks for them types them, or trusts the file.
COMMANDS = ("setup", "python", "srun_args", "additional_parameters", "submitit_folder")

# Where Submitit reads what its jobs have pickled: a new folder, in which nobody else has left anything.
UNPICKLED = "${hydra.sweep.dir}/.submitit/${now:%Y-%m-%d_%H-%M-%S-%f}/%j"

# What a sweep uses of Hydra's part, or what Hydra writes there by itself.
USED = ("launcher", "sweeper", "sweep", "runtime", "overrides", "mode", "job.override_dirname", "job.config_name")


@dataclass(frozen=True)
class Words:
    """The words of a command line, sorted into Hydra's and those of trials."""

    hydra: list[str]  # hydra.*, hydra/*, and the choice of sweep=
    trial: list[str]

    @classmethod
    def sort(cls, words: Sequence[str]) -> Words:
        """Sort the words; a word that cannot be parsed is left to the trials, which report it.

        Raises:
            UserError: a word of Hydra's own cannot be parsed.
        """
        own: list[str] = []
        others: list[str] = []
        for word in words:
            override = _parsed(word)
            if override is None and word.lstrip("+~").startswith(("hydra.", "hydra/", "sweep=")):
                key, _, value = word.partition("=")
                raise UserError(f"{word}: cannot be read; with quotes it can: '{key}=\"{value}\"'")
            if override is not None and (override.is_hydra_override() or override.key_or_group == "sweep"):
                own.append(word)
            else:
                others.append(word)
        return cls(own, others)


@dataclass(frozen=True)
class Settings:
    """The composed configuration from which a sweep's plugins are made, after its faults were reported."""

    config: DictConfig
    files: ConfFiles

    @classmethod
    def read(
        cls,
        words: Words,
        config_dirs: Sequence[Path] = (),
        *,
        recorded: Collection[str] = (),
        directory: Path | None = None,
    ) -> Settings:
        """Compose and check; raise UserError with a line for each fault.

        Args:
            words: the words of the command line.
            config_dirs: folders of the user's own configs.
            recorded: words of an earlier attempt, which are untrusted.
            directory: that of a sweep that is resumed.
        """
        files = ConfFiles(config_dirs)
        # A file that sets values anywhere may set Hydra's too; one that several trials choose differently may not.
        anywhere = [word for word in words.trial if _is_choice(word, files)]
        earlier = _earlier(recorded, words.hydra)
        own = [*earlier, *words.hydra]
        _refuse(filter(None, (_fault(word, files) for word in own)))
        config = _composed(files, [*anywhere, *(_usable(word, files) for word in own)])
        refuse_tilde("hydra.sweep.dir", str(config.hydra.sweep.dir))
        directory = directory or Path(str(config.hydra.sweep.dir))
        # A launcher composes again, elsewhere and later; trials/ is there already, where Hydra would make a folder.
        config.hydra.overrides.hydra.extend(config.hydra.overrides.task)  # sweep=, or a file that chooses a launcher
        for name, value in {"dir": str(directory), "subdir": TRIALS}.items():
            OmegaConf.update(config, f"hydra.sweep.{name}", value)
            config.hydra.overrides.hydra.append(f"hydra.sweep.{name}={quoted(value)}")
        settings = cls(config, files)
        faults = settings._commands(set(map(key_of, words.hydra)))
        if anywhere or config_dirs:  # our own files set nothing that no sweep acts upon
            faults = [*settings._unused(), *faults]
        _refuse(faults)
        return settings

    @property
    def directory(self) -> Path:
        """Directory of the sweep."""
        return Path(str(self.config.hydra.sweep.dir))

    def make(self, kind: str, *bases: type) -> Any:
        """Return the plugin that `hydra.KIND` names, one of `bases`; UserError for options not in its signature."""
        # Plain values: what refers to the environment has been judged by then.
        node = cast("dict[str, Any]", OmegaConf.to_container(self.config.hydra[kind], resolve=True))
        target = str(node.pop("_target_", None))
        found = _resolved(target, kind)
        if not (inspect.isclass(found) and issubclass(found, bases)):
            raise UserError(f"hydra.{kind}._target_={target}: no {bases[0].__name__}, so it cannot be the {kind}")
        choice = str(self.config.hydra.runtime.choices.get(f"hydra/{kind}"))
        known: Collection[str] = inspect.signature(found).parameters
        if inspect.getfullargspec(found).varkw is not None:  # it takes anything: its file says what it knows
            known = self.files.content(f"hydra/{kind}", choice)
        unknown = [key for key in node if key not in known]
        _refuse(f"hydra.{kind}.{key}: no option of {choice}{did_you_mean(key, known)}" for key in unknown)
        _refuse(filter(None, itertools.starmap(_wrong_number, leaves(node, f"hydra.{kind}"))))
        if target.startswith(f"{OURS}."):  # ours take plain values
            return found(**node)
        made = OmegaConf.create(node)  # as Hydra would make it
        return found(**{name: made[name] for name in node})

    def _unused(self) -> list[str]:
        """Return a line for each setting of Hydra that no sweep uses."""
        plain = dict(leaves(_hydra(_composed(self.files, [])), ""))
        used = tuple(f"{name}." for name in USED)
        lines = []
        for path, value in leaves(_hydra(self.config), ""):
            if f"{path}.".startswith(used) or plain.get(path) == value:
                continue
            lines.append(
                f"hydra.{path}={show(value)}: no sweep acts upon it; of Hydra's own settings hydra.sweep.dir, "
                "hydra.launcher.* and hydra.sweeper.* count"
            )
        return lines

    def _commands(self, typed: set[str]) -> list[str]:
        """Return a line for each option that is a command, or reads the environment, and that the user did not type."""
        lines = []
        accepted = tuple(f"{key}." for key in typed)  # with what lies below them
        for path, value in leaves(_hydra(self.config), ""):
            name, *inner = path.split(".")
            key = f"hydra.{path}"
            if name not in ("launcher", "sweeper", "sweep") or f"{key}.".startswith(accepted):
                continue
            asks = name == "launcher" and inner[0] in COMMANDS and value and value != UNPICKLED
            # What a launcher writes into a script would go on there as a line of its own.
            breaks = re.search(r"[\r\n]", f"{key}{value}" if isinstance(value, str) else key)
            if (breaks or asks) and PLUGINS not in trusted():
                lines.append(
                    f"{key}={show(value)}: becomes a command, and nobody typed it; add it to the command line, "
                    f"or --trust {PLUGINS}"
                )
            elif key == "hydra.sweeper.storage" and value:
                lines.append(f"{key}: leads out of the sweep, and nobody typed it; add it to the command line")
            elif "${" in str(value) and ENVIRONMENT not in trusted() and reads_environment(self.config, key):
                lines.append(f"{key}={show(value)}: reads the environment; if you trust it, add --trust {ENVIRONMENT}")
        return lines


def _refuse(faults: Iterable[str]) -> None:
    """Raise UserError with these lines, if there are any."""
    lines = list(faults)
    if lines:
        raise UserError(*lines)


def quoted(path: Path | str) -> str:
    """Return a path quoted for Hydra's grammar, with any characters."""
    text = re.sub(r"(\\*)'", r"\1\1\\'", str(path))
    return f"'{text}'"


def _composed(files: ConfFiles, words: Sequence[str]) -> DictConfig:
    try:
        config = files.compose(words)
        str(config.hydra.sweep.dir)  # a value is worked out, and may turn out wrong, only once it is asked for
    except UNUSABLE as error:
        raise UserError(f"{' '.join(words)}: {first_lines(error)}") from None
    return config


def _wrong_number(path: str, value: Any) -> str | None:
    """Return the fault of a plugin's option that must be a number; plugins of others check no kinds."""
    if path not in RANGES or value is None or value == "auto":
        return None
    reason = f"expected {RANGES[path].words()}"
    if is_number(value):
        reason = out_of_range(path, value)
    return reason and f"{path}={show(value)}: {reason}"


def _hydra(config: DictConfig) -> Any:
    return OmegaConf.to_container(config.hydra, resolve=False)


def _parsed(word: str) -> Override | None:
    try:
        return parsed(word)
    except HydraException:
        return None


def _usable(word: str, files: ConfFiles) -> str:
    """Return a word in the form that may add keys missing from all files; `make` judges keys."""
    key = key_of(word)
    if key == "sweep":
        return f"+{word}"
    if files.is_group(key):
        return word
    return f"++{word.lstrip('+')}"


def _is_choice(word: str, files: ConfFiles) -> bool:
    """Return True if the word chooses one file that may set values anywhere."""
    override = _parsed(word)
    if override is None or override.key_or_group not in GLOBAL or override.is_sweep_override():
        return False
    return override.value() in files.options(override.key_or_group)


def _earlier(recorded: Collection[str], typed: Sequence[str]) -> list[str]:
    """Return the earlier attempt's words that this one does not replace; options of a plugin go with its choice."""
    again = set(map(key_of, typed))
    kept = []
    for word in recorded:
        key = key_of(word)
        of_another_launcher = "hydra/launcher" in again and key.startswith("hydra.launcher.")
        # The directory is where the sweep is found now: it may have been moved.
        if key not in again and key != "hydra.sweep.dir" and not of_another_launcher:
            kept.append(word)
    return kept


def _fault(word: str, files: ConfFiles) -> str | None:
    """Return the fault of a word about Hydra's part, as far as the word alone shows it."""
    override = _parsed(word)
    if override is None:
        return f"{word}: not of the form key=value"
    key = override.key_or_group
    if files.is_group(key):
        option = override.value()
        if override.is_sweep_override() or not isinstance(option, str):
            return f"{word}: a sweep has one {key}"
        options = [name for name in files.options(key) if not name.startswith("_")]
        if option not in options:
            return f"{word}: no such {key}{did_you_mean(option, options)}"
        return None
    if key == "sweep":
        return f"{word}: no such group"
    if "/" in key:
        return f"{word}: no such group{did_you_mean(key, ['hydra/launcher', 'hydra/sweeper'])}"
    if override.is_delete() or not (key.startswith(("hydra.launcher.", "hydra.sweeper.")) or key == "hydra.sweep.dir"):
        return f"{word}: of Hydra's own settings hydra.sweep.dir, hydra.launcher.* and hydra.sweeper.* count"
    return None


def _resolved(target: str, kind: str) -> Any:
    """Return the class of this name, imported only if it may run."""
    package = target.partition(".")[0]
    # Judged before it is imported: an import alone can run a stranger's code.
    if not (target.startswith(f"{OURS}.") or target in FOREIGN or package in trusted()):
        raise UserError(
            f"hydra.{kind}._target_={target}: not a {kind} that may run; if you trust the code of {package}, "
            f"add --trust {package}"
        )
    module, _, name = target.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        remedy = f"cannot be imported: {error}"
        if target in FOREIGN:
            remedy = f"it comes with `pip install 'seqtrain[{FOREIGN[target]}]'`"
        raise Unavailable(f"hydra.{kind}._target_={target}: {remedy}") from None
    except AttributeError:
        raise UserError(f"hydra.{kind}._target_={target}: no such class") from None
