"""Samples to a batch; no randomness, no file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from .batch import Batch


def collate_pairs(samples: Sequence[tuple[Any, Any]]) -> Batch:
    """Stack N samples ``(inputs, target)``.

    Args:
        samples: At least one; tensors of equal shape, numbers, or nested tuples, lists and dicts
            of them. Integer targets become int64 and floats float32.

    Returns:
        :class:`Batch`.

    Raises:
        ValueError: If the samples do not stack; names the field, the sizes and two samples.
    """
    inputs, targets = zip(*samples, strict=True)
    return Batch(collate_inputs(inputs), _target(targets))


def collate(samples: Sequence[Any]) -> Any:
    """Stack pairs to a :class:`Batch`, anything else field by field."""
    pairs = all(isinstance(s, tuple) and len(s) == 2 and not hasattr(s, "_fields") for s in samples)
    return collate_pairs(samples) if pairs else collate_inputs(samples)


def collate_inputs(samples: Sequence[Any]) -> Any:
    """Stack N inputs without a target, for prediction.

    Raises:
        ValueError: If the samples do not stack.
    """
    if all(isinstance(s, Tensor) for s in samples):
        return _stack(samples, "inputs")
    try:
        return _no_float64(default_collate(list(samples)))
    except (TypeError, RuntimeError) as error:
        raise ValueError(
            f"samples of type {type(samples[0]).__name__} do not make a batch: {error}; "
            "return tensors of one shape, or pass loader_options={'collate_fn': ...}"
        ) from error


def _no_float64(batch: Any) -> Any:
    """Python floats collate to float64, which Apple's devices cannot hold."""
    if isinstance(batch, Tensor):
        return batch.float() if batch.dtype == torch.float64 else batch
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(_no_float64, batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map(_no_float64, batch))
    if isinstance(batch, dict):
        return {key: _no_float64(value) for key, value in batch.items()}
    return batch


def _stack(tensors: Sequence[Tensor], field: str) -> Tensor:
    first = tensors[0]
    for i, tensor in enumerate(tensors):
        if tensor.shape != first.shape or tensor.dtype != first.dtype:
            raise ValueError(
                f"{field} of one batch differ: sample 0 is {tuple(first.shape)} {first.dtype}, "
                f"sample {i} is {tuple(tensor.shape)} {tensor.dtype}; give them one size and dtype "
                "in the transform, or pass loader_options={'collate_fn': ...}"
            )
    return torch.stack(list(tensors))


def _target(targets: Sequence[Any]) -> Tensor:
    stacked: Tensor = (
        _stack(targets, "target")
        if all(isinstance(t, Tensor) for t in targets)
        else torch.as_tensor(targets)
    )
    # int32 is refused by cross_entropy, float64 by Apple's devices
    return stacked.float() if stacked.is_floating_point() else stacked.long()
