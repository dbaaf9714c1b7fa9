"""Encode one image for a pack: as slices, compared with the file, or resized."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from datamodules.batches.bad_samples import ImageError
from datamodules.images.decode.decode import decode_image

from .image_pack import FILE, PIXELS, SLICES
from .jpeg_slices import NotSliceable, decode_box, to_bytes
from .jpegtran import jpegtran, recut


class Options(NamedTuple):
    """Options of a pack.

    Attributes:
        kind: ``"slice"``, ``"resized-raw"`` or ``"resized-jpeg"``.
        size: Short side of resized images, in pixels.
        quality: Of resized JPEGs, 1 to 100.
    """

    kind: str
    size: int
    quality: int


class Form(NamedTuple):
    """One packed image.

    Attributes:
        form: FILE, SLICES or PIXELS.
        content: The stored bytes.
        reason: Why the file was stored unchanged; empty if that was intended.
        change: Mean difference to the pixels of the file, of 255, if measured.
    """

    form: int
    content: bytes
    reason: str = ""
    change: float | None = None


def make_form(options: Options) -> Callable[[bytes, str, bool], Form]:
    """Return ``make(content, name, measure)``, which packs one file.

    Raises:
        RuntimeError: If jpegtran is needed and not installed.
    """
    if options.kind == "slice":
        program = jpegtran()
        return lambda content, name, measure: _slices(content, name, program)
    return lambda content, name, measure: _resized(content, name, options, measure=measure)


def _slices(content: bytes, name: str, program: str) -> Form:
    try:
        sliced = recut(content, program=program)
        whole = decode_image(content, name=name)
        again = decode_image(sliced.data.tobytes(), name=name)
    except NotSliceable as reason:
        return Form(FILE, content, str(reason).partition(":")[0])
    except ImageError:
        return Form(FILE, content, "cannot be decoded")
    pixels = np.asarray(whole)
    if whole.size != again.size or not np.array_equal(pixels, np.asarray(again)):
        return Form(FILE, content, "needs its EXIF turn or profile")
    height, width = pixels.shape[:2]
    box = (height // 3, width // 3, max(1, height // 3), max(1, width // 3))
    top, left, high, wide = box
    part = decode_box(sliced, *box)
    if not np.array_equal(part, pixels[top : top + high, left : left + wide]):
        return Form(FILE, content, "its slices decode to other pixels")
    return Form(SLICES, to_bytes(sliced))


def _resized(content: bytes, name: str, options: Options, *, measure: bool) -> Form:
    try:
        whole = decode_image(content, name=name)
    except ImageError:
        return Form(FILE, content, "cannot be decoded")
    image = _smaller(whole, options.size)
    if options.kind == "resized-raw":
        form = Form(PIXELS, _raw(image))
    elif image is whole and content[:2] == b"\xff\xd8":
        form = Form(FILE, content)  # small enough already: no loss
    else:
        stream = io.BytesIO()
        grey = _is_grey(np.asarray(image))
        written = image.convert("L") if grey else image
        written.save(stream, "JPEG", quality=options.quality, subsampling=0)
        form = Form(FILE, stream.getvalue())
    if not measure:
        return form
    packed = image if form.form == PIXELS else decode_image(form.content, name=name)
    return form._replace(change=_change(whole, packed))


def _smaller(image: Image.Image, size: int) -> Image.Image:
    """Resize the image to a short side of ``size``, if it is larger."""
    width, height = image.size
    short = min(width, height)
    if short <= size:
        return image
    shape = (width * size // short, height * size // short)
    return image.resize(shape, Image.Resampling.BILINEAR)


def _raw(image: Image.Image) -> bytes:
    pixels = np.asarray(image)
    if _is_grey(pixels):
        pixels = pixels[:, :, :1]
    return np.array(pixels.shape, "<u4").tobytes() + pixels.tobytes()


def _is_grey(pixels: npt.NDArray[np.uint8]) -> bool:
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    return bool(np.array_equal(red, green) and np.array_equal(red, blue))


def _change(whole: Image.Image, packed: Image.Image) -> float:
    """Return the mean difference, of 255, between a crop of a quarter of the area of both."""
    views = []
    for image in (whole, packed):
        width, height = image.size
        box = (width / 4, height / 4, width * 3 / 4, height * 3 / 4)
        view = image.resize((224, 224), Image.Resampling.BILINEAR, box=box)
        views.append(np.asarray(view, np.float32))
    return float(np.abs(views[0] - views[1]).mean())
