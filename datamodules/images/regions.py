"""Images that are read by boxes: only the pixels of a crop are decoded."""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]


class Boxes(Protocol):
    """One image, before it is decoded.

    Attributes:
        height: In pixels, after orientation.
        width: In pixels, after orientation.
    """

    @property
    def height(self) -> int: ...  # noqa: D102
    @property
    def width(self) -> int: ...  # noqa: D102

    def box(self, top: int, left: int, height: int, width: int) -> Pixels:
        """Return (height, width, C) uint8 of a box inside the image; do not write to it."""
        ...


class WholeImage:
    """An image in memory; its boxes are views.

    Args:
        pixels: (H, W, C) uint8, C = 1 or 3.
        mode: ``"RGB"`` or ``"L"``, the mode of the boxes.

    Example:
        >>> WholeImage(np.zeros((4, 6, 1), np.uint8), "RGB").box(1, 1, 2, 3).shape
        (2, 3, 3)
    """

    def __init__(self, pixels: Pixels, mode: Literal["RGB", "L"]) -> None:
        self.pixels, self.mode = pixels, mode
        self.height, self.width = pixels.shape[:2]

    def box(self, top: int, left: int, height: int, width: int) -> Pixels:
        """Return (height, width, C) uint8; see :class:`Boxes`."""
        return in_mode(self.pixels[top : top + height, left : left + width], self.mode)


def in_mode(pixels: Pixels, mode: Literal["RGB", "L"]) -> Pixels:
    """Convert grey pixels to three equal channels, or colors to grey (ITU-R 601).

    Example:
        >>> in_mode(np.zeros((2, 4, 1), np.uint8), "RGB").shape
        (2, 4, 3)
    """
    if pixels.shape[2] == 1 and mode == "RGB":
        return np.repeat(pixels, 3, axis=2)
    if pixels.shape[2] == 3 and mode == "L":
        grey = Image.fromarray(np.ascontiguousarray(pixels)).convert("L")
        return np.asarray(grey)[:, :, None]
    return pixels
