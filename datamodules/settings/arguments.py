"""Check names that a user passes, suggest the right one, and store arguments in checkpoints."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return ``"did you mean 'x'? "`` for the closest known name, or ``""``; case is ignored.

    Args:
        name: The unknown name.
        known: All known names.
        cutoff: Least similarity, 0 to 1, as in :func:`difflib.get_close_matches`.

    Example:
        >>> did_you_mean("Age ", ["age", "fare"])
        "did you mean 'age'? "
    """
    by_lower = {other.lower(): other for other in known}
    close = difflib.get_close_matches(str(name).lower(), by_lower, 1, cutoff)
    return f"did you mean {by_lower[close[0]]!r}? " if close else ""


def check_name(name: str, known: Iterable[str], kind: str) -> None:
    """Raise an error for an unknown name and suggest the closest known one.

    Raises:
        ValueError: If ``name`` is not known.

    Example:
        >>> check_name("shufle", ["shuffle", "sequential"], "sampler")
        Traceback (most recent call last):
        ValueError: unknown sampler 'shufle'; did you mean 'shuffle'? known: shuffle, sequential
    """
    names = list(known)
    if name not in names:
        hint = did_you_mean(name, names)
        raise ValueError(f"unknown {kind} {name!r}; {hint}known: {', '.join(names)}")


MAX_ITEMS = 1000  # a longer list is data, not a setting


def plain(value: Any) -> Any:
    """Convert an argument to str, int, float, bool, list, dict or None, for checkpoints.

    Paths become strings and NumPy numbers Python numbers. Lightning silently drops anything else:
    such a value is replaced by its name in angle brackets, see :func:`given_again`.

    Example:
        >>> plain({"root": Path("photos"), "transform": print})
        {'root': 'photos', 'transform': '<print>'}
    """
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple) and len(value) <= MAX_ITEMS:
        return [plain(v) for v in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return f"<{name_of(value)}>"


def name_of(value: Any) -> str:
    """Return the qualified name of a function or class; of any other value, that of its type.

    Example:
        >>> name_of(Path), name_of(Path("photos").exists), name_of(3)
        ('Path', 'Path.exists', 'int')
    """
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def storable(value: Any, name: str) -> Any:
    """Convert a fitted value to what a checkpoint loads with ``weights_only=True``.

    Raises:
        TypeError: If it is not a plain value, array or tensor; names the entry.
    """
    if isinstance(value, dict):
        return {str(k): storable(v, f"{name}[{k!r}]") for k, v in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [storable(v, f"{name}[{i}]") for i, v in enumerate(value)]
    if value is None or isinstance(value, str | int | float | bool | Tensor):
        return value
    raise TypeError(
        f"{name} is a {type(value).__name__}, which a checkpoint cannot store; return plain "
        "values, arrays or tensors from fit()"
    )


def given_again(value: Any, argument: str) -> Any:
    """Return ``value``, unless it is the name that a checkpoint stores in place of an object.

    Raises:
        ValueError: If ``value`` is such a name: the object must be passed again.
    """
    if isinstance(value, str) and value.startswith("<"):
        raise ValueError(
            f"the checkpoint was written with your own {argument}={value}, which it cannot "
            f"store; pass {argument}= again"
        )
    return value
