"""Prints of a user's own functions, so that a resumed epoch is not finished with other ones."""

from __future__ import annotations

import functools
import hashlib
import platform
import re
import types
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import nn

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
SETTINGS = (bool, int, float, complex, str, bytes, np.generic, torch.dtype, torch.Size)
OURS = __name__.split(".")[0]
# longer prints are kept as digests: a transform may hold a table
LONGEST = 2000


def print_transforms(parts: Mapping[str, Any]) -> dict[str, str]:
    """Print of each function that makes samples and batches, as plain text.

    Args:
        parts: By the name of the argument; None where it was not given.

    Returns:
        By the same names, and ``"versions"``: of what writes byte code and ``repr``.

    Example:
        >>> print_transforms({"load": len})["load"]
        'len'
    """
    return {
        "versions": _versions(),
        **{name: _short(printed(part)) for name, part in parts.items()},
    }


@functools.cache  # 2 ms, as long as an epoch of small texts
def _versions() -> str:
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{versions}, torchvision {version('torchvision')}"


def check_transforms(then: Mapping[str, str] | None, now: Mapping[str, str]) -> None:
    """Refuse to finish an epoch with other transforms than it was begun with.

    Prints of other versions of Python, torch or torchvision are not compared, nor are names that
    only one side has.

    Raises:
        RuntimeError: If a print differs; names the argument and both prints.
    """
    if then is None or then.get("versions") != now.get("versions"):
        return
    for name in now:
        if then.get(name, now[name]) != now[name]:
            before, after = _differing(then[name], now[name])
            raise RuntimeError(
                f"the checkpoint was written in the middle of an epoch with another "
                f"{name}: it was {before}, now it is {after}; resume with the same {name}, or from "
                "an end-of-epoch checkpoint"
            )


def printed(part: Any) -> str:
    """What tells one transform from another and is the same in every process.

    Functions by qualified name, code and defaults; torchvision's transforms by their ``repr``; a
    chain by its members. An object whose ``repr`` holds an address goes by its class and the code
    of its ``__call__``: what it holds besides is not known.
    """
    if part is None or isinstance(part, SETTINGS):
        return repr(part)
    if isinstance(part, functools.partial):
        settings: dict[Any, Any] = {**dict(enumerate(part.args)), **part.keywords}
        return f"partial({printed(part.func)}, {_members(settings)})"
    if isinstance(part, types.MethodType):
        return f"{printed(part.__self__)}.{printed(part.__func__)}"
    if isinstance(part, types.FunctionType):
        return _function(part)
    if isinstance(part, type | types.BuiltinFunctionType):
        return part.__qualname__
    if isinstance(part, Mapping):
        return f"{{{_members(part)}}}"
    if isinstance(part, list | tuple):
        return f"[{', '.join(map(printed, part))}]"
    return _object(part)


def _object(part: Any) -> str:
    name = type(part).__qualname__
    steps = getattr(part, "transforms", None)
    if isinstance(steps, list | tuple | nn.ModuleList):
        return f"{name}{printed(list(steps))}"
    if isinstance(part, nn.Module) and any(True for _ in part.children()):
        return f"{name}({_members(dict(part.named_children()))})"
    own = getattr(part, "lambd", None)  # torchvision's Lambda shows the name alone
    if isinstance(own, types.FunctionType):
        return f"{name}({printed(own)})"
    shown = repr(part)
    return shown if not ADDRESS.search(shown) else f"{name}{_call(type(part))}"


def _members(parts: Mapping[Any, Any]) -> str:
    return ", ".join(f"{key}={printed(value)}" for key, value in parts.items())


def _function(function: types.FunctionType) -> str:
    name = function.__qualname__
    if function.__module__.split(".")[0] == OURS:
        return name  # its code may change from release to release
    held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    values = [repr(value) for value in held if value is None or isinstance(value, SETTINGS)]
    return f"{name}[{_digest(_code(function.__code__), *values)}]"


def _call(cls: type) -> str:
    method = getattr(cls, "forward" if issubclass(cls, nn.Module) else "__call__", None)
    if not isinstance(method, types.FunctionType):
        return ""
    return f"[{_digest(_code(method.__code__))}]"


def _code(code: types.CodeType) -> str:
    """Instructions, names and constants; neither the file nor the line."""
    parts = [code.co_code.hex(), *code.co_names]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            parts.append(_code(constant))
        elif isinstance(constant, frozenset):  # its order changes from process to process
            parts.append(repr(sorted(map(repr, constant))))
        else:
            parts.append(repr(constant))
    return "\n".join(parts)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:200]}...[{_digest(text)}]"


def _differing(then: str, now: str) -> tuple[str, str]:
    """The two texts from a little before the first place at which they part."""
    place = next((i for i, (a, b) in enumerate(zip(then, now, strict=False)) if a != b), 0)
    start = max(0, place - 60)
    lead = "..." if start else ""
    first, second = (
        f"{lead}{text[start : place + 60]}{'...' if place + 60 < len(text) else ''}"
        for text in (then, now)
    )
    return " ".join(first.split()), " ".join(second.split())
