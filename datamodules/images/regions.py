"""An image that is read by boxes: what a crop needs is all that is made."""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]


class Boxes(Protocol):
    """One image, before its pixels are made.

    Attributes:
        height: In pixels, after orientation.
        width: As ``height``.
    """

    @property
    def height(self) -> int: ...  # noqa: D102
    @property
    def width(self) -> int: ...  # noqa: D102

    def box(self, top: int, left: int, height: int, width: int) -> Pixels:
        """(height, width, C) uint8 of a box inside the image; to be read only."""
        ...


class WholeImage:
    """An image that is in memory already; its boxes are views.

    Args:
        pixels: (H, W, C) uint8, C = 1 or 3.
        mode: ``"RGB"`` or ``"L"``: what boxes are given in.
    """

    def __init__(self, pixels: Pixels, mode: Literal["RGB", "L"]) -> None:
        self.pixels, self.mode = pixels, mode
        self.height, self.width = pixels.shape[:2]

    def box(self, top: int, left: int, height: int, width: int) -> Pixels:
        """(height, width, C) uint8; see :class:`Boxes`."""
        return in_mode(self.pixels[top : top + height, left : left + width], self.mode)


def in_mode(pixels: Pixels, mode: Literal["RGB", "L"]) -> Pixels:
    """Grey pixels as three equal channels, or colours as their grey (ITU-R 601).

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
