"""The signature of a target, read from its source file without importing it: fast, and no code runs."""

from __future__ import annotations

import ast
import functools
import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import NoneType
from typing import Any, Literal, Union, get_args, get_origin

PLAIN = {"int": int, "float": float, "bool": bool, "str": str, "Path": str, "None": NoneType, "Any": Any}
LISTS = {"list", "List", "Sequence", "Iterable", "tuple", "Tuple"}
MAPPINGS = {"dict", "Dict", "Mapping"}
BARE = {"ABC", "object", "Protocol"}
"""Bases that take nothing."""


class Unknown:
    """Stands for a type that no YAML value can have, such as a tensor."""


@dataclass(frozen=True)
class Option:
    """One keyword of a target: the kind of value it takes, and whether it has no default."""

    kind: Any
    required: bool


@dataclass(frozen=True)
class Signature:
    """Where a target is defined, and what it takes; `open` where it takes any keyword."""

    module: str
    is_class: bool
    options: dict[str, Option]
    open: bool


@functools.cache
def signature(target: str) -> Signature | None:
    """The signature of a dotted name, followed through re-exports; None where the source does not tell."""
    module, _, name = target.rpartition(".")
    found = _find(module, name)
    if found is None:
        return None
    module, node = found
    if isinstance(node, ast.FunctionDef):
        return Signature(module, False, *_function(node, module, skip=0))
    taken = _constructor(node, module) if isinstance(node, ast.ClassDef) else None
    return taken and Signature(module, True, *taken)


def defined_in(target: str) -> tuple[str, bool] | None:
    """The module that defines a dotted name, and whether it is a class (or else a function); None for neither."""
    module, _, name = target.rpartition(".")
    home, node = _find(module, name) or ("", None)
    return (home, isinstance(node, ast.ClassDef)) if isinstance(node, ast.ClassDef | ast.FunctionDef) else None


def class_attribute(target: str, name: str) -> Any:
    """The constant that a class gives an attribute, itself or by the first base that does; None where none does."""
    module, _, class_name = target.rpartition(".")
    home, node = _find(module, class_name) or ("", None)
    if not isinstance(node, ast.ClassDef):
        return None
    for statement in node.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=attribute)], value=ast.Constant(value=value))
                | ast.AnnAssign(target=ast.Name(id=attribute), value=ast.Constant(value=value))
            ) if attribute == name:
                return value
    for base in node.bases:
        if isinstance(base, ast.Name):
            value = class_attribute(f"{home}.{base.id}", name)
            if value is not None:
                return value
    return None


def fits(value: Any, kind: Any) -> bool:
    """Whether a value of a YAML file is of this kind; a whole number is a float; a bool, nan or infinity no number."""
    if kind is Any or kind is Unknown:
        return kind is Any
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Union:
        return any(fits(value, option) for option in inner)
    if origin is Literal:
        return any(type(value) is type(option) and value == option for option in inner)
    if origin is list:
        return isinstance(value, list) and all(fits(item, inner[0]) for item in value)
    if origin is tuple:
        return isinstance(value, list) and len(value) == len(inner) and all(map(fits, value, inner))
    if kind in (int, float) and (isinstance(value, bool) or value != value or value in (math.inf, -math.inf)):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def words(kind: Any) -> str:
    """What fits, for a message: `a whole number or null`."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Union:
        return " or ".join(words(option) for option in inner if option is not Unknown)
    if origin is Literal:
        return " or ".join(str(option) for option in inner)
    if origin is list:
        return "a list" if inner[0] is Any else f"a list, each item {words(inner[0])}"
    if origin is tuple:
        return f"a list of {len(inner)}: {', '.join(map(words, inner))}"
    plain = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        NoneType: "null",
        dict: "a map",
    }
    return plain.get(kind, "another kind of value")


@functools.cache
def _spec(module: str) -> ModuleSpec | None:
    """Where a module lives. `find_spec` of a dotted name would import its parents; this imports nothing."""
    parent, _, _ = module.rpartition(".")
    if not parent:
        try:
            return importlib.util.find_spec(module)
        except ValueError:  # a module without a spec, such as __main__
            return None
    above = _spec(parent)
    if above is None or above.submodule_search_locations is None:
        return None
    return PathFinder.find_spec(module, list(above.submodule_search_locations))


@functools.cache
def _names(module: str) -> dict[str, ast.stmt]:
    """The top-level statement that binds each name of a module; none where there is no source."""
    spec = _spec(module) if module else None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return {}
    names: dict[str, ast.stmt] = {}
    for statement in ast.parse(Path(spec.origin).read_bytes()).body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names[name] = statement
            case ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name: statement for alias in aliases}
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names[name] = statement
    return names


def _find(module: str, name: str, hops: int = 8) -> tuple[str, ast.stmt] | None:
    """The module and the statement that define a name, followed through `from x import y`."""
    statement = _names(module).get(name)
    if statement is None or hops == 0:
        return None
    if not isinstance(statement, ast.ImportFrom):
        return module, statement
    original = next(alias.name for alias in statement.names if (alias.asname or alias.name) == name)
    return _find(_origin(statement, module), original, hops - 1)


def _origin(statement: ast.ImportFrom, module: str) -> str:
    """The absolute name of the module that a statement imports from."""
    if not statement.level:
        return statement.module or ""
    spec = _spec(module)
    is_package = spec is not None and spec.submodule_search_locations is not None
    parts = module.split(".")
    base = parts[: len(parts) - statement.level + is_package]
    return ".".join([*base, *([statement.module] if statement.module else [])])


def _constructor(node: ast.ClassDef, module: str) -> tuple[dict[str, Option], bool] | None:
    """What a class takes, from its own `__init__`, its fields or its first base that has one."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            return _function(statement, module, skip=1)
    bases = [base for base in node.bases if ast.unparse(base) not in BARE]
    inherited = (_base(base, module) for base in bases)
    taken = next((options for options in inherited if options is not None), None)
    if not _is_dataclass(node):
        return taken if bases else ({}, False)
    return {**(taken[0] if taken else {}), **dict(_fields(node, module))}, False


def _base(base: ast.expr, module: str) -> tuple[dict[str, Option], bool] | None:
    found = _find(module, base.id) if isinstance(base, ast.Name) else None
    return _constructor(found[1], found[0]) if found and isinstance(found[1], ast.ClassDef) else None


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list)


def _fields(node: ast.ClassDef, module: str) -> Iterator[tuple[str, Option]]:
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                if "ClassVar" not in ast.unparse(annotation):
                    yield name, Option(_kind(annotation, module), value is None)


def _function(node: ast.FunctionDef, module: str, skip: int) -> tuple[dict[str, Option], bool]:
    """What a function takes by keyword, without its first `skip` arguments (self)."""
    plain = node.args.args
    with_default = {argument.arg for argument in plain[len(plain) - len(node.args.defaults) :]}
    with_default |= {
        argument.arg
        for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        if default is not None
    }
    options = {
        argument.arg: Option(_kind(argument.annotation, module), argument.arg not in with_default)
        for argument in [*plain[skip:], *node.args.kwonlyargs]
    }
    return options, node.args.kwarg is not None


def _kind(node: ast.expr | None, module: str) -> Any:
    """An annotation as a type; `Any` where it says nothing about values of a YAML file."""
    kind = _type(node, module) if node else Any
    return Any if kind is Unknown else kind


def _type(node: ast.expr, module: str) -> Any:
    match node:
        case ast.Constant(value=None):
            return NoneType
        case ast.Constant(value=str(text)):
            return _type(ast.parse(text, mode="eval").body, module)
        case ast.Name(id=name) if name in PLAIN:
            return PLAIN[name]
        case ast.Name(id=name) if name in LISTS | MAPPINGS:
            return dict if name in MAPPINGS else list[Any]
        case ast.Name(id=name):
            found = _find(module, name)
            value = getattr(found[1], "value", None) if found else None
            return _type(value, found[0]) if found and value else Unknown
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return Union[_type(left, module), _type(right, module)]  # noqa: UP007
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return _generic(name, items, module)
    return Unknown


def _generic(name: str, items: list[ast.expr], module: str) -> Any:
    """The type `name[items]`."""
    if name == "Literal":
        return Literal[tuple(ast.literal_eval(item) for item in items)]
    if name in MAPPINGS:
        return dict
    if name in ("Optional", "Union"):
        kinds = [_type(item, module) for item in items] + [NoneType] * (name == "Optional")
        return Union[tuple(kinds)]  # noqa: UP007
    last = items[-1]
    any_length = isinstance(last, ast.Constant) and last.value is ...
    if name in ("tuple", "Tuple") and not any_length:
        return tuple[tuple(_kind(item, module) for item in items)]
    return list[_kind(items[0], module)] if name in LISTS else Unknown
