"""Train and eval presets for images, and the frame around a user's own transform."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from datamodules.seeding.random_state import random_state, set_random_state

SMALL = 64  # images up to this side are shifted; larger ones are cropped at random scales


def train_preset(size: int, *, flip: bool = True) -> Callable[[Any], Any]:
    """Random crops and flips on a PIL image, giving ``size`` x ``size``.

    Up to 64 pixels: a random shift of an eighth (the CIFAR recipe of He et al., CVPR 2016); above:
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
    """The same fixed view each time: the whole small image, the middle of a large one."""
    from torchvision.transforms import v2

    if size <= SMALL:
        return _compose([v2.Resize((size, size), antialias=True)])
    # 256 for 224, as pre-trained nets are measured
    return _compose([v2.Resize(round(size * 256 / 224), antialias=True), v2.CenterCrop(size)])


def _compose(steps: list[Any]) -> Callable[[Any], Any]:
    from torchvision.transforms import v2

    composed: Callable[[Any], Any] = v2.Compose(steps)
    return composed


class ImageTransform:
    """Calls a transform on an image and brings the result into the form of a batch's row.

    The transform gets a PIL image, as torchvision's datasets give it, or, if that raises a
    TypeError or AttributeError and a tensor does not, a uint8 tensor (C, H, W) from then on.

    Args:
        transform: Any callable; None passes the image on.

    Raises:
        TypeError: If it cannot be called, or is a class in place of its instance.
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
            uint8 (C, H, W), which the finishing step normalises, or what else the transform gave:
            a float tensor is finished already and stays as it is.
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
            set_random_state(before)  # the draws of this sample are its own
            try:
                row = to_row(transform(to_row(image)))
            except Exception:
                row = None
            if row is None:  # not for want of a tensor: the first error is the true one
                raise
            self._takes = "tensor"
        return row


def to_row(image: Any) -> Any:
    """PIL image, NumPy image (H, W, C) or tensor to a plain tensor; the rest passes.

    float64, as NumPy divides, becomes float32: Apple's devices cannot hold it.
    """
    if isinstance(image, Image.Image):
        if image.mode in ("1", "P"):  # bits and numbers of colours are no levels
            image = image.convert("L" if image.mode == "1" else "RGB")
        image = np.array(image)
    if isinstance(image, np.ndarray):
        if image.ndim in (2, 3):
            image = np.atleast_3d(image).transpose(2, 0, 1)
        image = torch.from_numpy(np.ascontiguousarray(image))
    if isinstance(image, Tensor):
        # while torchvision is not imported nothing is of its kind; a spawned worker that reads no
        # images starts 1.3 s sooner without it
        tv_tensors = sys.modules.get("torchvision.tv_tensors")
        if tv_tensors is not None and isinstance(image, tv_tensors.TVTensor):
            image = image.as_subclass(Tensor)
        return image.float() if image.dtype == torch.float64 else image
    if isinstance(image, tuple) and hasattr(image, "_fields"):
        return type(image)(*map(to_row, image))
    if isinstance(image, list | tuple):  # several views of one image
        return type(image)(map(to_row, image))
    if isinstance(image, dict):
        return {key: to_row(value) for key, value in image.items()}
    return image
