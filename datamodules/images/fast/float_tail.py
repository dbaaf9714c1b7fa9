"""Apply the last steps of a transform, to float and ``Normalize``, once for the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import transforms as v1
from torchvision.transforms import v2

from datamodules.batches.normalize import Normalizer

from .crop_head import flatten, form_after

NORMALIZE = (v1.Normalize, v2.Normalize)
TO_TENSOR = (v1.ToTensor, v2.ToTensor)
KEEP_BYTES = (v2.ToImage, v2.PILToTensor, v1.PILToTensor)
KEEP_FLOATS = (v2.ToPureTensor, v2.ToImage, v2.Identity)


class FloatTail:
    """Conversion to float and ``Normalize``, applied to the batch with the same bits.

    Args:
        steps: The user's own steps, for a sample that is not an 8-bit image of these channels.
        normalizer: Does the same to uint8 batches.
    """

    def __init__(self, steps: Sequence[Any], normalizer: Normalizer) -> None:
        self.steps, self.normalizer = list(steps), normalizer
        self.converts = any(type(step) in (*TO_TENSOR, *KEEP_BYTES) for step in self.steps)

    def can_wait(self, view: Any) -> bool:
        """Return whether the normalizer can replace the steps for this image."""
        if isinstance(view, Image.Image):
            return self.converts and view.mode == ("RGB" if len(self.normalizer.mean) == 3 else "L")
        if not isinstance(view, Tensor) or type(self.steps[0]) in TO_TENSOR:  # it refuses tensors
            return False
        return self.normalizer.fits(view)

    def __call__(self, view: Any) -> Any:
        """Call the user's steps on a sample."""
        for step in self.steps:
            view = step(view)
        return view


def split_float_tail(transform: Any, channels: int) -> tuple[list[Any], FloatTail] | None:
    """Split a transform into its steps and a float tail.

    Args:
        transform: A callable on a PIL image.
        channels: Of the images, for a ``ToTensor`` without ``Normalize``.

    Returns:
        The steps before the tail, and the tail; None if the transform does not end with a
        conversion of 8-bit pixels to float32 from 0 to 1, with or without ``Normalize`` after it.

    Example:
        >>> steps, tail = split_float_tail(v1.Compose([v1.CenterCrop(8), v1.ToTensor()]), 3)
        >>> steps, tail.normalizer.mean
        ([CenterCrop(size=(8, 8))], (0.0, 0.0, 0.0))
    """
    steps = list(flatten(transform))
    end, normalize = len(steps), None
    while end and type(steps[end - 1]) in (*NORMALIZE, *KEEP_FLOATS):
        if type(steps[end - 1]) in NORMALIZE:
            if normalize is not None:
                return None
            normalize = steps[end - 1]
        end -= 1
    scale = _scale(steps[end - 1]) if end else None
    if scale is None:
        return None
    begin = end - 1
    # such as ToImage before ToDtype
    while begin and form_after(steps[begin - 1], "pil") is not None:
        begin -= 1
    if type(steps[end - 1]) not in TO_TENSOR and not _gives_tensor(steps[: end - 1]):
        return None  # a PIL image would pass through the conversion unchanged
    mean, std = ([0.0] * channels, [1.0] * channels)
    if normalize is not None:
        mean, std = normalize.mean, normalize.std
    try:
        normalizer = Normalizer([float(v) for v in mean], [float(v) for v in std], scale=scale)
    except (TypeError, ValueError):  # left to the user's step, which refuses or broadcasts it
        return None
    return steps[:begin], FloatTail(steps[begin:], normalizer)


def _scale(step: Any) -> Any:
    """Return how a conversion scales 8 bits to 0..1; None if it does not."""
    kind = type(step)
    if kind in TO_TENSOR:
        return "divide" if torch.get_default_dtype() == torch.float32 else None
    if kind is v1.ConvertImageDtype:
        return "divide" if step.dtype == torch.float32 else None
    is_float = kind is v2.ConvertImageDtype or (kind is v2.ToDtype and step.scale)
    return "multiply" if is_float and step.dtype == torch.float32 else None


def _gives_tensor(steps: Sequence[Any]) -> bool:
    """Return whether steps that begin with a PIL image always end with a tensor."""
    for step in reversed(steps):
        kind = type(step)
        if kind in KEEP_BYTES:
            return True
        known = kind.__module__.startswith("torchvision.transforms.")
        if not known or kind in (v1.ToPILImage, v2.ToPILImage, v1.Lambda, v2.Lambda):
            return False
    return False
