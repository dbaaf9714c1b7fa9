"""The short ways that a transform allows: its crop before the pixels, its last steps by batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PIL import Image

from datamodules.batches.normalize import Normalizer
from datamodules.images.regions import Boxes
from datamodules.images.transforms import to_row

from .crop_head import RESIZED_CROPS, CropFirst, crop_first, flat
from .float_tail import Lifted, lifted

READ = (
    *("mean", "std", "dtype", "interpolation", "antialias", "max_size"),
    *("padding", "pad_if_needed"),
)


class FastTransform:
    """A chain of torchvision's steps, parted in what comes first, between and last.

    Args:
        steps: All but the lifted end.
        first: ``steps`` again, where their head can be drawn before the pixels are made.
        end: The lifted end.
        whole: The transform that was parted.

    Attributes:
        is_proved: Whether it made a sample; what fails before may want a tensor from the start.
    """

    def __init__(
        self, steps: list[Any], first: CropFirst | None, end: Lifted | None, whole: Any
    ) -> None:
        self.steps, self.crop_first, self.end = steps, first, end
        self.is_proved = False
        self._whole = whole
        self._parted = _settings(whole)

    def check_unchanged(self) -> None:
        """Refuse a transform that is not what was parted.

        Raises:
            RuntimeError: If a step was added, taken away or replaced since, or one of ``READ`` was
                changed; a crop's scale, ratio and size and a flip's p may change.
        """
        if _settings(self._whole) != self._parted:
            raise RuntimeError(
                "the steps of the transform were changed after its images were first asked for; "
                "assign it anew, dm.train_transform = transform (or eval_transform), or pass "
                'image_options={"fast_transforms": False}'
            )

    @property
    def normalizer(self) -> Normalizer | None:
        """What does the lifted end to a batch."""
        return None if self.end is None else self.end.normalizer

    @property
    def takes_seeds(self) -> bool:
        """Whether all of its draws are the head's, which seeds for itself."""
        return self.crop_first is not None and not self.crop_first.rest

    @property
    def draws_alone(self) -> bool:
        """Whether it draws from the thread's generator itself, if at all, without a mode's help."""
        first = self.crop_first
        return self.is_proved and first is not None and not first.rest and first.head.draws_alone

    def of_boxes(self, image: Boxes, seed: int | None = None) -> Any:
        """Row of an image that is read by boxes; needs ``crop_first``.

        Args:
            image: The image.
            seed: What the random generators are to be seeded by, where they are not yet; needs
                ``takes_seeds``.
        """
        assert self.crop_first is not None
        pixels = self.crop_first.head(image, seed)
        if self.crop_first.rest or (self.end is not None and not self.end.fits(pixels)):
            return self._row(self.crop_first.follow(pixels))
        self.is_proved = True
        return pixels

    def of_image(self, image: Image.Image) -> Any:
        """Row of an image in memory."""
        view: Any = image
        for step in self.steps:
            view = step(view)
        return self._row(view)

    def _row(self, view: Any) -> Any:
        if self.end is not None and not self.end.takes(view):
            view = self.end.one_by_one(view)
        self.is_proved = True
        return to_row(view)


def fast_transform(transform: Any, channels: int) -> FastTransform | None:
    """The short ways of a transform, or None where it allows none.

    The random numbers are the same and so are the bits, but for one: an image that the plain way
    resizes by Pillow is resized by torch, which rounds otherwise (less than 0.05 of
    255 on average).

    Args:
        transform: What is to be called with a PIL image.
        channels: Of the images.
    """
    parted = lifted(transform, channels)
    steps, end = parted if parted is not None else (list(flat(transform)), None)
    first = crop_first(steps)
    return None if first is None and end is None else FastTransform(steps, first, end, transform)


def _settings(transform: Any) -> list[Any]:
    """The steps of a transform, each with what is read of it once."""
    found: list[Any] = []
    for step in flat(transform):
        names: Sequence[str] = READ if type(step) in RESIZED_CROPS else (*READ, "scale")
        if not type(step).__module__.startswith("torchvision."):
            names = ()
        found += [step, repr([getattr(step, name, None) for name in names])]
    return found
