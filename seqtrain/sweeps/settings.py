"""Hydra's part of a sweep: check the options of its sweeper and launcher, then make them."""

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
# Third-party launchers that may run, and the extra that installs each.
FOREIGN = {
    "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher": "joblib",
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher": "slurm",
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher": "slurm",
}

PLUGINS = "hydra_plugins"
# Options of a launcher that are, or become, commands: the user must type them, or trust the file.
COMMANDS = ("setup", "python", "srun_args", "additional_parameters", "submitit_folder")

# Where Submitit reads what its jobs have pickled: a new folder, which contains no untrusted files.
UNPICKLED = "${hydra.sweep.dir}/.submitit/${now:%Y-%m-%d_%H-%M-%S-%f}/%j"

# Hydra settings that a sweep uses, or that Hydra writes by itself.
USED = ("launcher", "sweeper", "sweep", "runtime", "overrides", "mode", "job.override_dirname", "job.config_name")


@dataclass(frozen=True)
class Words:
    """The overrides of a command line, sorted into Hydra's and those of trials."""

    hydra: list[str]  # hydra.*, hydra/*, and the choice of sweep=
    trial: list[str]

    @classmethod
    def sort(cls, words: Sequence[str]) -> Words:
        """Sort the overrides; one that cannot be parsed is left to the trials, which report it.

        Raises:
            UserError: an override of Hydra's own settings cannot be parsed.
        """
        own: list[str] = []
        others: list[str] = []
        for word in words:
            override = _parsed(word)
            if override is None and word.lstrip("+~").startswith(("hydra.", "hydra/", "sweep=")):
                key, _, value = word.partition("=")
                raise UserError(f"{word}: cannot be parsed; quote the value: '{key}=\"{value}\"'")
            if override is not None and (override.is_hydra_override() or override.key_or_group == "sweep"):
                own.append(word)
            else:
                others.append(word)
        return cls(own, others)


@dataclass(frozen=True)
class Settings:
    """The composed and checked config from which a sweep's plugins are made."""

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
        """Compose and check; raise UserError with a line for each error.

        Args:
            words: the overrides of the command line.
            config_dirs: folders of the user's own configs.
            recorded: overrides of an earlier attempt, which are untrusted.
            directory: directory of a sweep that is resumed.
        """
        files = ConfFiles(config_dirs)
        # A file that may set any value may also set Hydra's, but not if trials choose different files.
        anywhere = [word for word in words.trial if _is_choice(word, files)]
        earlier = _earlier(recorded, words.hydra)
        own = [*earlier, *words.hydra]
        _refuse(filter(None, (_fault(word, files) for word in own)))
        config = _composed(files, [*anywhere, *(_usable(word, files) for word in own)])
        refuse_tilde("hydra.sweep.dir", str(config.hydra.sweep.dir))
        directory = directory or Path(str(config.hydra.sweep.dir))
        # A launcher composes again later. TRIALS exists already, so Hydra makes no other subfolder.
        config.hydra.overrides.hydra.extend(config.hydra.overrides.task)  # sweep=, or a file that chooses a launcher
        for name, value in {"dir": str(directory), "subdir": TRIALS}.items():
            OmegaConf.update(config, f"hydra.sweep.{name}", value)
            config.hydra.overrides.hydra.append(f"hydra.sweep.{name}={quoted(value)}")
        settings = cls(config, files)
        faults = settings._commands(set(map(key_of, words.hydra)))
        if anywhere or config_dirs:  # our own files set no unused options
            faults = [*settings._unused(), *faults]
        _refuse(faults)
        return settings

    @property
    def directory(self) -> Path:
        """Directory of the sweep."""
        return Path(str(self.config.hydra.sweep.dir))

    def make(self, kind: str, *bases: type) -> Any:
        """Return the plugin that `hydra.KIND` names, one of `bases`; UserError for options not in its signature."""
        # Resolved here: references to the environment were checked before.
        node = cast("dict[str, Any]", OmegaConf.to_container(self.config.hydra[kind], resolve=True))
        target = str(node.pop("_target_", None))
        found = _resolved(target, kind)
        if not (inspect.isclass(found) and issubclass(found, bases)):
            raise UserError(f"hydra.{kind}._target_={target}: is not a {bases[0].__name__}, so it cannot be the {kind}")
        choice = str(self.config.hydra.runtime.choices.get(f"hydra/{kind}"))
        known: Collection[str] = inspect.signature(found).parameters
        if (
            inspect.getfullargspec(found).varkw is not None
        ):  # it accepts any option, so its config file lists the known ones
            known = self.files.content(f"hydra/{kind}", choice)
        unknown = [key for key in node if key not in known]
        _refuse(f"hydra.{kind}.{key}: not an option of {choice}{did_you_mean(key, known)}" for key in unknown)
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
                f"hydra.{path}={show(value)}: has no effect on a sweep; of Hydra's own settings only hydra.sweep.dir, "
                "hydra.launcher.* and hydra.sweeper.* count"
            )
        return lines

    def _commands(self, typed: set[str]) -> list[str]:
        """Return a line for each option that is a command, or reads the environment, and that the user did not type."""
        lines = []
        accepted = tuple(f"{key}." for key in typed)  # with all keys below them
        for path, value in leaves(_hydra(self.config), ""):
            name, *inner = path.split(".")
            key = f"hydra.{path}"
            if name not in ("launcher", "sweeper", "sweep") or f"{key}.".startswith(accepted):
                continue
            asks = name == "launcher" and inner[0] in COMMANDS and value and value != UNPICKLED
            # A line break would start a new line, and so a new command, in a launcher's script.
            breaks = re.search(r"[\r\n]", f"{key}{value}" if isinstance(value, str) else key)
            if (breaks or asks) and PLUGINS not in trusted():
                lines.append(
                    f"{key}={show(value)}: becomes a command that you did not type; add it to the command line, "
                    f"or --trust {PLUGINS}"
                )
            elif key == "hydra.sweeper.storage" and value:
                lines.append(f"{key}: is outside the sweep, and you did not type it; add it to the command line")
            elif "${" in str(value) and ENVIRONMENT not in trusted() and reads_environment(self.config, key):
                lines.append(f"{key}={show(value)}: reads the environment; if you trust it, add --trust {ENVIRONMENT}")
        return lines


def _refuse(faults: Iterable[str]) -> None:
    """Raise UserError with these lines, if there are any."""
    lines = list(faults)
    if lines:
        raise UserError(*lines)


def quoted(path: Path | str) -> str:
    """Return a path with any characters, quoted for Hydra's grammar."""
    text = re.sub(r"(\\*)'", r"\1\1\\'", str(path))
    return f"'{text}'"


def _composed(files: ConfFiles, words: Sequence[str]) -> DictConfig:
    try:
        config = files.compose(words)
        str(config.hydra.sweep.dir)  # values are resolved on access, so errors show up here
    except UNUSABLE as error:
        raise UserError(f"{' '.join(words)}: {first_lines(error)}") from None
    return config


def _wrong_number(path: str, value: Any) -> str | None:
    """Return the error in a plugin's option that must be a number; third-party plugins do not check types."""
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
    """Return an override in the form that may also add keys; `make` checks the keys."""
    key = key_of(word)
    if key == "sweep":
        return f"+{word}"
    if files.is_group(key):
        return word
    return f"++{word.lstrip('+')}"


def _is_choice(word: str, files: ConfFiles) -> bool:
    """Return True if the override chooses one file that may set any value."""
    override = _parsed(word)
    if override is None or override.key_or_group not in GLOBAL or override.is_sweep_override():
        return False
    return override.value() in files.options(override.key_or_group)


def _earlier(recorded: Collection[str], typed: Sequence[str]) -> list[str]:
    """Return the earlier attempt's overrides that this one does not replace. Another launcher drops its options."""
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
    """Return the error in an override of Hydra's settings, as far as it alone shows it."""
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
        return f"{word}: of Hydra's own settings only hydra.sweep.dir, hydra.launcher.* and hydra.sweeper.* count"
    return None


def _resolved(target: str, kind: str) -> Any:
    """Return the class of this name, imported only if it may run."""
    package = target.partition(".")[0]
    # Checked before the import, which would already run untrusted code.
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
