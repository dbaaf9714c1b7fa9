"""Read decoded images from the RAM cache, or decode and add them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from datamodules.images.decode.decode import decode_pixels, image_size

from .ram_cache import HEAD, Pixels, RamCache, as_size

ARRAY, IMAGE, TENSOR = range(3)
PROBED = 32  # images whose headers give an estimate for all


@runtime_checkable
class NamedImages(Protocol):
    """Images that know the names of the files they are read from."""

    names: Sequence[Any]


def names_of(sources: Any) -> Any:
    """Return what messages call each of N sources: its file, or the source itself."""
    return sources.names if isinstance(sources, NamedImages) else sources


class CachedImages(Sequence[Any]):
    """Sources of an image dataset that are decoded once for all workers and epochs.

    Args:
        sources: N paths, or the images of a pack.
        cache: The cache.
        part: Part of the cache.
        numbers: (N,) int64, the numbers of the sources in the part.
        mode: ``"RGB"`` or ``"L"``.
    """

    def __init__(
        self,
        sources: Sequence[Any],
        cache: RamCache,
        part: str,
        numbers: npt.NDArray[np.int64],
        *,
        mode: Literal["RGB", "L"],
    ) -> None:
        self.sources, self.cache, self.part, self.mode = sources, cache, part, mode
        self.names = names_of(sources)
        self.numbers = torch.from_numpy(numbers)  # workers get a tensor without a copy

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> Any:  # type: ignore[override]
        """Return (H, W, C) uint8, C = 3 or 1; do not write to it."""
        number = int(self.numbers[index])
        kept = self.cache.get(self.part, number)
        if kept is not None:
            return kept[1]
        pixels = decode_pixels(self.sources[index], mode=self.mode, name=self.names[index])
        self.cache.put(self.part, number, ARRAY, pixels)
        return pixels

    def expected_bytes(self) -> int:
        """Estimate the size of all images from the headers of a few; 0 if none can be read."""
        channels = 3 if self.mode == "RGB" else 1
        sizes = []
        for index in np.linspace(0, len(self) - 1, min(PROBED, len(self))).astype(int).tolist():
            try:
                height, width = image_size(self.sources[index], name=self.names[index])
            except (OSError, ValueError):  # an error when it is decoded
                continue
            sizes.append(HEAD.size + width * height * channels)
        return round(sum(sizes) / len(sizes) * len(self)) if sizes else 0


def warn_of_room(parts: Sequence[CachedImages], limit: int) -> bool:
    """Warn before any work if not all images fit the limit, and return whether they do not."""
    expected = sum(part.expected_bytes() for part in parts)
    if expected > limit:
        warnings.warn(
            f'cache="ram" has room for about {limit / expected:.0%} of the images: all take '
            f"{as_size(expected)}, the limit is {as_size(limit)}; raise cache_bytes if "
            "there is memory, or make a pack of smaller images (scripts/pack_images.py)",
            stacklevel=2,
        )
    return expected > limit


def loaded(load: Callable[[Any], Any], item: Any, cache: RamCache, part: str, number: int) -> Any:
    """Return ``load(item)``, from the cache after the first time.

    Args:
        load: Returns a PIL image of mode RGB or L, or a uint8 array or tensor.
        item: Argument of ``load``.
        cache: The cache.
        part: Part of the cache.
        number: The number of the item in the part.

    Returns:
        The same value each time, in memory of its own.

    Raises:
        TypeError: If ``load`` returns anything else.
    """
    kept = cache.get(part, number)
    if kept is not None:
        return _restored(*kept)
    image = load(item)
    kind, pixels = _kind_and_pixels(image)
    if pixels.size:
        cache.put(part, number, kind, pixels)
    return image


def _kind_and_pixels(image: Any) -> tuple[int, Pixels]:
    if isinstance(image, Image.Image) and image.mode in ("RGB", "L"):
        return IMAGE, np.asarray(image)
    if type(image) is Tensor and image.dtype == torch.uint8 and 1 <= image.ndim <= 3:
        return TENSOR, image.contiguous().numpy()
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and 1 <= image.ndim <= 3:
        return ARRAY, image
    kind = type(image).__name__
    if isinstance(image, Image.Image):
        kind += f" of {image.mode}"
    elif isinstance(image, Tensor | np.ndarray):
        kind += f" of {image.dtype}"
    raise TypeError(
        'cache="ram" keeps 8-bit images: PIL of mode RGB or L, uint8 arrays or tensors; load '
        f"returned {kind}; convert it at the end of load, or leave cache out"
    )


def _restored(kind: int, pixels: Pixels) -> Any:
    if kind == IMAGE:
        image = Image.fromarray(pixels)
        return image.copy() if image.readonly else image  # grey shares the array's memory
    return torch.from_numpy(pixels.copy()) if kind == TENSOR else pixels.copy()
