"""Draw the crop of a transform before the image is decoded, and decode only what it needs.

The head of a ``Compose`` is its leading ``RandomResizedCrop``, resize, crop and flips. Their random
numbers are drawn first, in the order of the ``Compose`` and as torchvision's own methods draw them.
The box is then read from the image and resized in 8 bits; the steps of the tail get the same
input as without the head. Steps are matched by their exact type: a subclass, an unknown
interpolation or any other first step means no head, and the ``Compose`` is called as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms import transforms as v1

from datamodules.images.regions import Boxes, Pixels
from datamodules.seeding.thread_rng import generator_in_use, without_modes

from .crop_params import Box, box_of, draws_as_torchvision, resized_crop_box

Form = Literal["pil", "image", "tensor"]  # PIL, tv_tensors.Image, plain tensor

CHAINS = (v1.Compose, v2.Compose, torch.nn.Sequential)
RESIZED_CROPS = (v1.RandomResizedCrop, v2.RandomResizedCrop)
RESIZES = (v1.Resize, v2.Resize)
CENTER_CROPS = (v1.CenterCrop, v2.CenterCrop)
CROPS = (*CENTER_CROPS, v1.RandomCrop, v2.RandomCrop)
FLIPS = {
    v1.RandomHorizontalFlip: -1,
    v2.RandomHorizontalFlip: -1,
    v1.RandomVerticalFlip: -2,
    v2.RandomVerticalFlip: -2,
}
SMOOTH = {
    **{kind: kind.value for kind in (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)},
    **{"bilinear": "bilinear", "bicubic": "bicubic", 2: "bilinear", 3: "bicubic"},
}


class Window(NamedTuple):
    """The result of the head's random numbers.

    Attributes:
        box: Top, left, height, width in the image.
        size: Height and width that the box is resized to.
        crop: Top, left, height, width in the resized box; None: all of it.
        flips: Dimensions of (C, H, W) that are flipped.
    """

    box: Box
    size: tuple[int, int]
    crop: Box | None
    flips: list[int]


class Head:
    """The head of a transform, and its tail.

    Args:
        resize: A resized crop, a resize or None.
        crop: A crop after ``resize``, or None.
        flips: Flips after both.
        form: The form of the image that the tail is given.
        tail: The steps after the head.
    """

    def __init__(
        self,
        resize: Any,
        crop: Any,
        flips: Sequence[Any],
        form: Form,
        tail: Sequence[Callable[[Any], Any]],
    ) -> None:
        self.resize, self.crop, self.flips = resize, crop, list(flips)
        self.form, self.tail = form, list(tail)

    def __call__(self, image: Boxes) -> Tensor:
        """Draw the random numbers, read the box, resize, crop and flip.

        Returns:
            (C, H, W) uint8 in memory of its own, channels last.
        """
        window = self.draw(image.height, image.width)
        pixels = image.box(*window.box)
        with without_modes():
            mode = "bilinear" if self.resize is None else SMOOTH[self.resize.interpolation]
            view = _resized(pixels, window.size, mode)
            if window.crop is not None:
                view = _cropped(view, window.crop)
            return view.flip(window.flips) if window.flips else view

    def draw(self, height: int, width: int) -> Window:
        """Draw all random numbers of the head for an image of H x W pixels.

        Raises:
            ValueError: If a random crop is larger than the image, as in torchvision.
        """
        box, crop = (0, 0, height, width), None
        if type(self.resize) in RESIZED_CROPS:
            box = resized_crop_box(self.resize, height, width)
            size = (self.resize.size[0], self.resize.size[-1])
        elif self.resize is not None:
            size = resized_size(height, width, self.resize.size)
            crop = None if self.crop is None else self._crop_box(*size)
        else:
            crop = self._crop_box(height, width)
            if _is_inside(crop, height, width):  # only the crop is read
                box, crop = crop, None
            size = box[2:]
        return Window(box, size, crop, self._draw_flips() if self.flips else [])

    @property
    def passes_generators(self) -> bool:
        """Whether every draw is given its generator, unlike in torchvision's own methods."""
        kind: Any = type(self.resize)
        if kind in RESIZED_CROPS:
            return draws_as_torchvision(kind)
        return self.crop is None or type(self.crop) in CENTER_CROPS

    def apply_tail(self, pixels: Tensor) -> Any:
        """Call the steps of the tail on the result of the head, in the form they expect."""
        view: Any = pixels
        if self.form == "pil":
            array = pixels.permute(1, 2, 0).contiguous().numpy()
            view = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
        elif self.form == "image":
            view = tv_tensors.Image(pixels)
        for step in self.tail:
            view = step(view)
        return view

    def _draw_flips(self) -> list[int]:
        generator, draw = generator_in_use(), torch.empty(1)
        with without_modes():
            # the number of torch.rand(1), compared in float32 as torch does, in half the time
            return [
                FLIPS[type(step)]
                for step in self.flips
                if draw.uniform_(generator=generator).item() < np.float32(step.p)
            ]

    def _crop_box(self, height: int, width: int) -> Box:
        """Return the crop; a center crop larger than the image has a negative top or left."""
        step = self.crop
        high, wide = step.size[0], step.size[-1]
        if type(step) in CENTER_CROPS:
            return _centered(height, high), _centered(width, wide), high, wide
        image = torch.empty(1, dtype=torch.uint8).expand(3, height, width)
        if type(step) is v1.RandomCrop:
            top, left, high, wide = step.get_params(image, step.size)
            return top, left, high, wide
        return box_of(step.make_params([image]))


def split_head(steps: Sequence[Any]) -> Head | None:
    """Split the steps of a transform into head and tail.

    Args:
        steps: The first one is called with a PIL image.

    Returns:
        None if the first steps are not a resize or crop of a known exact type.

    Example:
        >>> head = split_head([v2.RandomResizedCrop(8), v2.RandomHorizontalFlip(), v2.ToImage()])
        >>> len(head.flips), head.form, head.tail
        (1, 'image', [])
        >>> split_head([v2.RandomRotation(10)]) is None
        True
    """
    at, form = _skip(steps, 0, "pil")
    resize = crop = None
    if at < len(steps) and type(steps[at]) in (*RESIZED_CROPS, *RESIZES) and _is_plain(steps[at]):
        resize = steps[at]
        at, form = _skip(steps, at + 1, form)
    if type(resize) not in RESIZED_CROPS and at < len(steps) and _is_plain_crop(steps[at]):
        crop = steps[at]
        at, form = _skip(steps, at + 1, form)
    if resize is None and crop is None:
        return None
    flips = []
    while at < len(steps) and type(steps[at]) in FLIPS:
        flips.append(steps[at])
        at, form = _skip(steps, at + 1, form)
    return Head(resize, crop, flips, form, steps[at:])


def flatten(transform: Any) -> Iterator[Any]:
    """Yield the steps of a transform, with nested chains flattened."""
    if type(transform) in CHAINS:
        is_module = type(transform) is torch.nn.Sequential
        for step in transform if is_module else transform.transforms:
            yield from flatten(step)
    else:
        yield transform


def form_after(step: Any, form: Form) -> Form | None:
    """Return the form of 8-bit pixels after a step that does not change them; None otherwise."""
    kind = type(step)
    if kind is v2.ToImage:
        return "image"
    if kind is v2.PILToTensor or (kind is v1.PILToTensor and form == "pil"):
        return "tensor" if form == "pil" else form
    if kind is v2.ToPureTensor:
        return "tensor" if form == "image" else form
    if kind is v2.Identity or (kind is v2.ToDtype and step.dtype == torch.uint8):
        return form
    return None


def resized_size(height: int, width: int, size: Any) -> tuple[int, int]:
    """Return height and width after torchvision's ``Resize(size)``.

    Example:
        >>> resized_size(375, 500, 256), resized_size(500, 375, [256]), resized_size(9, 9, (2, 3))
        ((256, 341), (341, 256), (2, 3))
    """
    sides = [size] if isinstance(size, int) else list(size)
    if len(sides) == 2:
        return sides[0], sides[1]
    longer = int(sides[0] * max(height, width) / min(height, width))
    return (longer, sides[0]) if width <= height else (sides[0], longer)


def _skip(steps: Sequence[Any], at: int, form: Form) -> tuple[int, Form]:
    """Skip steps that do not change 8-bit pixels."""
    while at < len(steps) and (after := form_after(steps[at], form)) is not None:
        at, form = at + 1, after
    return at, form


def _is_plain(step: Any) -> bool:
    smooth = isinstance(step.interpolation, str | int | InterpolationMode)
    known = smooth and step.interpolation in SMOOTH and step.antialias is True
    limited = type(step) in RESIZES and step.max_size is not None
    return known and step.size is not None and not limited


def _is_plain_crop(step: Any) -> bool:
    if type(step) in CENTER_CROPS:
        return True
    return type(step) in CROPS and step.padding is None and not step.pad_if_needed


def _centered(length: int, part: int) -> int:
    """Return where torchvision's center crop begins, halves to even; negative if it pads."""
    return -((part - length) // 2) if part > length else round((length - part) / 2)


def _is_inside(crop: Box, height: int, width: int) -> bool:
    top, left, high, wide = crop
    return min(top, left) >= 0 and top + high <= height and left + wide <= width


def _resized(pixels: Pixels, size: tuple[int, int], mode: str) -> Tensor:
    """Resize (H, W, C) uint8 to (C, *size), rounded as torchvision does for tensors."""
    if pixels.shape[:2] == size:
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    # torch needs writable memory, a mapped file is not; a part of rows would be copied anyway
    dense = np.ascontiguousarray(pixels) if pixels.flags.writeable else pixels.copy()
    high, wide, channels = dense.shape
    # The strides of a single image do not show that it is channels last. With a batch stride torch
    # does, and saves 65 us of 235, the split of the output into planes (pytorch#68430).
    strides = (dense.size, 1, wide * channels, channels)
    view = torch.from_numpy(dense).as_strided((1, channels, high, wide), strides)
    resized: Tensor = torch.nn.functional.interpolate(view, size, mode=mode, antialias=True)
    return resized[0]


def _cropped(view: Tensor, crop: Box) -> Tensor:
    top, left, height, width = crop
    if not _is_inside(crop, *view.shape[1:]):
        padded: Tensor = v2.functional.center_crop(view, [height, width])
        return padded
    part = view[:, top : top + height, left : left + width]
    return part.permute(1, 2, 0).contiguous().permute(2, 0, 1)
