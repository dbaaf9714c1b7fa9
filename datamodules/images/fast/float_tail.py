"""A Compose's last steps, taken out of each sample and done once for the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import transforms as v1
from torchvision.transforms import v2

from datamodules.batches.normalize import Normalizer

from .crop_head import flat, form_after

NORMALIZE = (v1.Normalize, v2.Normalize)
TO_TENSOR = (v1.ToTensor, v2.ToTensor)
KEEP_BYTES = (v2.ToImage, v2.PILToTensor, v1.PILToTensor)
KEEP_FLOATS = (v2.ToPureTensor, v2.ToImage, v2.Identity)


class Lifted:
    """Conversion to float and ``Normalize``, done by the finishing step to the same bits.

    Args:
        steps: The user's own steps, for a sample that is no 8-bit image of these channels.
        normalizer: Does the same to uint8 batches.
    """

    def __init__(self, steps: Sequence[Any], normalizer: Normalizer) -> None:
        self.steps, self.normalizer = list(steps), normalizer
        self.converts = any(type(step) in (*TO_TENSOR, *KEEP_BYTES) for step in self.steps)

    def takes(self, view: Any) -> bool:
        """Whether the finishing step can do it to what the steps before gave."""
        if isinstance(view, Image.Image):
            return self.converts and view.mode == ("RGB" if len(self.normalizer.mean) == 3 else "L")
        if not isinstance(view, Tensor) or type(self.steps[0]) in TO_TENSOR:  # it refuses tensors
            return False
        return self.fits(view)

    def fits(self, pixels: Tensor) -> bool:
        """Whether the finishing step knows a tensor for an image."""
        return (
            pixels.dtype == torch.uint8
            and pixels.ndim == 3
            and len(pixels) == len(self.normalizer.mean)
        )

    def one_by_one(self, view: Any) -> Any:
        """What the user's steps themselves make of a sample."""
        for step in self.steps:
            view = step(view)
        return view


def lifted(transform: Any, channels: int) -> tuple[list[Any], Lifted] | None:
    """Part a transform in steps and a lifted end.

    Args:
        transform: What is to be called with a PIL image.
        channels: Of the images, for a ``ToTensor`` without ``Normalize``.

    Returns:
        The steps before the end, and the end; None where it does not end in a conversion of 8-bit
        pixels to float32 on the scale 0 to 1, with or without ``Normalize`` after it.

    Example:
        >>> steps, end = lifted(v1.Compose([v1.CenterCrop(8), v1.ToTensor()]), 3)
        >>> steps, end.normalizer.mean
        ([CenterCrop(size=(8, 8))], (0.0, 0.0, 0.0))
    """
    steps = list(flat(transform))
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
        return None  # a PIL image would pass through the conversion as it is
    normalizer = _finish(normalize, channels, scale)
    return None if normalizer is None else (steps[:begin], Lifted(steps[begin:], normalizer))


def _finish(normalize: Any, channels: int, scale: Any) -> Normalizer | None:
    if normalize is None:
        return Normalizer([0.0] * channels, [1.0] * channels, scale=scale)
    mean, std = normalize.mean, normalize.std
    try:
        return Normalizer([float(v) for v in mean], [float(v) for v in std], scale=scale)
    except (TypeError, ValueError):  # for the user's step to refuse, or to broadcast
        return None


def _scale(step: Any) -> Any:
    """How a conversion brings 8 bits to 0..1; None where it does not."""
    kind = type(step)
    if kind in TO_TENSOR:
        return "divide" if torch.get_default_dtype() == torch.float32 else None
    if kind is v1.ConvertImageDtype:
        return "divide" if step.dtype == torch.float32 else None
    is_float = kind is v2.ConvertImageDtype or (kind is v2.ToDtype and step.scale)
    return "multiply" if is_float and step.dtype == torch.float32 else None


def _gives_tensor(steps: Sequence[Any]) -> bool:
    """Whether steps that begin with a PIL image are sure to end with a tensor."""
    for step in reversed(steps):
        kind = type(step)
        if kind in KEEP_BYTES:
            return True
        known = kind.__module__.startswith("torchvision.transforms.")
        if not known or kind in (v1.ToPILImage, v2.ToPILImage, v1.Lambda, v2.Lambda):
            return False
    return False
