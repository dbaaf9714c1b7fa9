"""Split a transform into head, steps and float tail, and apply it to images."""

from __future__ import annotations

from typing import Any

from PIL import Image

from datamodules.batches.normalize import Normalizer
from datamodules.images.regions import Boxes
from datamodules.images.transforms import to_row

from .crop_head import RESIZED_CROPS, Head, flatten, split_head
from .float_tail import FloatTail, split_float_tail

READ_ONCE = (
    *("mean", "std", "dtype", "interpolation", "antialias", "max_size"),
    *("padding", "pad_if_needed"),
)


class FastTransform:
    """A chain of torchvision's steps, split into head, steps and float tail.

    Args:
        steps: All but the float tail.
        head: Head and tail of ``steps``, if its crop can be drawn before the image is decoded.
        float_tail: Conversion to float and ``Normalize``, left to the batch.
        transform: The transform that was split.

    Attributes:
        has_run: Whether it made a sample. A transform that fails before may expect tensors.
    """

    def __init__(
        self, steps: list[Any], head: Head | None, float_tail: FloatTail | None, transform: Any
    ) -> None:
        self.steps, self.head, self.float_tail = steps, head, float_tail
        self.has_run = False
        self._transform = transform
        self._settings = _settings(transform)

    def check_unchanged(self) -> None:
        """Refuse a transform that was changed in place after it was split.

        Raises:
            RuntimeError: If a step was added, removed or replaced, or a setting of ``READ_ONCE``
                changed; scale, ratio and size of a crop and ``p`` of a flip may change.
        """
        if _settings(self._transform) != self._settings:
            raise RuntimeError(
                "the steps of the transform changed after its first use; assign it again, "
                "dm.train_transform = transform (or eval_transform), or pass "
                'image_options={"fast_transforms": False}'
            )

    @property
    def normalizer(self) -> Normalizer | None:
        """Applies the float tail to a batch."""
        return None if self.float_tail is None else self.float_tail.normalizer

    @property
    def passes_generators(self) -> bool:
        """Whether its draws are given the thread's generator and need no function mode."""
        head = self.head
        return self.has_run and head is not None and not head.tail and head.passes_generators

    def from_boxes(self, image: Boxes) -> Any:
        """Return the row of an image that is read by boxes; needs ``head``."""
        assert self.head is not None
        pixels = self.head(image)
        tail = self.float_tail
        if self.head.tail or (tail is not None and not tail.normalizer.fits(pixels)):
            return self._row(self.head.apply_tail(pixels))
        self.has_run = True
        return pixels

    def from_image(self, image: Image.Image) -> Any:
        """Return the row of an image in memory."""
        view: Any = image
        for step in self.steps:
            view = step(view)
        return self._row(view)

    def _row(self, view: Any) -> Any:
        if self.float_tail is not None and not self.float_tail.can_wait(view):
            view = self.float_tail(view)
        self.has_run = True
        return to_row(view)


def fast_transform(transform: Any, channels: int) -> FastTransform | None:
    """Split a transform; None if it has neither a head nor a float tail.

    Random numbers and pixels are those of the transform, with one exception: if it resizes by
    Pillow, torch resizes here and rounds differently (less than 0.05 of 255 on average).

    Args:
        transform: A callable on a PIL image.
        channels: Of the images.
    """
    split = split_float_tail(transform, channels)
    steps, tail = split if split is not None else (list(flatten(transform)), None)
    head = split_head(steps)
    return None if head is None and tail is None else FastTransform(steps, head, tail, transform)


def _settings(transform: Any) -> list[Any]:
    """Return the steps of a transform, each with its settings that are read once."""
    found: list[Any] = []
    for step in flatten(transform):
        settings = {}
        if type(step).__module__.startswith("torchvision."):
            names = READ_ONCE if type(step) in RESIZED_CROPS else (*READ_ONCE, "scale")
            settings = {name: value for name, value in vars(step).items() if name in names}
        found += [step, repr(settings)]
    return found
