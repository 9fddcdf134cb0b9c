"""Check of a composed configuration against the signatures of its targets: unknown and missing keys, and values."""

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
from seqtrain.config.groups import ENTRIES, GLOBAL, GROUPS, OPTIONAL, OWN, RESERVED, own_options
from seqtrain.config.nodes import Unresolved, at, below, leaves
from seqtrain.config.ranges import out_of_range
from seqtrain.config.signatures import Option, fits, signature, words
from seqtrain.config.targets import refusal, targets
from seqtrain.config.trust import trusted
from seqtrain.errors import UserError, did_you_mean, refuse_tilde
from seqtrain.files.untrusted import ENVIRONMENT

FOUND = ("optimizer.lr", "auto")  # allowed: a range test replaces it by a number before the optimizer is built


@dataclass(frozen=True)
class Schema:
    """A configuration, with the context for its error messages."""

    config: DictConfig  # without Hydra's own node
    choices: dict[str, str]
    files: ConfFiles
    given: Collection[str] = ()  # keys that the user typed
    added: Collection[str] = ()  # typed keys that are in no file
    unread: Collection[str] = ()  # typed keys whose value was reported already

    @functools.cached_property
    def values(self) -> dict[str, Any]:
        """The configuration as plain containers, unresolved."""
        container = OmegaConf.to_container(self.config, resolve=False)
        assert isinstance(container, dict)
        return {str(key): value for key, value in container.items()}

    @functools.cached_property
    def hints(self) -> Hints:
        """Hints for faulty values."""
        return Hints(self.values, self.choices, self.files, self.given, self.added)

    def faults(self, skip: Collection[str] = ()) -> Iterator[str]:
        """Yield a line for each fault, in the order of the configuration, except for the groups in `skip`."""
        known = [*GROUPS, *ENTRIES, "trainer", *OPTIONAL, *own_options("")]
        for name, node in self.values.items():
            if name not in skip:
                yield from self._top_level(name, node, known)
        for name in known:
            if name not in self.values and name not in skip and name not in OPTIONAL:
                yield f"{name}: missing; every run needs it"
        yield from self._out_of_range("")
        yield from self._environment()

    def _top_level(self, name: str, node: Any, known: list[str]) -> Iterator[str]:
        options = own_options("")
        if name in options:
            yield from self._value(name, node, options[name].kind)
        elif name in GLOBAL and name in self.choices:
            yield f"{name}={self.choices[name]}: its file must begin with the line `# @package _global_`"
        elif name not in known:
            yield from self._unknown(name, node, known)
        elif not isinstance(node, dict):
            yield f"{name}={show(node)}: expected a map of options{self.hints.set_in(name)}"
        elif name in ENTRIES:
            yield from self._entries(name, node)
        else:
            yield from self._group(name, node)

    def _environment(self) -> Iterator[str]:
        """Yield faults of values in files that read the environment, because loggers would publish secrets."""
        if ENVIRONMENT in trusted():
            return
        # The user may read the environment in a typed value. Remove those, so that only the files are checked.
        others = self.config.copy()
        for key in self.given:
            with contextlib.suppress(OmegaConfBaseException):
                OmegaConf.update(others, key, None)
        for path, value in leaves(OmegaConf.to_container(others, resolve=False), ""):
            if "${" in str(value) and reads_environment(others, path):
                yield (
                    f"{path}={show(value)}: reads the environment{self.hints.set_in(path)}; "
                    f"if you trust the file, add --trust {ENVIRONMENT}"
                )

    def _group(self, name: str, node: dict[str, Any]) -> Iterator[str]:
        options = own_options(name)
        if name in GROUPS:
            yield from self._target(name, node, options)
        else:
            yield from self._keys(name, node, options, is_open=False)
        for key, option in options.items():
            if key not in node and option.required:  # third-party models and older runs may lack optional keys
                yield f"{name}.{key}: missing; give it a value"
        yield from self._out_of_range(name)

    def _out_of_range(self, name: str) -> Iterator[str]:
        """Yield the faults that our own option classes raise. Values of a wrong type were reported already."""
        if name not in OWN or (name in OPTIONAL and name not in self.values):
            return
        values: dict[str, Any] = {}
        for key, option in own_options(name).items():
            if not option.required and key not in self.values[name]:
                continue
            values[key] = self._resolved(below(name, key))
            if not fits(values[key], option.kind):
                return
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
                yield f"{path}={show(value)}: expected null or a map with a _target_{self.hints.set_in(path)}"

    def _target(self, path: str, node: dict[str, Any], own: dict[str, Option]) -> Iterator[str]:
        """Yield the faults of a node with a `_target_`. `own`: options of the node that its target does not take."""
        target = self._resolved(f"{path}._target_")
        if not isinstance(target, str):
            yield self._no_target(path, node)
            return
        reason = refusal(target)
        if reason:
            yield f"{path}._target_={target}: {reason}{self.hints.set_in(f'{path}._target_')}"
            return
        # If the source of a trusted class cannot be read, `signature_faults` checks the node with the imported class.
        options, is_open = dict(own), True
        taken = signature(target)
        if taken is not None:
            options, is_open = {**taken.options, **own}, taken.open
        for key, option in options.items():
            if not option.required or key in own or key in node:
                continue
            if self._handed_over(path, node, key) is False:
                yield f"{path}.{key}: missing; give it a value"
        yield from self._keys(path, node, options, is_open=is_open)

    def _no_target(self, path: str, node: dict[str, Any]) -> str:
        """Return the fault of a group's node whose `_target_` is missing or is not a string."""
        if "_target_" in node:
            value = show(node["_target_"])
            where = self.hints.set_in(f"{path}._target_")
            return f"{path}._target_={value}: expected the dotted name of a class{where}"
        options = [option for option in self.files.options(path) if "_target_" in self.files.content(path, option)]
        return f"{path}={self.choices.get(path, '')}: not a complete {path}; choose {' or '.join(options)}"

    def _keys(self, path: str, node: dict[str, Any], options: dict[str, Option], *, is_open: bool) -> Iterator[str]:
        for name, value in node.items():
            key = str(name)  # a YAML key may be a number
            here, option = f"{path}.{key}", options.get(key)
            if self._is_reserved(path, key):
                continue
            if option is None and not is_open:
                names = [name for name, known in options.items() if name in node or not known.required]
                yield from self._unknown(here, value, names)
            elif option is None:
                yield from self._value(here, value, Any)
            elif option.required and (here in self.added or self._handed_over(path, node, key)):
                # A required argument that no file sets is passed by seqtrain later: a model's front end, a size.
                yield f"{here}={show(value)}: seqtrain sets this itself; leave it out"
            else:
                yield from self._value(here, value, option.kind)

    def _is_reserved(self, path: str, key: str) -> bool:
        """Return True if a key is a reserved key of Hydra or seqtrain in a valid position, not an option."""
        if not RESERVED.match(key) or f"{path}.{key}" in self.added:
            return False
        # `_partial_` would make a function, but a model or a task must be an object.
        return key != "_partial_" or not _is_made_at_once(path)

    def _handed_over(self, path: str, node: dict[str, Any], key: str) -> bool | None:
        """Return True if all files with the same target leave the key out; None if there are no such files."""
        group = path.partition(".")[0]
        if group in OWN and key in OWN[group].__annotations__:  # the group's own file sets it
            return False
        alike = [shipped for shipped in self._shipped(group) if shipped["_target_"] == node["_target_"]]
        if not alike:
            return None
        return not any(key in shipped for shipped in alike)

    def _shipped(self, group: str) -> Iterator[dict[str, Any]]:
        """Yield every node with a target in the files of a group."""
        for option in self.files.options(group):
            for _, node in targets(self.files.content(group, option)):
                yield node

    def _value(self, path: str, raw: Any, kind: Any) -> Iterator[str]:
        if raw == "???":
            yield from self._left_open(path)
            return
        inner = list(targets(raw, path))
        if inner:
            for here, node in inner:
                yield from self._target(here, node, {})
            return
        try:
            value = self._resolve(path)
            refuse_tilde(path, value)
        except OmegaConfBaseException as error:
            yield f"{path}={show(raw)}: {first_lines(error)}{self.hints.set_in(path)}"
            return
        except UserError as fault:
            yield from fault.lines
            return
        wrong = out_of_range(path, value)
        if not fits(value, kind) and (path, value) != FOUND:
            expected = f"{words(kind)}{_as_text(path, value, kind)}"
            yield f"{path}={show(value)}: expected {expected}{self.hints.set_in(path)}"
        elif wrong and not self._is_a_strangers(path) and not self._is_reported_elsewhere(raw):
            yield f"{path}={show(value)}: {wrong}{self.hints.set_in(path)}"

    def _left_open(self, path: str) -> Iterator[str]:
        """Yield the fault of a value that a file leaves to the user, unless its override was reported already."""
        if path in self.unread:
            return
        group = path.partition(".")[0]
        needed = f"; {group}={self.choices[group]} needs it" if group in self.choices else ""
        yield f"{path}: missing{needed}; add {path}=..."

    def _is_a_strangers(self, path: str) -> bool:
        """Return True for an option of a third-party optimizer or schedule, where a name may mean something else."""
        group = path.partition(".")[0]
        target = self._resolved(f"{group}._target_")
        ours = isinstance(target, str) and target.startswith(("seqtrain.", "torch."))
        return group in ("optimizer", "schedule") and not ours

    def _is_reported_elsewhere(self, raw: Any) -> bool:
        """Return True if a value is a reference to another key, such as `${tbptt.k2}`, that is out of its range."""
        if not isinstance(raw, str):
            return False
        other = re.fullmatch(r"\$\{([\w.]+)\}", raw)
        return other is not None and out_of_range(other[1], self._resolved(other[1])) is not None

    def _unknown(self, path: str, node: Any, known: Collection[str]) -> Iterator[str]:
        parent, _, word = path.rpartition(".")
        owner = f"{parent}={self.choices[parent]}" if parent in self.choices else parent
        reason = f"{owner} has no option {word}" if owner else "no such option"
        for leaf, value in leaves(node, path):
            ending = f"{self.hints.meant(path, leaf, known)}{self.hints.set_in(leaf)}"
            yield f"{leaf}={show(value)}: {reason}{ending}"

    def _resolve(self, path: str) -> Any:
        value = OmegaConf.select(self.config, path, default=Unresolved)
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value

    def _resolved(self, path: str) -> Any:
        """Return the value, or Unresolved if it does not exist (reported by `_value`)."""
        try:
            return self._resolve(path)
        except OmegaConfBaseException:
            return Unresolved


def _as_text(path: str, value: Any, kind: Any) -> str:
    """Return how to type a number as a string if a string is expected: YAML reads `1` as a number."""
    return f""" (as text: '{path}="{show(value)}"')""" if fits("", kind) and fits(value, float) else ""


def _is_made_at_once(path: str) -> bool:
    """Return True if a node is instantiated directly: the target of a group or an entry.

    Optimizers and schedules are instantiated later, because they need the weights.
    """
    group, _, entry = path.partition(".")
    return group not in ("optimizer", "schedule") and (not entry or (group in ENTRIES and "." not in entry))


MAX_SUGGESTIONS = 3  # more do not fit on a line


@dataclass(frozen=True)
class Hints:
    """Hints at the end of error messages about one configuration."""

    values: dict[str, Any]  # the configuration as plain containers, unresolved
    choices: dict[str, str]
    files: ConfFiles
    given: Collection[str]  # keys that the user typed
    added: Collection[str]  # typed keys that are in no file

    def meant(self, path: str, leaf: str, known: Collection[str]) -> str:
        """Return a suggestion: an option of the group that has the key, the key in another group, or a similar key.

        Args:
            path: the unknown key.
            leaf: the path below it that the message names.
            known: valid keys at the same level.
        """
        group, _, key = path.partition(".")
        others = [f"{group}={option}" for option in self._alternatives(group) if self._offers(group, option, key)]
        if others:
            return f"; {' or '.join(others[:MAX_SUGGESTIONS])} has it"
        elsewhere = self._same_name(leaf)
        if elsewhere:
            return f"; did you mean {' or '.join(elsewhere[:MAX_SUGGESTIONS])}?"
        return did_you_mean(path.rpartition(".")[2], known)

    def set_in(self, path: str) -> str:
        """Return the file that set a value, in words; empty if the user typed it."""
        for key in self.given:
            # A typed map sets the values below it; a typed value changes the map above it.
            if f"{path}.".startswith(f"{key}.") or f"{key}.".startswith(f"{path}."):
                return ""
        group, _, key = path.partition(".")
        value = at(self.values, path)
        # By precedence: a file of a global group overrides the group's own file.
        for name, inside in [*((name, path) for name in reversed(GLOBAL)), (group, key)]:
            for option in filter(None, self.choices.get(name, "").split(",")):
                if at(self.files.content(name, option), inside) == value:
                    return f" (set in {name}/{option}.yaml)"
        return ""

    def _same_name(self, leaf: str) -> list[str]:
        """Return known keys of other groups with the same last part as an unknown key."""
        word = f".{leaf.rpartition('.')[2]}"
        return [name for name, _ in leaves(self.values, "") if name.endswith(word) and self._is_known(name, leaf)]

    def _is_known(self, path: str, unknown: str) -> bool:
        keys = path.split(".")
        if keys[0] not in (*GROUPS, *ENTRIES, "trainer"):
            return False
        # A key that was added on the command line may itself be wrong.
        return path != unknown and path not in self.added and not any(map(RESERVED.match, keys))

    def _alternatives(self, group: str) -> list[str]:
        return self.files.options(group) if group in self.choices else []

    def _offers(self, group: str, option: str, key: str) -> bool:
        value = at(self.files.content(group, option), key)
        # A null entry is a placeholder in its file, and is switched off.
        return value is not Unresolved and not (group in ENTRIES and value is None)


# Hydra's message if a file of one group overrides another group, which Hydra looked up inside the file's own group.
NESTED_OVERRIDE = re.compile(r"No earlier Group Default for '(\w+)@(\w+)\.\1' exists to override\.")


def show(value: Any) -> str:
    """Return a value as typed on a command line."""
    if isinstance(value, list):
        return f"[{','.join(map(show, value))}]"
    if isinstance(value, dict):
        items = [f"{key}:{show(item)}" for key, item in value.items()]
        return f"{{{','.join(items)}}}"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def first_lines(error: BaseException) -> str:
    """Return the message of an error of Hydra, OmegaConf or YAML on one line, without search paths and addresses."""
    # Hydra wraps OmegaConf's error, whose message names the key.
    if isinstance(error.__cause__, OmegaConfBaseException):
        error = error.__cause__
    message = re.split(r"\n\s*(?:full_key:|object_type=|Config search path:|See https?:)", str(error))[0]
    message = NESTED_OVERRIDE.sub(r"It was looked for inside \2: write `override /\1@_group_: ...`", message)
    return " ".join(message.split())
