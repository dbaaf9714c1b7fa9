"""What a JPEG says before its pixels, read in microseconds: is this the plain case?"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .open_image import exif_orientation

_SCAN, _ADOBE, _FRAMES = 0xDA, 0xEE, (0xC0, 0xC1, 0xC2)
_OTHER_FRAMES = frozenset(range(0xC0, 0xD0)) - {*_FRAMES, 0xC4, 0xC8, 0xCC}


class JpegHeader(NamedTuple):
    """Header of a plain JPEG.

    Attributes:
        height: Of the image as stored, in pixels.
        width: As ``height``.
        channels: 1 (grey) or 3 (YCbCr).
        orientation: EXIF's, 1 to 8.
    """

    height: int
    width: int
    channels: int
    orientation: int


def plain_header(content: bytes) -> JpegHeader | None:
    """Header of a JPEG that every decoder built on libjpeg-turbo reads alike.

    Plain is: 8 bits, grey or YCbCr, Huffman-coded, ended by its end marker, with no second image,
    no colour table and no notes that could hold an orientation other than in EXIF.

    Args:
        content: The whole file.

    Returns:
        None for anything else, damaged files included.
    """
    if not content.startswith(b"\xff\xd8\xff") or not content.endswith(b"\xff\xd9"):
        return None
    try:
        return _read(content)
    except (struct.error, IndexError, KeyError):  # cut off, or a broken EXIF block
        return None


def _read(content: bytes) -> JpegHeader | None:
    at, frame, turn, exif_blocks = 2, None, 1, 0
    while True:
        if content[at] != 0xFF:
            return None
        kind = content[at + 1]
        length = struct.unpack_from(">H", content, at + 2)[0]
        if kind == _SCAN:
            break
        body = content[at + 4 : at + 2 + length]
        if kind in _FRAMES and frame is None:
            frame = _frame(body)
        elif kind in _FRAMES or kind in _OTHER_FRAMES or kind in (0xDC, 0xDE, 0xDF):
            return None
        elif kind == 0xE1:
            exif_blocks += 1
            if not body.startswith(b"Exif\0\0") or exif_blocks > 1:
                return None  # XMP may hold an orientation, too
            found = exif_orientation(body)
            turn = found if found is not None and 1 <= found <= 8 else 1
        elif not _known(kind, body):
            return None
        at += 2 + length
    return None if frame is None else JpegHeader(*frame, turn)


def _frame(body: bytes) -> tuple[int, int, int] | None:
    bits, height, width, channels = struct.unpack_from(">BHHB", body)
    if bits != 8 or not height or not width or channels not in (1, 3):
        return None
    numbers = [body[6 + 3 * c] for c in range(channels)]
    # without a JFIF mark libjpeg goes by these; other numbers may mean RGB
    return None if channels == 3 and numbers != [1, 2, 3] else (height, width, channels)


def _known(kind: int, body: bytes) -> bool:
    """Whether a block leaves the pixels' meaning alone."""
    if kind in (0xC4, 0xDB, 0xDD, 0xFE, 0xE0, 0xED):  # tables, comments, JFIF, IPTC
        return True
    if kind == 0xE2:  # a colour table, or the list of a second image
        return body.startswith(b"ICC_PROFILE\0") and b"A2B0" not in body
    if kind == _ADOBE and body.startswith(b"Adobe"):
        return len(body) >= 12 and body[11] == 1  # YCbCr
    return False
