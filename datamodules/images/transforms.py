"""Default train and eval transforms, and a wrapper for the user's own transform."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from datamodules.batches.nested import is_named_tuple
from datamodules.seeding.random_state import random_state, set_random_state

SMALL = 64  # images up to this side are shifted; larger ones are cropped at random scales


def train_preset(size: int, *, flip: bool = True) -> Callable[[Any], Any]:
    """Return random crops and flips that turn a PIL image into ``size`` x ``size``.

    Up to 64 pixels: a random shift by an eighth (the CIFAR recipe of He et al., CVPR 2016); above:
    a crop of random scale and ratio (Szegedy et al., CVPR 2015).
    """
    from torchvision.transforms import v2

    if size <= SMALL:
        shift = v2.RandomCrop(size, padding=max(1, size // 8))
        steps = [v2.Resize((size, size), antialias=True), shift]
    else:
        steps = [v2.RandomResizedCrop(size, antialias=True)]
    return _compose([*steps, v2.RandomHorizontalFlip()] if flip else steps)


def eval_preset(size: int) -> Callable[[Any], Any]:
    """Return a fixed view: the whole image up to 64 pixels, else its center crop."""
    from torchvision.transforms import v2

    if size <= SMALL:
        return _compose([v2.Resize((size, size), antialias=True)])
    # 256 for 224, as pre-trained models are evaluated
    return _compose([v2.Resize(round(size * 256 / 224), antialias=True), v2.CenterCrop(size)])


def _compose(steps: list[Any]) -> Callable[[Any], Any]:
    from torchvision.transforms import v2

    composed: Callable[[Any], Any] = v2.Compose(steps)
    return composed


class ImageTransform:
    """Call a transform on an image and convert the result to a row of a batch.

    The transform is called with a PIL image, as in torchvision's datasets. If that raises a
    TypeError or AttributeError and a tensor does not, it is called with uint8 tensors (C, H, W)
    from then on.

    Args:
        transform: Any callable; None returns the image.

    Raises:
        TypeError: If it is not callable, or is a class instead of an instance.

    Example:
        >>> ImageTransform(None)(Image.new("RGB", (4, 2))).shape
        torch.Size([3, 2, 4])
    """

    def __init__(self, transform: Callable[[Any], Any] | None) -> None:
        if isinstance(transform, type) or not (transform is None or callable(transform)):
            raise TypeError(f"a transform must be a callable, such as Flip(), got {transform!r}")
        self.transform = transform
        self._takes: Literal["pil", "tensor"] | None = None

    @property
    def takes_tensors(self) -> bool:
        """Whether the transform was found to take tensors only."""
        return self._takes == "tensor"

    def __call__(self, image: Image.Image) -> Any:
        """Transform one image.

        Returns:
            uint8 (C, H, W), which is normalized on the batch, or any other result of the transform:
            a float tensor is not normalized again.
        """
        if self.transform is None:
            return to_row(image)
        if self._takes == "tensor":
            return to_row(self.transform(to_row(image)))
        if self._takes == "pil":
            return to_row(self.transform(image))
        return self._first(image, self.transform)

    def _first(self, image: Image.Image, transform: Callable[[Any], Any]) -> Any:
        before = random_state()
        try:
            row = to_row(transform(image))
            self._takes = "pil"
        except (TypeError, AttributeError):
            set_random_state(before)  # the second try draws the same numbers
            try:
                row = to_row(transform(to_row(image)))
            except Exception:
                row = None
            if row is None:  # a tensor does not help: the first error is the cause
                raise
            self._takes = "tensor"
        return row


def to_row(image: Any) -> Any:
    """Convert a PIL image, NumPy image (H, W, C) or tensor to a plain tensor.

    Other values are returned unchanged. float64, NumPy's default, becomes float32: Apple's devices
    do not support it.
    """
    if isinstance(image, Image.Image):
        if image.mode in ("1", "P"):  # bits and palette indices are not levels
            image = image.convert("L" if image.mode == "1" else "RGB")
        image = np.array(image)
    if isinstance(image, np.ndarray):
        if image.ndim in (2, 3):
            image = np.atleast_3d(image).transpose(2, 0, 1)
        image = torch.from_numpy(np.ascontiguousarray(image))
    if isinstance(image, Tensor):
        # without torchvision imported no value is a TVTensor; a spawned worker without images
        # starts 1.3 s sooner
        tv_tensors = sys.modules.get("torchvision.tv_tensors")
        if tv_tensors is not None and isinstance(image, tv_tensors.TVTensor):
            image = image.as_subclass(Tensor)
        return image.float() if image.dtype == torch.float64 else image
    if is_named_tuple(image):
        return type(image)(*map(to_row, image))
    if isinstance(image, list | tuple):  # several views of one image
        return type(image)(map(to_row, image))
    if isinstance(image, dict):
        return {key: to_row(value) for key, value in image.items()}
    return image
