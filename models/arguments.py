"""What users and datamodules pass: names with the right one suggested, values made plain."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """``": did you mean 'x'?"`` for the closest known word, or nothing."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f": did you mean {close[0]!r}?" if close else ""


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise a ValueError that names the choices unless ``value`` is one of them."""
    if value not in choices:
        raise ValueError(
            f"{name} must be one of {', '.join(choices)}, got {value!r}"
            f"{did_you_mean(str(value), choices)}"
        )


def plain(value: Any) -> Any:
    """Nested lists, dicts and Python numbers: what a checkpoint loads with ``weights_only``."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
