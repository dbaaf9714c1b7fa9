"""Classes and functions by name: which there are, and which one a typo meant."""

from __future__ import annotations

import difflib
import importlib
import inspect
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning as L
from jsonargparse import ArgumentParser

import datamodules
import models
from datamodules import samples

BASES: dict[str, type] = {"data": L.LightningDataModule, "model": L.LightningModule}


class UsageError(Exception):
    """What was asked for cannot be: exit code 2 and no traceback."""


def known_names(kind: str) -> dict[str, str]:
    """Import path of each class that may be given by its bare name, and of each sample set.

    Args:
        kind: ``"data"`` or ``"model"``.
    """
    package = datamodules if kind == "data" else models
    found = {}
    for name in package.__all__:
        value = getattr(package, name)
        if fits(kind, value) and name != "DataModule":
            found[name] = f"{package.__name__}.{name}"
    if kind == "data":
        for name, value in vars(samples).items():
            if inspect.isfunction(value) and name[0] != "_" and fits(kind, made_by(value)):
                found[name] = f"{samples.__name__}.{name}"
    return found


def closest(name: str, known: Sequence[str]) -> str:
    """The known name that is most like ``name``, or an empty string.

    A part of a known name counts nearly as much as the whole: ``epohcs`` is ``max_epochs``. Of
    equals the first is taken.
    """

    def likeness(candidate: str) -> float:
        tail = candidate.rpartition(".")[2]
        parts = [0.95 * _ratio(name, part) for part in tail.split("_") if len(part) > 2]
        return max(_ratio(name, candidate), 0.99 * _ratio(name, tail), *parts, 0.0)

    best = max(known, key=likeness, default="")
    return best if best and likeness(best) >= 0.6 else ""


def _ratio(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a.lower(), b.lower()).ratio()


def resolve(kind: str, name: str) -> str:
    """Import path of a class or function given by bare name or by import path.

    Raises:
        UsageError: If there is none; it lists the known names.
    """
    known = known_names(kind)
    exact = {short.lower(): path for short, path in known.items()}
    if name.lower() in exact:
        return exact[name.lower()]
    if name in known.values() or Path(name).is_file() or name.startswith("{"):
        return name  # a YAML file and JSON are jsonargparse's matter
    why = ""
    if "." in name:
        try:
            value = import_path(name)
        except Exception as error:  # a module of the user's runs here
            why = f" ({type(error).__name__}: {error})"
        else:
            if fits(kind, value) or (inspect.isfunction(value) and fits(kind, made_by(value))):
                return name
            raise UsageError(
                f"--{kind} {name} is no {BASES[kind].__name__}, nor a function that is annotated "
                "to return one"
            )
    if "no module named" in why.lower() and name.partition(".")[0] in ("datamodules", "models"):
        why = ""
    near = closest(name.rpartition(".")[2], list(known))
    hint = f"did you mean {near}? " if near else ""
    raise UsageError(
        f"unknown --{kind} {name}{why}; {hint}known: {', '.join(known)}, or the import path of "
        "your own"
    )


def fits(kind: str, value: Any) -> bool:
    """Whether a value is a class of datamodules, or of models."""
    return inspect.isclass(value) and issubclass(value, BASES[kind])


def made_by(function: Callable[..., Any]) -> Any:
    """The class that a function is annotated to return, or None."""
    try:
        return typing.get_type_hints(function).get("return")
    except NameError:  # a name that only type checkers import
        return None


def import_path(path: str) -> Any:
    """Import ``package.module.name``."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def argument_names(target: Any) -> list[str]:
    """Names of a class's arguments and of its bases', or of a function's and of what it makes."""
    made = made_by(target) if inspect.isfunction(target) else None
    return list({**_parameters(target), **(_parameters(made) if inspect.isclass(made) else {})})


def required_arguments(target: Any) -> list[str]:
    """Names of a class's arguments that have no default."""
    return [name for name, p in _parameters(target).items() if p.default is p.empty]


def passed_on(target: Any) -> list[str]:
    """Arguments that a function hands on, by ``**options``, unseen by the command line's parser.

    The parser follows ``return Source(path, **options)``, and not ``**{"mode": "L", **options}``.
    What is keyword-only in the class that is made can be handed on.
    """
    made = made_by(target) if inspect.isfunction(target) else None
    kinds = {p.kind for p in inspect.signature(target).parameters.values()}
    if not inspect.isclass(made) or inspect.Parameter.VAR_KEYWORD not in kinds:
        return []
    seen = ArgumentParser().add_function_arguments(target, fail_untyped=False)
    keywords = [name for name, p in _parameters(made).items() if p.kind == p.KEYWORD_ONLY]
    return [name for name in keywords if name not in seen]


def _parameters(target: Any) -> dict[str, inspect.Parameter]:
    """Named parameters of a function, or of a class and its bases."""
    functions = [target]
    if inspect.isclass(target):
        functions = [vars(c)["__init__"] for c in target.__mro__[:-1] if "__init__" in vars(c)]
    found: dict[str, inspect.Parameter] = {}
    for function in functions:
        for name, parameter in inspect.signature(function).parameters.items():
            named = parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
            if named and name != "self":
                found.setdefault(name, parameter)
    return found
