"""Walk over the tensors of a batch in nested tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Yield every tensor of a nested value, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_of(part)


def map_tensors(function: Callable[[Tensor], Any], value: Any) -> Any:
    """Apply a function to every tensor of a nested value; all else stays as it is.

    Example:
        >>> import torch
        >>> map_tensors(len, {"ids": torch.zeros(2, 3), "pair": (torch.zeros(4), "b")})
        {'ids': 2, 'pair': (4, 'b')}
    """
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, list | tuple):
        parts = [map_tensors(function, part) for part in value]
        return type(value)(*parts) if is_named_tuple(value) else type(value)(parts)
    if isinstance(value, dict):
        return {key: map_tensors(function, part) for key, part in value.items()}
    return value


def is_named_tuple(value: Any) -> bool:
    """Return whether a value is one sample with named fields, not a pair of input and target."""
    return isinstance(value, tuple) and hasattr(value, "_fields")
