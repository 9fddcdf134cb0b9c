"""The check of a command line and its configuration (stage 1): reports every fault at once, before heavy imports."""

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

# Groups whose option chooses those of other groups: without it nothing else can be judged.
DECIDES_OTHERS = {"task", *GLOBAL}

# The option of a group that conf/train.yaml leaves to the task.
OPEN = "???"


@dataclass(frozen=True)
class Composed:
    """A configuration without faults of stage 1, its interpolations unresolved, and how it was composed."""

    config: DictConfig
    choices: dict[str, str]  # group: option
    notes: tuple[str, ...] = ()  # lines that tell what was left out


def compose(overrides: Sequence[str], config_dirs: Sequence[Path] = ()) -> Composed:
    """Return the configuration of the overrides; raise UserError with a line for each fault. Nothing is written."""
    files = ConfFiles(config_dirs)
    line = _CommandLine.read(overrides, files)
    if line.refused & DECIDES_OTHERS:
        raise UserError(*line.faults)
    config, added, notes = line.compose(files)
    choices = _choices(config)
    _refuse_open_groups(choices, line)
    # Hydra's own part is of the command, not of the run: it holds times, folders and what was typed.
    with open_dict(config):
        del config["hydra"]
    schema = Schema(config, choices, files, given=line.values, added=added, unread=line.unread)
    faults = [*line.faults, *schema.faults(skip=line.refused)]
    if faults:
        raise UserError(*faults)
    return Composed(config, choices, tuple(notes))


def warm() -> None:
    """Compose a configuration and discard it, so that a server's later commands find parsers and files already read."""
    compose(["data=text", "data.path=a/b.txt", "model.dim=16", "optimizer.lr=1e-3", "run_dir=a-1", "freeze=[a,b]"])


def check_config(config: DictConfig) -> None:
    """Check a composed configuration (stage 1); raise UserError with a line for each fault."""
    faults = list(Schema(config, {}, ConfFiles()).faults())
    if faults:
        raise UserError(*faults)


def refuse_several(overrides: Sequence[str], reason: str) -> None:
    """Raise UserError if a word gives several values, for commands that take one; unparsable words are ignored."""
    for text in overrides:
        with contextlib.suppress(HydraException):  # told where it is composed
            if parsed(text).is_sweep_override():
                raise UserError(f"{text}: {reason}")


def key_of(override: str) -> str:
    """Return the key that an override sets, chooses or deletes."""
    return override.lstrip("+~").partition("=")[0]


def signature_faults(config: DictConfig) -> list[UserError]:
    """Return the faults of stage 2: import every target and check the keys of its node against its real signature."""
    faults: list[UserError] = []
    for path, node in targets(OmegaConf.to_container(config, resolve=True)):
        try:
            parameters = inspect.signature(resolve(node["_target_"], path=path)).parameters
        except UserError as fault:
            # The kind stays: a package that is not installed here refuses no trial of a sweep for good.
            faults.append(type(fault)(*(f"{path}._target_={line}" for line in fault.lines)))
        else:
            faults += _unknown_options(path, node, parameters)
    return faults


def _unknown_options(
    path: str, node: dict[str, Any], parameters: Mapping[str, inspect.Parameter]
) -> Iterator[UserError]:
    """Yield a fault for each key of a node that its target does not take; stage 1 cannot read every signature."""
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    known = {*parameters, *own_options(path)}
    for key in node:
        if key not in known and not RESERVED.match(key):
            yield UserError(f"{path}.{key}: no option of {node['_target_']}{did_you_mean(key, parameters)}")


def repeated(overrides: Sequence[str]) -> list[str]:
    """Return a line for each key that is given several times with different values. The last one counts."""
    given: dict[str, list[str]] = {}
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        given.setdefault(key, []).append(value)
    lines = []
    for key, values in given.items():
        if len(set(values)) > 1:
            others = ", ".join(dict.fromkeys(values[:-1]))
            lines.append(f"{key} is given {len(values)} times: {values[-1]} counts, {others} does not")
    return lines


@dataclass
class _CommandLine:
    """The overrides, each parsed by itself, so that one fault does not hide the next."""

    fixed: list[str] = field(default_factory=list)  # choices of options, deletions and the like, as typed
    values: dict[str, Override] = field(default_factory=dict)  # by key; each may add it
    faults: list[str] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)  # keys whose words are faults by themselves
    refused: set[str] = field(default_factory=set)  # groups whose choice is a fault: their keys cannot be judged

    @classmethod
    def read(cls, overrides: Sequence[str], files: ConfFiles) -> _CommandLine:
        """Sort the overrides. Hydra's struct mode is not used, since Schema checks all keys at once."""
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
                if "=" in text:  # else the parser's words only say that there is no `=`
                    fault += f": {first_lines(error)}"
                line.faults.append(fault)
        return line

    def _sort(self, text: str, override: Override, files: ConfFiles) -> None:
        key = override.key_or_group
        if not key:
            self.faults.append(f"{text}: not of the form key=value")
        elif override.is_hydra_override():
            if key.startswith(("hydra.sweep", "hydra.launcher", "hydra/launcher", "hydra/sweeper")):
                self.faults.append(f"{text}: counts in a sweep only, so add -m")
            else:
                self.faults.append(f"{text}: changes nothing here; run_dir= names the folder of a run")
        elif override.is_sweep_override():
            self.faults.append(f"{text}: several values are a sweep, so add -m; a list is written {key}=[...]")
        elif key == "sweep":
            self.faults.append(f"{text}: a search is a sweep, so add -m")
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
            self.faults.append(f"{text}: every run needs {key}, so it cannot be deleted; give it another value")

    def _choose(self, text: str, group: str, value: object, files: ConfFiles) -> None:
        """Keep the choice of an option, or refuse it; several options are valid where entries are collected."""
        names = value if isinstance(value, list) and value and group in ENTRIES else [value]
        options = files.options(group)
        unknown = [show(name) for name in names if name not in options]
        if unknown == ["null"] and group in GLOBAL:  # as conf/train.yaml has it already
            return
        self.faults += [f"{group}={name}: no such {group}{did_you_mean(name, options)}" for name in unknown]
        if unknown:
            self.refused.add(group)
        else:
            self.fixed.append(text.lstrip("+"))

    def compose(self, files: ConfFiles) -> tuple[DictConfig, set[str], list[str]]:
        """Return the configuration of all usable overrides, the keys that they added, and lines on what was left out.

        The other overrides become faults. Hydra composes the choices, and values are then set as Hydra would
        set them: composing takes most of the time of a command that is refused, so it is done once, and each value
        that does not fit is reported by itself.
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
                self.faults.append(f"{_typed(override)}: {first_lines(error)}")
                del self.values[key]
        return config, added, notes

    def _add_mixers(self, config: DictConfig, files: ConfFiles) -> None:
        """Add the file of each mixer that a model names to its `options`; what other files set there stays."""
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
                self.faults.append(f"{key}: set its options by their names, such as {key}.conv=0")
                del self.values[key]

    def _leave_out_values_of_others(self, config: DictConfig, files: ConfFiles) -> list[str]:
        """Remove values that an experiment sets for an optimizer or schedule that was not typed; return their lines."""
        others = [text for text in self.fixed if key_of(text) not in METHODS]
        if len(others) == len(self.fixed) or not any(key_of(text) in GLOBAL for text in others):
            return []  # most commands: nothing is composed twice for them
        return leave_out_values_of_others(config, _choices(config), _choices(files.compose(others)), files)

    def _problems(self, files: ConfFiles, error: Exception) -> list[str]:
        """Return why Hydra cannot compose: for each word that fails by itself or, if none does, for all together."""
        problems = []
        for text in self.fixed:
            try:
                files.compose([text])
            except UNUSABLE as reason:
                problems.append(f"{text}: {first_lines(reason)}")
        return problems or [first_lines(error)]


def _typed(override: Override) -> str:
    """Return a word of the command line without the sign that it may be added: all may."""
    return str(override.input_line).lstrip("+")


def _choices(config: DictConfig) -> dict[str, str]:
    """Return the option of each group but Hydra's own: OPEN if none was chosen, several joined by commas."""
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
    """Raise UserError if neither the command line nor the task's file chooses what every run needs.

    This happens with a user's own task.
    """
    groups = [group for group in GROUPS if choices.get(group) == OPEN]
    if not groups:
        return
    faults = list(line.faults)
    # A group whose option was refused has its line already.
    missing = [group for group in groups if group not in line.refused]
    if missing:
        words = " ".join(f"{group}=..." for group in missing)
        faults.append(f"task={choices['task']}: takes no {', '.join(missing)} by itself; add {words}")
    raise UserError(*faults)


# Groups whose options are methods: a learning rate or a warm-up that suits one says nothing of another.
METHODS = ("optimizer", "schedule")


def leave_out_values_of_others(
    config: DictConfig, choices: Mapping[str, str], chosen_by_files: Mapping[str, str], files: ConfFiles
) -> list[str]:
    """Remove a file's values for a method that was not chosen from a configuration.

    Args:
        config: composed with the options that were typed; changed in place.
        choices: the option of each group, as typed or else as files choose it.
        chosen_by_files: the option of each group if no method is typed.
        files: the files of which `config` was composed.

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
                f"left out are its {', '.join(values)} of the {group}"
            )
    return lines
