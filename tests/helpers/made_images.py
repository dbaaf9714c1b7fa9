"""Small images and image files for tests, some written by hand where no writer makes them."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image


def encode(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def blocks(width: int = 32, height: int = 24) -> Image.Image:
    """A coloured image without a symmetry, smooth enough for lossy formats."""
    y, x = np.mgrid[0:height, 0:width]
    levels = np.stack([x * 255 // width, y * 255 // height, (x + y) * 255 // (width + height)], 2)
    return Image.fromarray(levels.astype(np.uint8))


def chunk(kind: bytes, body: bytes) -> bytes:
    crc = zlib.crc32(kind + body)
    return struct.pack(">L", len(body)) + kind + body + struct.pack(">L", crc)


def png(
    levels: np.ndarray, *, colour: int, bits: int, before: bytes = b"", behind: bytes = b""
) -> bytes:
    """A PNG written by hand: any depth, and chunks before and behind the pixels."""
    height, width = levels.shape[:2]
    rows = levels.astype(">u2" if bits == 16 else np.uint8).reshape(height, -1)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    header = chunk(b"IHDR", struct.pack(">LLBBBBB", width, height, bits, colour, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(raw))
    return b"\x89PNG\r\n\x1a\n" + header + before + pixels + behind + chunk(b"IEND", b"")


def tiff(
    data: bytes, width: int, height: int, bits: int, *, photometric: int = 1, sample_format: int = 1
) -> bytes:
    """A grey TIFF of one strip written by hand, in the processor's usual order."""
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: photometric, 273: 8, 277: 1}
    tags |= {278: height, 279: len(data), 339: sample_format}
    entries = b"".join(struct.pack("<HHLL", tag, 4, 1, value) for tag, value in tags.items())
    start = struct.pack("<2sHL", b"II", 42, 8 + len(data))
    return start + data + struct.pack("<H", len(tags)) + entries + bytes(4)


def exif_block(number: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = number
    exif[0x010F] = "a maker"
    return exif.tobytes()
