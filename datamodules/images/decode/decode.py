"""Decode an image file to 8 bits: mode, depth, orientation, transparency; refuse damaged files.

Nothing is clipped, filled in or guessed silently.
"""

from __future__ import annotations

import io
import os
import struct
from typing import IO, Any, Literal

import numpy as np
from PIL import Image, ImageFile, JpegImagePlugin

from datamodules.batches.bad_samples import ImageError
from datamodules.readers.folders import IMAGE_SUFFIXES

from .jpeg import Pixels, decode_plain, plain_header
from .open_image import (
    MAX_BYTES,
    MAX_PIXELS,
    PNG_SIGNATURE,
    check_bytes,
    check_png,
    check_size,
    damage,
    open_file,
    open_image,
    orientation,
)
from .pillow_state import load_whole, quiet
from .to_uint8 import from_pixels, to_8_bits, to_mode

__all__ = [
    "IMAGE_SUFFIXES",
    "MAX_BYTES",
    "MAX_PIXELS",
    "ImageError",
    "decode_image",
    "decode_pixels",
    "image_size",
]

Source = str | os.PathLike[str] | bytes | Image.Image | np.ndarray[Any, Any]
"""A path, a file's content, an opened or made image, or pixels (H, W) or (H, W, C)."""

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode_image(
    source: Source,
    *,
    mode: Literal["RGB", "L"] = "RGB",
    background: tuple[int, int, int] = (255, 255, 255),
    max_pixels: int | None = MAX_PIXELS,
    max_bytes: int | None = MAX_BYTES,
    name: str | None = None,
    least_side: int | None = None,
) -> Image.Image:
    r"""Decode one image to 8 bits per channel.

    Reads the first frame of an animation, the first page of a TIFF, the largest image of an icon.
    The format is detected from the content. Orientation is applied. Rules for other pixels:

    - 16-bit grey is divided by 257 and rounded (65535 is 255), 12-bit grey by 16.06; 16-bit colours
      are cut to their high byte, as Pillow reads them. Of floats, those in [0, 1] are multiplied by
      255 and rounded; other floats, signed and 32-bit integers have no scale of their own: refused.
    - Palettes are looked up; transparency, however stored, is composed over ``background``.
    - Colours are taken as sRGB numbers, profile or none, as torchvision takes them; CMYK by the
      plain formula. LAB, and files whose numbers mean nothing without their table (a profile with a
      lookup table only, such as XYB JPEG), are converted to sRGB.

    Args:
        source: A path (links are followed), the content of a file, a PIL image (its current
            frame), or pixels (H, W) or (H, W, C), C in 1 to 4, of bool, uint8, uint16 or float in
            [0, 1].
        mode: ``"RGB"``, or ``"L"``: the grey of the RGB image (ITU-R 601).
        background: Red, green, blue, each 0 to 255.
        max_pixels: Larger images are refused before memory is allocated; None: no limit.
        max_bytes: Larger files are refused before they are read; None: no limit.
        name: Replaces the path in messages; pass one for content and pixels.
        least_side: Decode a JPEG at a half, a quarter or an eighth of its size, while both sides
            have at least this many pixels; None: full size. Not the pixels of resizing.

    Returns:
        A new image of exactly ``mode`` with an empty ``info``.

    Raises:
        ImageError: If the file is damaged, cut off, too big, not an image or not a regular file, or
            its pixels are refused by the rules above.
        OSError: The system's own (FileNotFoundError, PermissionError), with the path.
        ValueError: If ``mode`` or ``background`` is not one of the above.

    Example:
        >>> decode_image(np.array([[0, 257, 65535]], dtype=np.uint16), mode="L").tobytes()
        b'\x00\x01\xff'
    """
    if mode not in ("RGB", "L"):
        raise ValueError(f"mode must be 'RGB' or 'L', got {mode!r}")
    if len(background) != 3 or not all(0 <= level <= 255 for level in background):
        raise ValueError(f"background must be 3 levels from 0 to 255, got {background!r}")
    if isinstance(source, np.ndarray):
        name = name or "array"
        return to_mode(from_pixels(source, name, max_pixels), mode, background, name)
    with quiet():
        image, name = _open(source, name, max_pixels, max_bytes)
        try:
            if least_side is not None and isinstance(image, JpegImagePlugin.JpegImageFile):
                image.draft(None, (least_side, least_side))
            load_whole(image)
            turn = _TURNS.get(orientation(image))
            result = to_mode(to_8_bits(image, name), mode, background, name)
        except (ImageError, MemoryError):
            raise
        except Exception as error:
            raise damage(name, f"{image.format or 'image'} data", error) from error
        if turn is not None:
            result = result.transpose(turn)
        elif result is source:
            result = result.copy()
        elif result is image:  # to the base class without a copy: 3 % of a JPEG's time
            result = image._new(image.im)
    result.info = {}  # the orientation is applied already and must not be applied again
    return result


def decode_pixels(
    source: Source, *, mode: Literal["RGB", "L"] = "RGB", name: str | None = None
) -> Pixels:
    """Return the pixels of :func:`decode_image`; plain JPEGs are decoded faster.

    Args:
        source: As in :func:`decode_image`.
        mode: As in :func:`decode_image`.
        name: As in :func:`decode_image`.

    Returns:
        (H, W, C) uint8, C = 3 or 1. An array is returned without a copy: do not write to it.

    Raises:
        ImageError: As :func:`decode_image`.
        OSError: As :func:`decode_image`.
    """
    if isinstance(source, np.ndarray) and source.dtype == np.uint8 and source.ndim == 3:
        channels = 3 if mode == "RGB" else 1
        if source.shape[2] == channels and 0 not in source.shape:
            check_size(name or "array", source.shape[1], source.shape[0], MAX_PIXELS)
            return source
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        name = name or path
        with open_file(path, name, MAX_BYTES) as file:
            source = file.readall()
    if isinstance(source, bytes):
        pixels = _plain_pixels(source, mode)
        if pixels is not None:
            return pixels
    return np.atleast_3d(np.asarray(decode_image(source, mode=mode, name=name)))


def _plain_pixels(content: bytes, mode: Literal["RGB", "L"]) -> Pixels | None:
    """Return the oriented pixels of a plain JPEG; None for files left to ``decode_image``."""
    header = plain_header(content) if len(content) <= MAX_BYTES else None
    if header is None or header.height * header.width > MAX_PIXELS:
        return None
    pixels = decode_plain(content, header, mode)
    return pixels if pixels is None else _turned(pixels, header.orientation)


def _turned(pixels: Pixels, number: int) -> Pixels:
    """Apply an EXIF orientation to (H, W, C)."""
    if number >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if number in (2, 3, 7, 6):
        pixels = pixels[:, ::-1]
    if number in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels if number == 1 else np.ascontiguousarray(pixels)


def image_size(
    source: Source,
    *,
    max_pixels: int | None = MAX_PIXELS,
    max_bytes: int | None = MAX_BYTES,
    name: str | None = None,
) -> tuple[int, int]:
    """Return the size of the image of :func:`decode_image`, read from the header.

    Args:
        source: As in :func:`decode_image`.
        max_pixels: As in :func:`decode_image`.
        max_bytes: As in :func:`decode_image`.
        name: As in :func:`decode_image`.

    Returns:
        Height and width in pixels, after orientation. The pixels may still fail to decode.

    Raises:
        ImageError: If the header is damaged, the file too big, not an image or not a regular file.
        OSError: The system's own (FileNotFoundError, PermissionError), with the path.
    """
    if isinstance(source, np.ndarray):
        image = from_pixels(source, name or "array", max_pixels)
        return image.height, image.width
    with quiet():
        if isinstance(source, Image.Image):
            image = source
            check_size(name or "PIL image", *image.size, max_pixels)
        elif isinstance(source, bytes):
            check_bytes(name or "bytes", len(source), max_bytes)
            image = _open_header(io.BytesIO(source), name or "bytes", max_pixels)
        else:
            path = os.fspath(source)
            with io.BufferedReader(open_file(path, name or path, max_bytes)) as file:
                image = _open_header(file, name or path, max_pixels)
        width, height = image.size
        return (width, height) if orientation(image) >= 5 else (height, width)


def _open(
    source: Any, name: str | None, max_pixels: int | None, max_bytes: int | None
) -> tuple[Image.Image, str]:
    """Open an image and check its size without decoding it; return it and its name."""
    if isinstance(source, Image.Image):
        path = source.filename if isinstance(source, ImageFile.ImageFile) else ""
        name = name or str(path) or "PIL image"
        check_size(name, *source.size, max_pixels)
        return source, name
    if isinstance(source, bytes):
        name, content = name or "bytes", source
        check_bytes(name, len(content), max_bytes)
    elif isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        name = name or path
        with open_file(path, name, max_bytes) as file:
            content = file.readall()
    else:
        kind = type(source).__name__
        raise TypeError(f"expected a path, bytes, a PIL image or a NumPy array, got {kind}")
    image = open_image(io.BytesIO(content), name, max_pixels)
    if content.startswith(PNG_SIGNATURE):
        check_png(content, name)
    return image, name


def _open_header(stream: IO[bytes], name: str, max_pixels: int | None) -> ImageFile.ImageFile:
    """Open, and read on if a PNG has text after its pixels, as exiftool writes it."""
    image = open_image(stream, name, max_pixels)
    if image.format != "PNG" or image.fp is not stream or "exif" in image.info:
        return image
    stream.seek(len(PNG_SIGNATURE))
    behind = False
    while len(head := stream.read(12)) == 12:
        length, kind, text = struct.unpack(">L4s4s", head)
        if behind and (kind in (b"eXIf", b"iTXt", b"zTXt") or text == b"Raw "):
            try:
                load_whole(image)
            except Exception as error:
                raise damage(name, "PNG data", error) from error
            break
        behind = behind or kind == b"IDAT"
        stream.seek(length, os.SEEK_CUR)
    return image
