"""Plain JPEGs to pixels by the fastest decoder there is, equal to Pillow's to the bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from .jpeg_header import JpegHeader

Pixels = npt.NDArray[np.uint8]


def decode_plain(content: bytes, header: JpegHeader, mode: Literal["RGB", "L"]) -> Pixels | None:
    """Decode a file accepted by :func:`~datamodules.images.decode.jpeg_header.plain_header`.

    Args:
        content: The whole file.
        header: What it says.
        mode: ``"RGB"``, or ``"L"``.

    Returns:
        (H, W, 3) or (H, W, 1) uint8; None where the decoder finds fault, or where grey is asked of
        colours: Pillow's grey is made of RGB, not the file's own brightness.
    """
    if mode == "L" and header.channels == 3:
        return None
    pixels = (simplejpeg_decoder() or _by_torchvision)(content, header.channels)
    if pixels is None or pixels.shape != (header.height, header.width, header.channels):
        return None
    return np.repeat(pixels, 3, axis=2) if mode == "RGB" and header.channels == 1 else pixels


@cache
def simplejpeg_decoder() -> Callable[[bytes, int], Pixels | None] | None:
    """Decoder by simplejpeg, ahead of torchvision's, or None where it is absent."""
    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        return None

    def by_simplejpeg(content: bytes, channels: int) -> Pixels | None:
        try:
            # strict: what libjpeg merely warns of is left to the careful reader
            pixels: Pixels = decode_jpeg(content, "RGB" if channels == 3 else "GRAY", strict=True)
        except ValueError:
            return None
        return pixels

    return by_simplejpeg


def _by_torchvision(content: bytes, channels: int) -> Pixels | None:
    # The operators behind torchvision.io: its functions warn since 0.29 that they will go, and a
    # warnings filter would hold for every thread. Where they have gone Pillow serves.
    import torchvision  # noqa: F401 - registers them

    try:
        decode = torch.ops.image.decode_jpeg
    except AttributeError:
        return None
    raw = torch.frombuffer(bytearray(content), dtype=torch.uint8)  # a copy: bytes are read-only
    try:
        pixels = decode(raw, 3 if channels == 3 else 1, False)  # ImageReadMode; no turning
    except RuntimeError:
        return None
    found: Pixels = pixels.permute(1, 2, 0).contiguous().numpy()
    return found
