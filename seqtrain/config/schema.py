"""Holds a composed configuration against the signatures of its targets: keys, values and what is missing."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seqtrain.config.conf_files import ConfFiles, reads_environment
from seqtrain.config.nodes import Unresolved, at, leaves
from seqtrain.config.options import Batching, RunOptions, TrainerOptions
from seqtrain.config.ranges import out_of_range
from seqtrain.config.signatures import Option, fits, signature, words
from seqtrain.config.targets import refusal, targets
from seqtrain.config.trust import trusted
from seqtrain.errors import UserError, did_you_mean, refuse_tilde
from seqtrain.files.untrusted import ENVIRONMENT

GROUPS = ("task", "data", "model", "tokenizer", "tbptt", "optimizer", "schedule")
"""Groups that are one target."""

ENTRIES = ("logger", "callbacks")
"""Groups that hold any number of named targets, or null."""

GLOBAL = ("experiment", "debug")
"""Groups whose files set values anywhere."""

OWN = {"": RunOptions, "trainer": TrainerOptions, "data": Batching}
"""Options of a group that no target takes."""

RESERVED = re.compile(r"_(target|partial|convert|recursive)_$|_recommend_")
"""Keys that are no options: Hydra's, and what a model recommends."""

NESTED_OVERRIDE = re.compile(r"No earlier Group Default for '(\w+)@(\w+)\.\1' exists to override\.")
"""How Hydra tells that a file of one group chose an option of another group, and looked for it inside its own."""


def show(value: Any) -> str:
    """A value as one would type it."""
    if isinstance(value, list):
        return f"[{','.join(map(show, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{show(item)}" for key, item in value.items()) + "}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def first_lines(error: BaseException) -> str:
    """The message of an error of Hydra, OmegaConf or YAML on one line, without search paths and addresses."""
    message = str(error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error)
    message = re.split(r"\n\s*(?:full_key:|object_type=|Config search path:|See https?:)", message)[0]
    message = NESTED_OVERRIDE.sub(r"It was looked for inside \2: write `override /\1@_group_: ...`", message)
    return " ".join(message.split())


@dataclass(frozen=True)
class Schema:
    """A configuration, and what is needed to say what is wrong with it."""

    config: DictConfig  # without Hydra's own part
    choices: dict[str, str]
    files: ConfFiles
    given: Collection[str] = ()  # keys that the user typed
    added: Collection[str] = ()  # those of them that stand in no file
    unread: Collection[str] = ()  # keys that the user typed with a value that was refused already

    @functools.cached_property
    def raw(self) -> dict[str, Any]:
        """The configuration as plain containers, unresolved."""
        container = OmegaConf.to_container(self.config, resolve=False)
        return {str(key): value for key, value in container.items()} if isinstance(container, dict) else {}

    def faults(self, skip: Collection[str] = ()) -> Iterator[str]:
        """A line for each fault, in the order of the configuration, but for the groups in `skip`."""
        top = _own("")
        known = [*GROUPS, *ENTRIES, "trainer", *top]
        for name, node in self.raw.items():
            if name in skip:
                continue
            if name in top:
                yield from self._value(name, node, top[name].kind)
            elif name in GLOBAL and name in self.choices:
                yield f"{name}={self.choices[name]}: its file must begin with the line `# @package _global_`"
            elif name not in known:
                yield from self._unknown(name, node, known)
            elif not isinstance(node, dict):
                yield f"{name}={show(node)}: expected a map of options{self._where(name)}"
            elif name in ENTRIES:
                yield from self._entries(name, node)
            else:
                yield from self._group(name, node)
        yield from (
            f"{name}: missing; every run needs it" for name in known if name not in self.raw and name not in skip
        )
        yield from self._out_of_range("")
        yield from self._environment()

    def _environment(self) -> Iterator[str]:
        """Values that read the environment though nobody typed them: loggers would carry secrets away."""
        if ENVIRONMENT in trusted():
            return
        others = self.config.copy()
        for key in self.given:
            with contextlib.suppress(OmegaConfBaseException):
                OmegaConf.update(others, key, None)
        for path, value in leaves(OmegaConf.to_container(others, resolve=False), ""):
            if "${" in str(value) and reads_environment(others, path):
                yield (
                    f"{path}={show(value)}: reads the environment{self._where(path)}; "
                    f"if you trust the file, add --trust {ENVIRONMENT}"
                )

    def _group(self, name: str, node: dict[str, Any]) -> Iterator[str]:
        own = _own(name)
        yield from self._target(name, node, own) if name in GROUPS else self._keys(name, node, own, is_open=False)
        yield from (f"{name}.{key}: missing; give it a value" for key in own if key not in node)
        yield from self._out_of_range(name)

    def _out_of_range(self, name: str) -> Iterator[str]:
        """What our own options refuse together; values of a wrong kind were reported already."""
        own = _own(name)
        values = {key: self._resolved(f"{name}.{key}" if name else key) for key in own}
        if own and all(fits(values[key], option.kind) for key, option in own.items()):
            try:
                OWN[name](**values)
            except UserError as fault:
                yield from fault.lines

    def _entries(self, name: str, node: dict[str, Any]) -> Iterator[str]:
        for entry, value in node.items():
            path = f"{name}.{entry}"
            if isinstance(value, dict) and "_target_" in value:
                yield from self._target(path, value, {})
            elif isinstance(value, dict):
                yield from self._unknown(path, value, node)
            elif value is not None:
                yield f"{path}={show(value)}: expected null or a map with a _target_{self._where(path)}"

    def _target(self, path: str, node: dict[str, Any], own: dict[str, Option]) -> Iterator[str]:
        """Faults of a node with a `_target_`; `own` are options that the target does not take itself."""
        target = self._resolved(f"{path}._target_")
        if not isinstance(target, str) and "_target_" in node:
            shown = show(node["_target_"])
            yield f"{path}._target_={shown}: expected the dotted name of a class{self._where(f'{path}._target_')}"
            return
        if not isinstance(target, str):
            fitting = [option for option in self.files.options(path) if "_target_" in self.files.content(path, option)]
            yield f"{path}={self.choices.get(path, '')}: no {path} by itself; choose {' or '.join(fitting)}"
            return
        reason = refusal(target)
        if reason:
            yield f"{path}._target_={target}: {reason}{self._where(f'{path}._target_')}"
            return
        found = signature(target)
        options = {**(found.options if found else {}), **own}
        yield from (
            f"{path}.{key}: missing; give it a value"
            for key, option in options.items()
            if option.required and key not in own and key not in node and self._handed_over(path, node, key) is False
        )
        yield from self._keys(path, node, options, is_open=found is None or found.open)

    def _keys(self, path: str, node: dict[str, Any], options: dict[str, Option], *, is_open: bool) -> Iterator[str]:
        for key, value in ((str(key), value) for key, value in node.items()):  # a YAML key may be a number
            here, option = f"{path}.{key}", options.get(key)
            if RESERVED.match(key) and here not in self.added and not (key == "_partial_" and _is_made(path)):
                continue
            if option is None and not is_open:
                names = [name for name, known in options.items() if name in node or not known.required]
                yield from self._unknown(here, value, names)
            elif option and option.required and (here in self.added or self._handed_over(path, node, key)):
                # What has no default and stands in no file is what build hands over: a model's front end, a size.
                yield f"{here}={show(value)}: seqtrain sets this itself; leave it out"
            else:
                yield from self._value(here, value, option.kind if option else Any)

    def _handed_over(self, path: str, node: dict[str, Any], key: str) -> bool | None:
        """Whether the files that name the same target all leave the key out; None where there are no such files."""
        group = path.partition(".")[0]
        if group in OWN and key in OWN[group].__annotations__:  # stands in a file of its own
            return False
        contents = [self.files.content(group, option) for option in self.files.options(group)]
        shipped = [other for content in contents for _, other in targets(content)]
        alike = [other for other in shipped if other["_target_"] == node["_target_"]]
        return all(key not in other for other in alike) if alike else None

    def _value(self, path: str, raw: Any, kind: Any) -> Iterator[str]:
        if raw == "???" and path in self.unread:
            return
        if raw == "???":
            group = path.partition(".")[0]
            needed = f"; {group}={self.choices[group]} needs it" if group in self.choices else ""
            yield f"{path}: missing{needed}; add {path}=..."
            return
        inner = list(targets(raw, path))
        for here, node in inner:
            yield from self._target(here, node, {})
        if inner:
            return
        try:
            value = self._resolve(path)
        except OmegaConfBaseException as error:
            yield f"{path}={show(raw)}: {first_lines(error)}{self._where(path)}"
            return
        try:
            refuse_tilde(path, value)
        except UserError as fault:
            yield from fault.lines
            return
        if not fits(value, kind):
            quote = f""" (as text: '{path}="{show(value)}"')""" if fits("", kind) and fits(value, float) else ""
            yield f"{path}={show(value)}: expected {words(kind)}{quote}{self._where(path)}"
        elif (
            (wrong := out_of_range(path, value)) and not self._is_a_strangers(path) and not self._is_told_elsewhere(raw)
        ):
            yield f"{path}={show(value)}: {wrong}{self._where(path)}"

    def _is_a_strangers(self, path: str) -> bool:
        """Whether an optimizer or a schedule of somebody else takes it: of equal names it may mean something else."""
        group = path.partition(".")[0]
        target = self._resolved(f"{group}._target_")
        ours = isinstance(target, str) and target.startswith(("seqtrain.", "torch."))
        return group in ("optimizer", "schedule") and not ours

    def _is_told_elsewhere(self, raw: Any) -> bool:
        """Whether a value is that of another key, `${tbptt.k2}`, which is out of its own range."""
        other = re.fullmatch(r"\$\{([\w.]+)\}", raw) if isinstance(raw, str) else None
        return other is not None and out_of_range(other[1], self._resolved(other[1])) is not None

    def _unknown(self, path: str, node: Any, known: Collection[str]) -> Iterator[str]:
        parent, _, word = path.rpartition(".")
        owner = f"{parent}={self.choices[parent]}" if parent in self.choices else parent
        reason = f"{owner} has no option {word}" if parent else "no such option"
        for leaf, value in leaves(node, path):
            yield f"{leaf}={show(value)}: {reason}{self._hint(path, leaf, known)}{self._where(leaf)}"

    def _hint(self, path: str, leaf: str, known: Collection[str]) -> str:
        """Another option of the group that has the key, the same key elsewhere, or one spelt alike."""
        group, _, key = path.partition(".")
        others = [option for option in self._alternatives(group) if self._offers(group, option, key)]
        if others:
            return f"; {' or '.join(f'{group}={option}' for option in others[:3])} has it"
        word = f".{leaf.rpartition('.')[2]}"
        elsewhere = [name for name, _ in leaves(self.raw, "") if name.endswith(word) and self._is_known(name, leaf)]
        if elsewhere:
            return f"; did you mean {' or '.join(elsewhere[:3])}?"
        return did_you_mean(path.rpartition(".")[2], known)

    def _is_known(self, path: str, unknown: str) -> bool:
        parts = path.split(".")
        doubtful = path == unknown or path in self.added or any(map(RESERVED.match, parts))
        return parts[0] in (*GROUPS, *ENTRIES, "trainer") and not doubtful

    def _alternatives(self, group: str) -> list[str]:
        return self.files.options(group) if group in self.choices else []

    def _offers(self, group: str, option: str, key: str) -> bool:
        content = self.files.content(group, option)
        found = at(content, key)
        return found is not Unresolved and not (group in ENTRIES and found is None)

    def _where(self, path: str) -> str:
        """The file that set a value which nobody typed."""
        if any(f"{path}.".startswith(f"{key}.") or f"{key}.".startswith(f"{path}.") for key in self.given):
            return ""
        group, _, key = path.partition(".")
        for name, inside in (*((name, path) for name in reversed(GLOBAL)), (group, key)):
            for option in filter(None, self.choices.get(name, "").split(",")):
                if at(self.files.content(name, option), inside) == at(self.raw, path):
                    return f" (set in {name}/{option}.yaml)"
        return ""

    def _resolve(self, path: str) -> Any:
        value = OmegaConf.select(self.config, path, default=Unresolved)
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value

    def _resolved(self, path: str) -> Any:
        """The value, or Unresolved where there is none (which `_value` reports)."""
        try:
            return self._resolve(path)
        except OmegaConfBaseException:
            return Unresolved


def _is_made(path: str) -> bool:
    """Whether a node is an object at once: the target of a group or an entry, but for what waits for the weights."""
    group, _, entry = path.partition(".")
    return group not in ("optimizer", "schedule") and (not entry or (group in ENTRIES and "." not in entry))


def _own(group: str) -> dict[str, Option]:
    found = signature(f"seqtrain.config.options.{OWN[group].__name__}") if group in OWN else None
    return found.options if found else {}
