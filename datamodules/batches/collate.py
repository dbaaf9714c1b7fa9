"""Samples to a batch; no randomness, no file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from .batch import Batch, PaddedInputs


def collate_pairs(samples: Sequence[tuple[Any, Any]]) -> Batch:
    """Stack N samples ``(inputs, target)``.

    Args:
        samples: At least one; tensors of equal shape, numbers, or nested tuples, lists and dicts
            of them. Integer targets become int64 and floats float32.

    Returns:
        :class:`Batch`.

    Raises:
        StackError: If the samples do not stack; names the field, the sizes and two samples.
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
        return _no_float64(_stack(samples, "inputs"))
    try:
        return _no_float64(default_collate(list(samples)))
    except (TypeError, RuntimeError) as error:
        raise ValueError(
            f"samples of type {type(samples[0]).__name__} do not make a batch: {error}; "
            "return tensors of one shape, or pass loader_options={'collate_fn': ...}"
        ) from error


def pad_pairs(samples: Sequence[Any], *, value: float = 0) -> Any:
    """Pad inputs of unequal size to the longest of the batch, in any number of dimensions.

    Args:
        samples: N pairs ``(inputs, target)``, or bare inputs; the inputs are tensors with the same
            number of dimensions and dtype.
        value: Written where a sample has ended.

    Returns:
        :class:`Batch` with :class:`PaddedInputs`, or :class:`PaddedInputs` alone.

    Raises:
        StackError: If two samples differ in dimensions or dtype.
    """
    if isinstance(samples[0], Tensor):
        return pad(samples, value=value)
    inputs, targets = zip(*samples, strict=True)
    return Batch(pad(inputs, value=value), _target(targets))


def pad(tensors: Sequence[Tensor], *, value: float = 0) -> PaddedInputs:
    """Pad N tensors to one shape.

    Example:
        >>> padded = pad([torch.tensor([1, 2, 3]), torch.tensor([4])])
        >>> padded.values.tolist(), padded.mask.tolist()
        ([[1, 2, 3], [4, 0, 0]], [[True, True, True], [True, False, False]])
    """
    first = tensors[0]
    for i, tensor in enumerate(tensors):
        if tensor.ndim != first.ndim or tensor.dtype != first.dtype:
            raise StackError(
                "inputs", _said(first), _said(tensor), (0, i), "give them one number of dimensions"
            )
    longest = [max(sizes) for sizes in zip(*(t.shape for t in tensors), strict=True)]
    values = first.new_full((len(tensors), *longest), value)
    mask = torch.zeros(values.shape, dtype=torch.bool)
    for row, there, tensor in zip(values, mask, tensors, strict=True):
        part = tuple(slice(size) for size in tensor.shape)
        row[part] = tensor
        there[part] = True
    return PaddedInputs(values, mask)


def list_pairs(samples: Sequence[Any]) -> Any:
    """Keep inputs and targets as lists, as torchvision's detection models take them.

    Returns:
        ``(inputs, targets)``, or a list of bare inputs.
    """
    if isinstance(samples[0], tuple) and len(samples[0]) == 2:
        inputs, targets = zip(*samples, strict=True)
        return list(inputs), list(targets)
    return list(samples)


class StackError(ValueError):
    """Two samples of a batch do not fit together.

    Attributes:
        positions: The two samples' places in the batch.
    """

    def __init__(
        self, field: str, one: str, other: str, positions: tuple[int, int], remedy: str
    ) -> None:
        super().__init__(field, one, other, positions, remedy)
        self.field, self.one, self.other, self.remedy = field, one, other, remedy
        self.positions = positions

    def __str__(self) -> str:
        return self.named(*(f"sample {i} of the batch" for i in self.positions))

    def named(self, one: str, other: str) -> str:
        """The message with names for the two samples."""
        return (
            f"{self.field} of one batch differ: {one} has {self.one}, {other} has {self.other}; "
            f"{self.remedy}"
        )


def _said(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


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
            remedy = "give them one size and dtype in the transform, or pad them: collate='pad'"
            raise StackError(field, _said(first), _said(tensor), (0, i), remedy)
    if first.dtype == torch.uint8 and first.ndim == 3 and not first.is_contiguous():
        # images as decoders leave them, channels last: turned by the finishing step, which reads
        # them once more anyway
        return torch.stack([t.permute(1, 2, 0) for t in tensors]).permute(0, 3, 1, 2)
    return torch.stack(list(tensors))


def _target(targets: Sequence[Any]) -> Tensor:
    stacked: Tensor = (
        _stack(targets, "target")
        if all(isinstance(t, Tensor) for t in targets)
        else torch.as_tensor(targets)
    )
    # int32 is refused by cross_entropy, float64 by Apple's devices
    return stacked.float() if stacked.is_floating_point() else stacked.long()
