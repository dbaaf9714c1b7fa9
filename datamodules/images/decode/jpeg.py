"""Decode plain JPEGs by the fastest decoder installed, with the same pixels as Pillow."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from .open_image import exif_orientation

Pixels = npt.NDArray[np.uint8]

_SCAN, _ADOBE, _FRAMES = 0xDA, 0xEE, (0xC0, 0xC1, 0xC2)
_OTHER_FRAMES = frozenset(range(0xC0, 0xD0)) - {*_FRAMES, 0xC4, 0xC8, 0xCC}


class JpegHeader(NamedTuple):
    """Header of a plain JPEG.

    Attributes:
        height: Of the image as stored, in pixels.
        width: Of the image as stored, in pixels.
        channels: 1 (grey) or 3 (YCbCr).
        orientation: EXIF's, 1 to 8.
    """

    height: int
    width: int
    channels: int
    orientation: int


def plain_header(content: bytes) -> JpegHeader | None:
    """Read the header of a JPEG that all decoders built on libjpeg-turbo decode alike.

    Such a file has 8 bits, is grey or YCbCr, Huffman-coded and ends with its end marker. It has no
    second image, no color table and no metadata that could hold an orientation except EXIF.

    Args:
        content: The whole file.

    Returns:
        None for any other file, damaged files included.
    """
    if not content.startswith(b"\xff\xd8\xff") or not content.endswith(b"\xff\xd9"):
        return None
    try:
        return _read_header(content)
    except (struct.error, IndexError, KeyError):  # cut off, or a broken EXIF block
        return None


def decode_plain(content: bytes, header: JpegHeader, mode: Literal["RGB", "L"]) -> Pixels | None:
    """Decode a file accepted by :func:`plain_header`.

    Args:
        content: The whole file.
        header: Its header.
        mode: ``"RGB"`` or ``"L"``.

    Returns:
        (H, W, 3) or (H, W, 1) uint8. None if the decoder fails, or for a color image in mode
        ``"L"``: Pillow computes grey from RGB, the decoder would return the file's luma.
    """
    if mode == "L" and header.channels == 3:
        return None
    pixels = (simplejpeg_decoder() or _decode_by_torchvision)(content, header.channels)
    if pixels is None or pixels.shape != (header.height, header.width, header.channels):
        return None
    return np.repeat(pixels, 3, axis=2) if mode == "RGB" and header.channels == 1 else pixels


@cache
def simplejpeg_decoder() -> Callable[[bytes, int], Pixels | None] | None:
    """Return a decoder by simplejpeg, which is faster than torchvision's; None if not installed."""
    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        return None

    def decode(content: bytes, channels: int) -> Pixels | None:
        try:
            # strict: files for which libjpeg only warns are left to Pillow
            pixels: Pixels = decode_jpeg(content, "RGB" if channels == 3 else "GRAY", strict=True)
        except ValueError:
            return None
        return pixels

    return decode


def _decode_by_torchvision(content: bytes, channels: int) -> Pixels | None:
    # The operator behind torchvision.io.decode_jpeg, which warns since 0.29 that it will be
    # removed; a warnings filter would apply to every thread. Without the operator Pillow decodes.
    import torchvision  # noqa: F401 - registers the operator

    try:
        decode = torch.ops.image.decode_jpeg
    except AttributeError:
        return None
    raw = torch.frombuffer(bytearray(content), dtype=torch.uint8)  # a copy: bytes are read-only
    try:
        pixels = decode(raw, channels, False)  # as ImageReadMode: 1 grey, 3 RGB; no orientation
    except RuntimeError:
        return None
    array: Pixels = pixels.permute(1, 2, 0).contiguous().numpy()
    return array


def _read_header(content: bytes) -> JpegHeader | None:
    at, frame, orientation, exif_blocks = 2, None, 1, 0
    while True:
        if content[at] != 0xFF:
            return None
        kind = content[at + 1]
        length = struct.unpack_from(">H", content, at + 2)[0]
        if kind == _SCAN:
            break
        body = content[at + 4 : at + 2 + length]
        if kind in _FRAMES and frame is None:
            frame = _read_frame(body)
        elif kind in _FRAMES or kind in _OTHER_FRAMES or kind in (0xDC, 0xDE, 0xDF):
            return None
        elif kind == 0xE1:
            exif_blocks += 1
            if not body.startswith(b"Exif\0\0") or exif_blocks > 1:
                return None  # XMP may hold an orientation, too
            number = exif_orientation(body)
            orientation = number if number is not None and 1 <= number <= 8 else 1
        elif not _is_known(kind, body):
            return None
        at += 2 + length
    return None if frame is None else JpegHeader(*frame, orientation)


def _read_frame(body: bytes) -> tuple[int, int, int] | None:
    bits, height, width, channels = struct.unpack_from(">BHHB", body)
    if bits != 8 or not height or not width or channels not in (1, 3):
        return None
    numbers = [body[6 + 3 * c] for c in range(channels)]
    # without a JFIF marker libjpeg uses these numbers; others may mean RGB
    return None if channels == 3 and numbers != [1, 2, 3] else (height, width, channels)


def _is_known(kind: int, body: bytes) -> bool:
    """Return whether a block does not change the meaning of the pixels."""
    if kind in (0xC4, 0xDB, 0xDD, 0xFE, 0xE0, 0xED):  # tables, comments, JFIF, IPTC
        return True
    if kind == 0xE2:  # a color table, or the list of a second image
        return body.startswith(b"ICC_PROFILE\0") and b"A2B0" not in body
    if kind == _ADOBE and body.startswith(b"Adobe"):
        return len(body) >= 12 and body[11] == 1  # YCbCr
    return False
