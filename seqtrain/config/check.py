"""Check of a command line and its configuration, which reports every fault at once.

`compose` comes first and imports no target: it reads the source of each class instead. `preflight` then checks machine,
folders and data. Last, `signature_faults` imports the targets, and torch with them.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict

from seqtrain.config.conf_files import UNUSABLE, ConfFiles, parsed
from seqtrain.config.groups import ENTRIES, GLOBAL, GROUPS, RESERVED, own_options
from seqtrain.config.nodes import Unresolved, at
from seqtrain.config.schema import Schema, first_lines, show
from seqtrain.config.targets import resolve, targets
from seqtrain.errors import UserError, did_you_mean, refuse_tilde

# Groups whose option chooses the options of other groups; the rest cannot be checked without it.
DECIDES_OTHERS = {"task", *GLOBAL}

# Marks a group whose option conf/train.yaml leaves to the task.
OPEN = "???"


@dataclass(frozen=True)
class Composed:
    """A configuration that `compose` has checked, with unresolved interpolations, and how it was composed."""

    config: DictConfig
    choices: dict[str, str]  # group: option
    notes: tuple[str, ...] = ()  # messages on values that were left out


def compose(overrides: Sequence[str], config_dirs: Sequence[Path] = ()) -> Composed:
    """Return the configuration for the overrides; raise UserError with a line for each fault. Writes no files."""
    files = ConfFiles(config_dirs)
    line = _CommandLine.read(overrides, files)
    if line.refused & DECIDES_OTHERS:
        raise UserError(*line.faults)
    config, added, notes = line.compose(files)
    choices = _choices(config)
    _refuse_open_groups(choices, line)
    # Hydra's own node describes the command, not the run: it contains times, folders and overrides.
    with open_dict(config):
        del config["hydra"]
    schema = Schema(config, choices, files, given=line.values, added=added, unread=line.unread)
    faults = [*line.faults, *schema.faults(skip=line.refused)]
    if faults:
        raise UserError(*faults)
    return Composed(config, choices, tuple(notes))


def warm() -> None:
    """Compose a configuration and discard it, to load parsers and files once for a server's later commands."""
    compose(["data=text", "data.path=a/b.txt", "model.dim=16", "optimizer.lr=1e-3", "run_dir=a-1", "freeze=[a,b]"])


def check_config(config: DictConfig) -> None:
    """Check a composed configuration without imports; raise UserError with a line for each fault."""
    faults = list(Schema(config, {}, ConfFiles()).faults())
    if faults:
        raise UserError(*faults)


def refuse_several(overrides: Sequence[str], reason: str) -> None:
    """Raise UserError if an override gives several values. Overrides that cannot be parsed are ignored."""
    for text in overrides:
        with contextlib.suppress(HydraException):  # compose() reports it
            if parsed(text).is_sweep_override():
                raise UserError(f"{text}: {reason}")


def key_of(override: str) -> str:
    """Return the key that an override sets, chooses or deletes."""
    return override.lstrip("+~").partition("=")[0]


def group_of(override: str) -> str:
    """Return the first part of the key that an override sets, chooses or deletes."""
    return key_of(override).partition(".")[0]


def signature_faults(config: DictConfig) -> list[UserError]:
    """Import every target, and return the faults of its node: keys that the actual signature does not have."""
    faults: list[UserError] = []
    for path, node in targets(OmegaConf.to_container(config, resolve=True)):
        try:
            parameters = inspect.signature(resolve(node["_target_"], path=path)).parameters
        except UserError as fault:
            # Keep the exception class: if a package is not installed here, a sweep may retry the trial.
            faults.append(type(fault)(*(f"{path}._target_={line}" for line in fault.lines)))
        else:
            faults += _unknown_options(path, node, parameters)
    return faults


def _unknown_options(
    path: str, node: dict[str, Any], parameters: Mapping[str, inspect.Parameter]
) -> Iterator[UserError]:
    """Yield a fault for each key of a node that its target does not take. `compose` cannot read every signature."""
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    known = {*parameters, *own_options(path)}
    for key in node:
        if key not in known and not RESERVED.match(key):
            yield UserError(f"{path}.{key}: no option of {node['_target_']}{did_you_mean(key, parameters)}")


def repeated(overrides: Sequence[str]) -> list[str]:
    """Return a line for each key that is given several times with different values. The last value wins."""
    given: dict[str, list[str]] = {}
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        given.setdefault(key, []).append(value)
    lines = []
    for key, values in given.items():
        if len(set(values)) > 1:
            others = ", ".join(dict.fromkeys(values[:-1]))
            lines.append(f"{key} is given {len(values)} times: {values[-1]} is used, {others} is ignored")
    return lines


@dataclass
class _CommandLine:
    """The overrides, each parsed separately, so that one fault does not hide the next."""

    fixed: list[str] = field(default_factory=list)  # choices of options, deletions and the like, as typed
    values: dict[str, Override] = field(default_factory=dict)  # by key, which need not exist yet
    faults: list[str] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)  # keys whose override could not be parsed or is not allowed
    refused: set[str] = field(default_factory=set)  # groups with an invalid choice: their keys cannot be checked

    @classmethod
    def read(cls, overrides: Sequence[str], files: ConfFiles) -> _CommandLine:
        """Sort the overrides by kind. Hydra's struct mode is not used, because Schema checks all keys at once."""
        line = cls()
        for text in overrides:
            try:
                refuse_tilde(*text.partition("=")[::2])
                line._sort(text, parsed(text), files)
            except UserError as fault:
                line.unread.add(key_of(text))
                line.faults += fault.lines
            except HydraException as error:
                line.unread.add(key_of(text))
                fault = f"{text}: not of the form key=value"
                if "=" in text:  # otherwise the parser's message only says that `=` is missing
                    fault += f": {first_lines(error)}"
                line.faults.append(fault)
        return line

    def _sort(self, text: str, override: Override, files: ConfFiles) -> None:
        key = override.key_or_group
        if not key:
            self.faults.append(f"{text}: not of the form key=value")
        elif override.is_hydra_override():
            if key.startswith(("hydra.sweep", "hydra.launcher", "hydra/launcher", "hydra/sweeper")):
                self.faults.append(f"{text}: has an effect in a sweep only; add -m")
            else:
                self.faults.append(f"{text}: has no effect here; set the folder of a run with run_dir=")
        elif override.is_sweep_override():
            self.faults.append(f"{text}: several values are a sweep; add -m, or write a list as {key}=[...]")
        elif key == "sweep":
            self.faults.append(f"{text}: a search is a sweep; add -m")
        elif override.is_delete():
            self._delete(text, key)
        elif files.is_group(key) and not isinstance(override.value(), dict):
            self._choose(text, key, override.value(), files)
        elif override.is_list_extend() or override.package or override.is_value_path:
            self.fixed.append(text)  # more than a value at a key: left to Hydra
        else:
            self.values[key] = override

    def _delete(self, text: str, key: str) -> None:
        group, _, entry = key.partition(".")
        if key in GLOBAL or (group in ENTRIES and entry and "." not in entry):
            self.fixed.append(text)
        else:
            self.faults.append(f"{text}: cannot be deleted, because every run needs {key}; give it another value")

    def _choose(self, text: str, group: str, value: object, files: ConfFiles) -> None:
        """Keep the choice of an option, or record a fault. Groups of entries accept several options."""
        names = value if isinstance(value, list) and value and group in ENTRIES else [value]
        options = files.options(group)
        unknown = [show(name) for name in names if name not in options]
        if unknown == ["null"] and group in GLOBAL:  # the default in conf/train.yaml
            return
        self.faults += [f"{group}={name}: no such {group}{did_you_mean(name, options)}" for name in unknown]
        if unknown:
            self.refused.add(group)
        else:
            self.fixed.append(text.lstrip("+"))

    def compose(self, files: ConfFiles) -> tuple[DictConfig, set[str], list[str]]:
        """Return the configuration of all valid overrides, the keys that they added, and notes on what was left out.

        The other overrides become faults. Hydra composes the choices once, because that is slow; the values are then
        set one by one as Hydra would set them, so that each invalid one is reported separately.
        """
        try:
            config = files.compose(self.fixed)
        except UNUSABLE as error:
            raise UserError(*self.faults, *self._problems(files, error)) from None
        notes = self._leave_out_values_of_others(config, files)
        self._add_mixers(config, files)
        files_say = OmegaConf.to_container(config, resolve=False)
        added = {key for key in self.values if at(files_say, key) is Unresolved}
        for key, override in list(self.values.items()):
            try:
                OmegaConf.update(config, key, override.value(), merge=True, force_add=True)
            except UNUSABLE as error:
                typed = str(override.input_line).lstrip("+")  # every override may add its key
                self.faults.append(f"{typed}: {first_lines(error)}")
                del self.values[key]
        return config, added, notes

    def _add_mixers(self, config: DictConfig, files: ConfFiles) -> None:
        """Add the file of each mixer that a model names to its `options`. Values set there by other files win."""
        if "mixers" not in (config.get("model") or {}):
            return
        typed = self.values.get("model.mixers")
        given: Any = config.model.mixers if typed is None else typed.value()
        names = [str(name) for name in given or ()] if isinstance(given, list | ListConfig) else [str(given)]
        known = files.options("mixer")
        for name in dict.fromkeys(names):
            if name not in known:
                self.faults.append(f"model.mixers={show(name)}: no such mixer{did_you_mean(name, known)}")
                continue
            key = f"model.options.{name}"
            set_elsewhere = OmegaConf.select(config, key) or {}
            content = OmegaConf.merge(files.content("mixer", name), set_elsewhere)
            OmegaConf.update(config, key, content, force_add=True)
        for key in [key for key in self.values if key.startswith("model.options.")]:
            name, _, option = key.removeprefix("model.options.").partition(".")
            if name not in names:
                self.faults.append(f"{key}: {name} is not among model.mixers={show(names)}")
                del self.values[key]
            elif not option:
                self.faults.append(f"{key}: set its options by name, such as {key}.conv=0")
                del self.values[key]

    def _leave_out_values_of_others(self, config: DictConfig, files: ConfFiles) -> list[str]:
        """Remove an experiment's values for an optimizer or schedule that the user replaced; return notes on them."""
        others = [text for text in self.fixed if key_of(text) not in METHODS]
        if len(others) == len(self.fixed) or not any(key_of(text) in GLOBAL for text in others):
            return []  # most commands: avoids composing twice
        return leave_out_values_of_others(config, _choices(config), _choices(files.compose(others)), files)

    def _problems(self, files: ConfFiles, error: Exception) -> list[str]:
        """Return why Hydra cannot compose: a line for each override that fails alone, or one for all together."""
        problems = []
        for text in self.fixed:
            try:
                files.compose([text])
            except UNUSABLE as reason:
                problems.append(f"{text}: {first_lines(reason)}")
        return problems or [first_lines(error)]


def _choices(config: DictConfig) -> dict[str, str]:
    """Return the option of each group except Hydra's: OPEN if none was chosen, several joined by commas."""
    options = cast(dict[str, Any], OmegaConf.to_container(config.hydra.runtime.choices))
    choices = {}
    for group, option in options.items():
        if "/" in group:  # hydra/launcher and the like
            continue
        if isinstance(option, str):
            choices[group] = option
        elif option:
            choices[group] = ",".join(option)
    return choices


def _refuse_open_groups(choices: dict[str, str], line: _CommandLine) -> None:
    """Raise UserError if neither the command line nor the task's file chooses an option of a required group.

    The files of the built-in tasks choose them all; that of a user's own task may not.
    """
    groups = [group for group in GROUPS if choices.get(group) == OPEN]
    if not groups:
        return
    faults = list(line.faults)
    # A group with an invalid choice has been reported already.
    missing = [group for group in groups if group not in line.refused]
    if missing:
        words = " ".join(f"{group}=..." for group in missing)
        faults.append(f"task={choices['task']}: has no default {', '.join(missing)}; add {words}")
    raise UserError(*faults)


# Groups whose options are methods: a learning rate or a warm-up tuned for one method does not suit another.
METHODS = ("optimizer", "schedule")


def leave_out_values_of_others(
    config: DictConfig, choices: Mapping[str, str], chosen_by_files: Mapping[str, str], files: ConfFiles
) -> list[str]:
    """Remove values that a file sets for another optimizer or schedule than the chosen one.

    Args:
        config: the configuration composed with the user's choices; changed in place.
        choices: the option of each group, as typed or as files choose it.
        chosen_by_files: the option of each group if the user chooses no method.
        files: the files that `config` was composed from.

    Returns:
        A line for each method whose values were removed.
    """
    lines = []
    for group in METHODS:
        chosen, own = choices[group], chosen_by_files[group]
        if chosen == own:
            continue
        shipped = files.content(group, chosen)
        for name in GLOBAL:
            option = choices.get(name)
            values = files.content(name, option).get(group) if option else None
            if not isinstance(values, dict) or not values:
                continue
            for key in values:
                if key in shipped:
                    OmegaConf.update(config, f"{group}.{key}", shipped[key])
                else:
                    with open_dict(config):
                        del config[group][key]
            lines.append(
                f"{group}={chosen}: {name}/{option}.yaml is written for {group}={own}; "
                f"its {group} values are ignored: {', '.join(values)}"
            )
    return lines
