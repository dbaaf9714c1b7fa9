"""Find classes and functions by name for the command line, and list their arguments."""

from __future__ import annotations

import importlib
import inspect
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L

import datamodules
import models
from datamodules import samples
from datamodules.settings.arguments import did_you_mean

BASES: dict[str, type] = {"data": L.LightningDataModule, "model": L.LightningModule}


class UsageError(Exception):
    """A wrong option or value: the script ends with exit code 2 and no traceback."""


def known_names(kind: str) -> dict[str, str]:
    """Return short names and import paths of this project's classes and sample sets.

    Args:
        kind: ``"data"`` or ``"model"``.
    """
    package = datamodules if kind == "data" else models
    classes = {name: getattr(package, name) for name in package.__all__ if name != "DataModule"}
    names = {name: f"{package.__name__}.{name}" for name, c in classes.items() if is_class(kind, c)}
    if kind == "data":
        for name, value in vars(samples).items():
            if inspect.isfunction(value) and name[0] != "_" and makes(kind, value):
                names[name] = f"{samples.__name__}.{name}"
    return names


def resolve(kind: str, name: str) -> str:
    """Return the import path of a class or function given by short name or by import path.

    Raises:
        UsageError: If there is none; lists the known names.
    """
    known = known_names(kind)
    by_lower = {short.lower(): path for short, path in known.items()}
    if name.lower() in by_lower or name in known.values():
        return by_lower.get(name.lower(), name)
    package, _, short = name.rpartition(".")
    reason = ""
    if package:
        try:
            value = import_path(name)
        except Exception as error:  # importing runs the user's module
            ours = package.partition(".")[0] in ("datamodules", "models")
            reason = "" if ours else f" ({type(error).__name__}: {error})"
        else:
            if is_class(kind, value) or makes(kind, value):
                return name
            raise UsageError(
                f"--{kind} {name} is not a {BASES[kind].__name__}, nor a function annotated to "
                "return one"
            )
    raise UsageError(
        f"unknown --{kind} {name}{reason}; {did_you_mean(short, known)}known: {', '.join(known)}, "
        "or the import path of your own"
    )


def is_class(kind: str, value: Any) -> bool:
    """Whether a value is a datamodule or model class."""
    return inspect.isclass(value) and issubclass(value, BASES[kind])


def makes(kind: str, value: Any) -> bool:
    """Whether a value is a function annotated to return a datamodule or model."""
    return inspect.isfunction(value) and is_class(kind, returned_class(value))


def returned_class(function: Callable[..., Any]) -> Any:
    """Return the class that a function is annotated to return, or None."""
    return _type_hints(function).get("return")


def _type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError:  # a name imported for type checkers only
        return {}


def allow_local_imports() -> None:
    """Let modules in the working directory be imported."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))


def import_path(path: str) -> Any:
    """Import ``package.module.name``."""
    allow_local_imports()
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def argument_names(target: Any) -> list[str]:
    """Return the argument names of a class and its bases, or of a function and what it returns.

    The keys of a TypedDict argument follow it: ``split_options``, ``split_options.group``, ...
    """
    functions = _functions(target)
    if inspect.isfunction(target) and inspect.isclass(made := returned_class(target)):
        functions += _functions(made)
    names: list[str] = []
    for function in functions:
        hints = _type_hints(function)
        for name in _parameters(function):
            kinds = (hints.get(name), *typing.get_args(hints.get(name)))
            keys = [key for k in kinds if typing.is_typeddict(k) for key in k.__annotations__]
            names += [name, *(f"{name}.{key}" for key in keys)]
    return list(dict.fromkeys(names))


def required_arguments(target: Any) -> list[str]:
    """Return the names of a class's arguments that have no default."""
    parameters: dict[str, inspect.Parameter] = {}
    for function in reversed(_functions(target)):
        parameters |= _parameters(function)
    return [name for name, p in parameters.items() if p.default is p.empty]


def _functions(target: Any) -> list[Callable[..., Any]]:
    """Return a function, or the ``__init__`` of a class and of its bases."""
    if not inspect.isclass(target):
        return [target]
    return [vars(cls)["__init__"] for cls in target.__mro__[:-1] if "__init__" in vars(cls)]


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the named parameters of a function."""
    named = inspect.signature(function).parameters.items()
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {name: p for name, p in named if name != "self" and p.kind not in variadic}
