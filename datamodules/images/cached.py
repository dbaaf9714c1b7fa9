"""Where a whole decoded image is asked for, the cache in RAM is asked first."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from datamodules.images.decode.decode import decode_pixels, image_size

from .free_memory import as_size
from .ram_cache import HEAD, Pixels, RamCache

ARRAY, IMAGE, TENSOR = range(3)
LOOKED_AT = 32  # images whose headers tell what all will take


class CachedImages(Sequence[Any]):
    """Sources of an image dataset that are decoded once for all workers and epochs.

    Args:
        sources: N paths, or a pack's images.
        cache: Keeps them.
        part: Which numbers of the cache are meant.
        numbers: (N,) int64, the sources' numbers in it.
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
        self.names = getattr(sources, "names", sources)
        self.numbers = torch.from_numpy(numbers)  # a tensor goes to workers without a copy

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> Any:  # type: ignore[override]
        """(H, W, C) uint8, C = 3 or 1; to be read only."""
        number = int(self.numbers[index])
        kept = self.cache.get(self.part, number)
        if kept is not None:
            return kept[1]
        pixels = decode_pixels(self.sources[index], mode=self.mode, name=self.names[index])
        self.cache.put(self.part, number, ARRAY, pixels)
        return pixels

    def expected_bytes(self) -> int:
        """What all images will take, by the headers of a few; 0 where none can be read."""
        channels = 3 if self.mode == "RGB" else 1
        found = []
        for index in np.linspace(0, len(self) - 1, min(LOOKED_AT, len(self))).astype(int).tolist():
            try:
                height, width = image_size(self.sources[index], name=self.names[index])
            except (OSError, ValueError):  # said when it is read
                continue
            found.append(HEAD.size + width * height * channels)
        return round(sum(found) / len(found) * len(self)) if found else 0


def warn_of_room(parts: Sequence[CachedImages], limit: int) -> bool:
    """Say before work is done that the limit will not hold all images; whether it was said."""
    expected = sum(part.expected_bytes() for part in parts)
    if expected > limit:
        warnings.warn(
            f'cache="ram" will hold about {limit / expected:.0%} of the images: all take '
            f"{as_size(expected)}, the limit is {as_size(limit)}; raise cache_bytes as far as "
            "there is memory, or make a pack of smaller images (scripts/pack_images.py)",
            stacklevel=2,
        )
    return expected > limit


def loaded(load: Callable[[Any], Any], item: Any, cache: RamCache, part: str, number: int) -> Any:
    """What ``load(item)`` gives, kept after the first time.

    Args:
        load: Gives a PIL image of mode RGB or L, or uint8 as an array or tensor.
        item: What it is asked for.
        cache: Keeps it.
        part: Which numbers of the cache are meant.
        number: The item's number.

    Returns:
        The same each time, in memory of its own.

    Raises:
        TypeError: If ``load`` gave anything else.
    """
    kept = cache.get(part, number)
    if kept is not None:
        return _restored(*kept)
    found = load(item)
    kind, pixels = _taken_apart(found)
    if pixels.size:
        cache.put(part, number, kind, pixels)
    return found


def _taken_apart(found: Any) -> tuple[int, Pixels]:
    if isinstance(found, Image.Image) and found.mode in ("RGB", "L"):
        return IMAGE, np.asarray(found)
    if type(found) is Tensor and found.dtype == torch.uint8 and 1 <= found.ndim <= 3:
        return TENSOR, found.contiguous().numpy()
    if isinstance(found, np.ndarray) and found.dtype == np.uint8 and 1 <= found.ndim <= 3:
        return ARRAY, found
    said = type(found).__name__
    mode = found.mode if isinstance(found, Image.Image) else getattr(found, "dtype", "")
    said += f" of {mode}" if mode else ""
    raise TypeError(
        f'cache="ram" keeps 8-bit images: PIL of mode RGB or L, uint8 arrays or tensors; load '
        f"gave {said}; convert it at the end of load, or leave cache out"
    )


def _restored(kind: int, pixels: Pixels) -> Any:
    if kind == IMAGE:
        image = Image.fromarray(pixels)
        return image.copy() if image.readonly else image  # grey shares the array's memory
    return torch.from_numpy(pixels.copy()) if kind == TENSOR else pixels.copy()
