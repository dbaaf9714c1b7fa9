"""Crop first, then decode: a Compose's head is drawn before any pixel is made.

Of ``RandomResizedCrop``, flips and so on only the numbers are drawn, as torchvision's own methods
draw them and in the Compose's order. What they name is read out of the image and resized in 8
bits; the steps that follow get what they would have had. Steps are known by their exact type: a
subclass, an unknown interpolation or a foreign first step is no head, and the Compose is called as
it is.
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
from datamodules.seeding.random_state import seed_all
from datamodules.seeding.thread_rng import generator_in_use, without_modes

from .crop_params import SeededCrop, box_of, resized_crop_box

Form = Literal["pil", "image", "tensor"]  # PIL, tv_tensors.Image, plain tensor

CHAINS = (v1.Compose, v2.Compose, torch.nn.Sequential)
RESIZED_CROPS = (v1.RandomResizedCrop, v2.RandomResizedCrop)
RESIZES = (v1.Resize, v2.Resize)
CROPS = (v1.CenterCrop, v2.CenterCrop, v1.RandomCrop, v2.RandomCrop)
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
    """What the head made of its draws.

    Attributes:
        box: Top, left, height, width in the image.
        size: Height and width that the box is resized to.
        crop: Top, left, height, width in the resized box; None: all of it.
        flips: Dimensions of (C, H, W) that are turned round.
    """

    box: tuple[int, int, int, int]
    size: tuple[int, int]
    crop: tuple[int, int, int, int] | None
    flips: list[int]


class Head:
    """The steps of a Compose that are drawn first.

    Args:
        resize: A resized crop, a resize or None.
        crop: A crop after ``resize``, or None.
        flips: Flips after both.
        form: What the step behind the head is given.
    """

    def __init__(self, resize: Any, crop: Any, flips: Sequence[Any], form: Form) -> None:
        self.resize, self.crop, self.flips, self.form = resize, crop, list(flips), form
        self.seeded = SeededCrop(resize, flips) if type(resize) in RESIZED_CROPS else None

    def __call__(self, image: Boxes, seed: int | None = None) -> Tensor:
        """Draw, read what was drawn, resize.

        Args:
            image: The image.
            seed: As in :meth:`draw`.

        Returns:
            (C, H, W) uint8 in memory of its own, channels last.
        """
        window = self.draw(image.height, image.width, seed)
        pixels = image.box(*window.box)
        with without_modes():
            view = _resized(pixels, window.size, SMOOTH[self._interpolation()])
            if window.crop is not None:
                view = _cropped(view, window.crop)
            return view.flip(window.flips) if window.flips else view

    def draw(self, height: int, width: int, seed: int | None = None) -> Window:
        """All of the head's random numbers for an image of H x W pixels, in the Compose's order.

        Args:
            height: Of the image.
            width: Of the image.
            seed: What the random generators are to be seeded by, where they are not yet; they may
                be left as they are.

        Raises:
            ValueError: If a random crop is larger than the image, as torchvision refuses it.
        """
        if seed is not None:
            if self.seeded and (found := self.seeded.draw(height, width, seed)) is not None:
                return Window(found[0], self._crop_size(), None, self._turned(found[1]))
            seed_all(seed)
        box, crop = (0, 0, height, width), None
        if type(self.resize) in RESIZED_CROPS:
            box = resized_crop_box(self.resize, height, width)
            size = self._crop_size()
        elif self.resize is not None:
            size = resized_size(height, width, self.resize.size)
            crop = None if self.crop is None else self._crop_box(*size)
        else:
            crop = self._crop_box(height, width)
            if _is_inside(crop, height, width):  # nothing else is read
                box, crop = crop, None
            size = box[2:]
        return Window(box, size, crop, self._drawn_flips())

    @property
    def draws_alone(self) -> bool:
        """Whether every draw is given its generator; those of torchvision's own methods are not."""
        if self.seeded is not None:
            return self.seeded.agrees
        return self.crop is None or type(self.crop) in (v1.CenterCrop, v2.CenterCrop)

    def _crop_size(self) -> tuple[int, int]:
        """Of a resized crop."""
        return self.resize.size[0], self.resize.size[-1]

    def _drawn_flips(self) -> list[int]:
        generator = generator_in_use()
        with without_modes():
            drawn = [bool(torch.rand(1, generator=generator) < step.p) for step in self.flips]
        return self._turned(drawn)

    def _turned(self, drawn: Sequence[Any]) -> list[int]:
        """Dimensions that the flips which were drawn turn round."""
        return [FLIPS[type(step)] for step, is_it in zip(self.flips, drawn, strict=True) if is_it]

    def _interpolation(self) -> Any:
        return "bilinear" if self.resize is None else self.resize.interpolation

    def _crop_box(self, height: int, width: int) -> tuple[int, int, int, int]:
        """May leave the image where a centre crop is larger, and zeros go round it."""
        step = self.crop
        high, wide = step.size[0], step.size[-1]
        if type(step) in (v1.CenterCrop, v2.CenterCrop):
            return _centred(height, high), _centred(width, wide), high, wide
        nothing = torch.empty(1, dtype=torch.uint8).expand(3, height, width)
        if type(step) is v1.RandomCrop:
            top, left, high, wide = step.get_params(nothing, step.size)
            return top, left, high, wide
        return box_of(step.make_params([nothing]))


class CropFirst:
    """A Compose whose head is drawn first.

    Args:
        head: Its first steps.
        rest: The steps behind them.
    """

    def __init__(self, head: Head, rest: Sequence[Callable[[Any], Any]]) -> None:
        self.head, self.rest = head, list(rest)

    def __call__(self, image: Boxes) -> Any:
        """What the Compose makes of the image."""
        return self.follow(self.head(image))

    def follow(self, pixels: Tensor) -> Any:
        """Call the steps behind the head with what they would have been given."""
        view: Any = pixels
        if self.head.form == "pil":
            array = pixels.permute(1, 2, 0).contiguous().numpy()
            view = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
        elif self.head.form == "image":
            view = tv_tensors.Image(pixels)
        for step in self.rest:
            view = step(view)
        return view


def crop_first(steps: Sequence[Any]) -> CropFirst | None:
    """Part a chain of steps in head and rest.

    Args:
        steps: The first is called with a PIL image.

    Returns:
        None where the first steps are not known by their exact type.

    Example:
        >>> parted = crop_first([v2.RandomResizedCrop(8), v2.RandomHorizontalFlip(), v2.ToImage()])
        >>> len(parted.head.flips), parted.head.form, parted.rest
        (1, 'image', [])
        >>> crop_first([v2.RandomRotation(10)]) is None
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
    return CropFirst(Head(resize, crop, flips, form), steps[at:])


def flat(transform: Any) -> Iterator[Any]:
    """Steps of a transform, chains within chains laid open."""
    if type(transform) in CHAINS:
        for step in getattr(transform, "transforms", transform):
            yield from flat(step)
    else:
        yield transform


def form_after(step: Any, form: Form) -> Form | None:
    """Form of 8-bit pixels behind a step that leaves them as they are; None for other steps."""
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
    """Height and width that torchvision's ``Resize(size)`` gives.

    Example:
        >>> resized_size(375, 500, 256), resized_size(500, 375, [256]), resized_size(9, 9, (2, 3))
        ((256, 341), (341, 256), (2, 3))
    """
    wanted = [size] if isinstance(size, int) else list(size)
    if len(wanted) == 2:
        return wanted[0], wanted[1]
    short, long = min(height, width), max(height, width)
    longer = int(wanted[0] * long / short)
    return (longer, wanted[0]) if width <= height else (wanted[0], longer)


def _skip(steps: Sequence[Any], at: int, form: Form) -> tuple[int, Form]:
    """Pass over steps that leave 8-bit pixels as they are."""
    while at < len(steps) and (after := form_after(steps[at], form)) is not None:
        at, form = at + 1, after
    return at, form


def _is_plain(step: Any) -> bool:
    smooth = isinstance(step.interpolation, str | int | InterpolationMode)
    known = smooth and step.interpolation in SMOOTH and step.antialias is True
    return known and step.size is not None and getattr(step, "max_size", None) is None


def _is_plain_crop(step: Any) -> bool:
    padded = getattr(step, "padding", None) is not None or getattr(step, "pad_if_needed", False)
    return type(step) in CROPS and not padded


def _centred(length: int, part: int) -> int:
    """Where torchvision begins a centred part, halves to even; before 0: zeros come first."""
    return -((part - length) // 2) if part > length else round((length - part) / 2)


def _is_inside(crop: tuple[int, int, int, int], height: int, width: int) -> bool:
    top, left, high, wide = crop
    return min(top, left) >= 0 and top + high <= height and left + wide <= width


def _resized(pixels: Pixels, size: tuple[int, int], mode: str) -> Tensor:
    """(H, W, C) uint8 to (C, *size), the rounding of torchvision's on tensors."""
    if pixels.shape[:2] == size:
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    # a mapped file is not writable, which torch demands; it would copy a part of rows anyway
    dense = np.ascontiguousarray(pixels) if pixels.flags.writeable else pixels.copy()
    high, wide, channels = dense.shape
    # The strides of one image do not say what comes last in memory; told by a batch's stride,
    # torch saves 65 us of 235 that parting its answer in planes takes (pytorch#68430).
    strides = (dense.size, 1, wide * channels, channels)
    view = torch.from_numpy(dense).as_strided((1, channels, high, wide), strides)
    resized: Tensor = torch.nn.functional.interpolate(view, size, mode=mode, antialias=True)
    return resized[0]


def _cropped(view: Tensor, crop: tuple[int, int, int, int]) -> Tensor:
    top, left, height, width = crop
    if not _is_inside(crop, *view.shape[1:]):
        padded: Tensor = v2.functional.center_crop(view, [height, width])
        return padded
    part = view[:, top : top + height, left : left + width]
    return part.permute(1, 2, 0).contiguous().permute(2, 0, 1)
