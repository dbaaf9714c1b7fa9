"""Collate samples into a batch: stack, pad or list them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from .batch import Batch, PaddedInputs
from .nested import is_named_tuple, map_tensors


def collate_pairs(samples: Sequence[tuple[Any, Any]]) -> Batch:
    """Stack N samples ``(inputs, target)``.

    Args:
        samples: At least one. Inputs are tensors of equal shape, numbers, or nested tuples, lists
            and dicts of them; targets become int64 or float32.

    Raises:
        StackError: If the samples do not stack; names the field, the sizes and two samples.
    """
    inputs, targets = zip(*samples, strict=True)
    return Batch(collate_inputs(inputs), _target(targets))


def collate(samples: Sequence[Any]) -> Any:
    """Stack pairs into a :class:`Batch`, anything else field by field."""
    pairs = all(isinstance(s, tuple) and len(s) == 2 and not is_named_tuple(s) for s in samples)
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
            f"samples of type {type(samples[0]).__name__} cannot be collated: {error}; "
            "return tensors of one shape, or pass loader_options={'collate_fn': ...}"
        ) from error


def pad_pairs(samples: Sequence[Any], *, value: float = 0) -> Any:
    """Pad inputs of unequal size to the largest of the batch, in every dimension.

    Args:
        samples: N pairs ``(inputs, target)``, or inputs without a target; the inputs are tensors
            with the same number of dimensions and dtype.
        value: Padding value.

    Returns:
        :class:`Batch` with :class:`PaddedInputs`, or :class:`PaddedInputs` alone.

    Raises:
        StackError: If two samples differ in the number of dimensions or in dtype.
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
                "inputs",
                *(_shape(first), _shape(tensor)),
                (0, i),
                "return the same number of dimensions and dtype",
            )
    largest = [max(sizes) for sizes in zip(*(t.shape for t in tensors), strict=True)]
    values = first.new_full((len(tensors), *largest), value)
    mask = torch.zeros(values.shape, dtype=torch.bool)
    for row, row_mask, tensor in zip(values, mask, tensors, strict=True):
        filled = tuple(slice(size) for size in tensor.shape)
        row[filled] = tensor
        row_mask[filled] = True
    return PaddedInputs(values, mask)


def list_pairs(samples: Sequence[Any]) -> Any:
    """Return inputs and targets as lists, for torchvision's detection models.

    Returns:
        ``(inputs, targets)``, or a list of inputs if the samples have no target.
    """
    if isinstance(samples[0], tuple) and len(samples[0]) == 2:
        inputs, targets = zip(*samples, strict=True)
        return list(inputs), list(targets)
    return list(samples)


class StackError(ValueError):
    """Two samples of a batch differ in shape or dtype.

    Attributes:
        positions: Positions of the two samples in the batch.
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
        """Return the message with names for the two samples."""
        return (
            f"{self.field} of one batch differ: {one} has {self.one}, {other} has {self.other}; "
            f"{self.remedy}"
        )


def _shape(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _no_float64(batch: Any) -> Any:
    """Convert float64, which Python floats collate to and Apple's devices lack, to float32."""
    return map_tensors(lambda t: t.float() if t.dtype == torch.float64 else t, batch)


def _stack(tensors: Sequence[Tensor], field: str) -> Tensor:
    first = tensors[0]
    for i, tensor in enumerate(tensors):
        if tensor.shape != first.shape or tensor.dtype != first.dtype:
            remedy = "return one size and dtype in the transform, or pad them: collate='pad'"
            raise StackError(field, _shape(first), _shape(tensor), (0, i), remedy)
    if first.dtype == torch.uint8 and first.ndim == 3 and not first.is_contiguous():
        # decoders return channels last: normalization permutes, since it reads all pixels anyway
        return torch.stack([t.permute(1, 2, 0) for t in tensors]).permute(0, 3, 1, 2)
    return torch.stack(list(tensors))


def _target(targets: Sequence[Any]) -> Tensor:
    stacked: Tensor = (
        _stack(targets, "target")
        if all(isinstance(t, Tensor) for t in targets)
        else torch.as_tensor(targets)
    )
    # cross_entropy refuses int32, Apple's devices float64
    return stacked.float() if stacked.is_floating_point() else stacked.long()
