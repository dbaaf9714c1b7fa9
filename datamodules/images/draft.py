"""Large JPEGs decoded at a part of their size: less work, and other pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from datamodules.images.decode.decode import decode_image

SIDES = 2  # a drafted image keeps so many times the side that the net sees


class DraftImages(Sequence[Any]):
    """Sources of an image dataset that are decoded at 1/2, 1/4 or 1/8 where they are large.

    A JPEG is stored as blocks of waves; leaving out the short ones gives a smaller image for
    less work, but not the pixels that decoding and resizing give. Other formats and small
    images stay as they are.

    Args:
        paths: N paths.
        image_size: Side that the net sees; an image keeps twice that on its shorter side.
        mode: ``"RGB"`` or ``"L"``.
    """

    def __init__(self, paths: Sequence[str], image_size: int, *, mode: Literal["RGB", "L"]) -> None:
        self.names, self.least_side, self.mode = paths, SIDES * image_size, mode

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Any:  # type: ignore[override]
        """(H, W, C) uint8, C = 3 or 1."""
        image = decode_image(self.names[index], mode=self.mode, least_side=self.least_side)
        return np.atleast_3d(np.asarray(image))
