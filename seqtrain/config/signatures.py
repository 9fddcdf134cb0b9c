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

# Types are matched by name: importing the modules of an untrusted file would run its code before it is allowed.
PLAIN = {"int": int, "float": float, "bool": bool, "str": str, "Path": str, "None": NoneType, "Any": Any}
LISTS = {"list", "List", "Sequence", "Iterable", "tuple", "Tuple"}
MAPPINGS = {"dict", "Dict", "Mapping"}
# Bases without constructor arguments. The arguments of any other base without readable source are unknown.
BARE = {"ABC", "object", "Protocol"}
PLAIN_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    NoneType: "null",
    dict: "a map",
}


class Unknown:
    """A marker for a type that no YAML value can have, such as a tensor."""


@dataclass(frozen=True)
class Option:
    """One keyword argument of a target: its type, and whether it is required."""

    kind: Any
    required: bool


@dataclass(frozen=True)
class Signature:
    """The module of a target, and its keyword arguments; `open` is True if it takes **kwargs."""

    module: str
    is_class: bool
    options: dict[str, Option]
    open: bool


@functools.cache
def signature(target: str) -> Signature | None:
    """Return the signature of a dotted name, following re-exports; None if it cannot be read from source."""
    module, _, name = target.rpartition(".")
    match _find(module, name):
        case home, ast.FunctionDef() as node:
            return Signature(home, False, *_function(node, home, skip=0))
        case home, ast.ClassDef() as node:
            taken = _constructor(node, home)
            return taken and Signature(home, True, *taken)
    return None


def defined_in(target: str) -> tuple[str, bool] | None:
    """Return the module that defines a dotted name, and whether it is a class; None if it is no class or function."""
    module, _, name = target.rpartition(".")
    match _find(module, name):
        case home, (ast.ClassDef() | ast.FunctionDef()) as node:
            return home, isinstance(node, ast.ClassDef)
    return None


def class_attribute(target: str, name: str) -> Any:
    """Return the constant value of a class attribute, also from a base class; None if there is none."""
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
    """Return True if a YAML value has this type.

    An int is accepted as a float. A bool, nan or infinity is not accepted as a number.
    """
    if kind is Any:
        return True
    if kind is Unknown:
        return False
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Union:
        return any(fits(value, option) for option in inner)
    if origin is Literal:
        # Compare types too: in Python 1 == True == 1.0, but in YAML they differ.
        return any(type(value) is type(option) and value == option for option in inner)
    if origin is list:
        return isinstance(value, list) and all(fits(item, inner[0]) for item in value)
    if origin is tuple:
        return isinstance(value, list) and len(value) == len(inner) and all(map(fits, value, inner))
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)  # bool is a subclass of int
    if kind is float:
        # math.isfinite raises for an int that is too large for a float, so only floats are passed to it.
        return fits(value, int) or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, kind)


def words(kind: Any) -> str:
    """Return a type in words, for a message: `a whole number or null`."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Union:
        return " or ".join(words(option) for option in inner if option is not Unknown)
    if origin is Literal:
        return " or ".join(map(str, inner))
    if origin is tuple:
        return f"a list of {len(inner)}: {', '.join(map(words, inner))}"
    if origin is list and inner[0] is Any:
        return "a list"
    if origin is list:
        return f"a list, each item {words(inner[0])}"
    return PLAIN_WORDS.get(kind, "another kind of value")


@functools.cache
def _spec(module: str) -> ModuleSpec | None:
    """Return the spec of a module without importing anything (`find_spec` imports the parents of a dotted name)."""
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
    """Return the top-level statement that binds each name of a module; empty if it has no source file."""
    spec = _spec(module) if module else None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return {}
    names: dict[str, ast.stmt] = {}
    for statement in ast.parse(Path(spec.origin).read_bytes()).body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names[name] = statement
            case ast.ImportFrom(names=aliases):
                names |= dict.fromkeys(map(_bound_name, aliases), statement)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names[name] = statement
    return names


def _bound_name(alias: ast.alias) -> str:
    return alias.asname or alias.name


def _find(module: str, name: str, hops: int = 8) -> tuple[str, ast.stmt] | None:
    """Return the module and the statement that define a name, following `from x import y`.

    Args:
        module: module in which to start.
        name: name of a class, a function or a type alias.
        hops: maximum number of imports to follow, because two modules may import a name from each other.
    """
    statement = _names(module).get(name)
    if statement is None or hops == 0:
        return None
    if not isinstance(statement, ast.ImportFrom):
        return module, statement
    original = next(alias.name for alias in statement.names if _bound_name(alias) == name)
    return _find(_imported_module(statement, module), original, hops - 1)


def _imported_module(statement: ast.ImportFrom, module: str) -> str:
    """Return the absolute name of the module that a statement imports from."""
    if not statement.level:
        return statement.module or ""
    spec = _spec(module)
    is_package = spec is not None and spec.submodule_search_locations is not None
    path = module.split(".")
    # One dot is the package that contains the module; in `__init__.py` it is the package itself.
    path = path[: len(path) - statement.level + is_package]
    if statement.module:
        path.append(statement.module)
    return ".".join(path)


def _constructor(node: ast.ClassDef, module: str) -> tuple[dict[str, Option], bool] | None:
    """Return the options of a class, from its `__init__`, its dataclass fields or its first base with either."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            return _function(statement, module, skip=1)
    bases = [base for base in node.bases if ast.unparse(base) not in BARE]
    inherited = _inherited(bases, module)
    if _is_dataclass(node):
        options, _ = inherited or ({}, False)
        return {**options, **dict(_fields(node, module))}, False
    if not bases:
        return {}, False
    return inherited


def _inherited(bases: list[ast.expr], module: str) -> tuple[dict[str, Option], bool] | None:
    """Return the options of the first base whose constructor can be read; None if there is no such base."""
    for base in bases:
        if not isinstance(base, ast.Name):
            continue
        match _find(module, base.id):
            case home, ast.ClassDef() as parent:
                taken = _constructor(parent, home)
                if taken is not None:
                    return taken
    return None


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list)


def _fields(node: ast.ClassDef, module: str) -> Iterator[tuple[str, Option]]:
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                is_option = value is None or "init=False" not in ast.unparse(value)
                if is_option and "ClassVar" not in ast.unparse(annotation):
                    yield name, Option(_kind(annotation, module), value is None)


def _function(node: ast.FunctionDef, module: str, skip: int) -> tuple[dict[str, Option], bool]:
    """Return a function's keyword arguments after the first `skip`, and whether it takes **kwargs."""
    plain = node.args.args
    # Defaults belong to the last arguments, so pair from the end.
    with_default = {argument.arg for argument, _ in zip(reversed(plain), reversed(node.args.defaults), strict=False)}
    options: dict[str, Option] = {}
    for argument in plain[skip:]:
        options[argument.arg] = Option(_kind(argument.annotation, module), argument.arg not in with_default)
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        options[argument.arg] = Option(_kind(argument.annotation, module), default is None)
    return options, node.args.kwarg is not None


def _kind(node: ast.expr | None, module: str) -> Any:
    """Return an annotation as a type; `Any` if it does not restrict YAML values."""
    if node is None:
        return Any
    kind = _type(node, module)
    # An unknown type is ignored in a union. Alone it would reject every value, so accept any instead.
    return Any if kind is Unknown else kind


def _type(node: ast.expr, module: str) -> Any:
    match node:
        case ast.Constant(value=None):
            return NoneType
        case ast.Constant(value=str(text)):
            return _type(ast.parse(text, mode="eval").body, module)
        case ast.Name(id=name) if name in PLAIN:
            return PLAIN[name]
        case ast.Name(id=name) if name in LISTS:
            return list[Any]
        case ast.Name(id=name) if name in MAPPINGS:
            return dict
        case ast.Name(id=name):  # an alias, `Axis = Literal["step", "tokens"]`
            match _find(module, name):
                case home, (ast.Assign(value=value) | ast.AnnAssign(value=value)) if value:
                    return _type(value, home)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return Union[_type(left, module), _type(right, module)]  # noqa: UP007
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            if isinstance(inner, ast.Tuple):
                return _generic(name, inner.elts, module)
            return _generic(name, [inner], module)
    return Unknown


def _generic(name: str, items: list[ast.expr], module: str) -> Any:
    """Return the type `name[items]`."""
    if name == "Literal":
        return Literal[tuple(map(ast.literal_eval, items))]
    if name in MAPPINGS:
        return dict
    if name in ("Optional", "Union"):
        kinds = [_type(item, module) for item in items]
        if name == "Optional":
            kinds.append(NoneType)
        return Union[tuple(kinds)]  # noqa: UP007
    last = items[-1]
    any_length = isinstance(last, ast.Constant) and last.value is ...  # tuple[int, ...]
    if name in ("tuple", "Tuple") and not any_length:
        return tuple[tuple(_kind(item, module) for item in items)]
    return list[_kind(items[0], module)] if name in LISTS else Unknown
