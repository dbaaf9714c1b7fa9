"""Pillow's process-wide switches, neither changed nor relied on.

Warnings, and ``ImageFile.LOAD_TRUNCATED_IMAGES``: each holds for every thread and for other
people's code, which may have set it either way.
"""

from __future__ import annotations

import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

from PIL import Image, ImageFile, JpegImagePlugin


class _QuietThread(threading.local):
    """Stands where a warnings filter holds its pattern; matches while this thread is in Pillow.

    ``warnings.catch_warnings`` would not do: it swaps one list for the whole process, so threads
    that overlap can leave each other's list behind, and each swap makes Python repeat warnings that
    it shows once. This filter is in the list while any thread decodes, and matches in no other.
    """

    active = False

    def match(self, _text: str) -> bool:
        return self.active

    def __reduce__(self) -> str:
        return "_quiet_thread"  # scikit-learn sends the list of filters to its processes


_quiet_thread = _QuietThread()
_QUIET_FILTER = ("ignore", _quiet_thread, Warning, None, 0)
_decoding, _lock = [0], threading.Lock()  # number of threads inside quiet()


@contextmanager
def quiet() -> Iterator[None]:
    """Let no warning out: what Pillow warns about is read all the same, or refused."""
    _add_decoding(1)
    before, _quiet_thread.active = _quiet_thread.active, True
    try:
        yield
    finally:
        _quiet_thread.active = before
        _add_decoding(-1)


def _add_decoding(change: int) -> None:
    """Count the threads inside :func:`quiet`; keep the filter first while there are any."""
    with _lock:
        _decoding[0] += change
        filters = cast("list[Any]", warnings.filters)
        if change > 0 and not (filters and filters[0] is _QUIET_FILTER):
            filters[:] = [_QUIET_FILTER, *(each for each in filters if each is not _QUIET_FILTER)]
        elif not _decoding[0]:
            filters[:] = [each for each in filters if each is not _QUIET_FILTER]


@cache
def _strict_load() -> Callable[[ImageFile.ImageFile], object]:
    """Pillow's ``ImageFile.load`` as it is with LOAD_TRUNCATED_IMAGES off, whatever that is set to.

    Turning the switch off for a moment would race with other threads; so the same code gets a copy
    of its module's globals.
    """
    load = ImageFile.ImageFile.load
    names = {**vars(ImageFile), "LOAD_TRUNCATED_IMAGES": False}
    return types.FunctionType(load.__code__, names, load.__name__, load.__defaults__)


# Formats whose reader takes damage for pixels when LOAD_TRUNCATED_IMAGES is on; the rest raise.
_LENIENT = frozenset(("JPEG", "MPO", "PNG", "GIF", "BMP", "PPM", "TIFF", "JPEG2000"))


def load_whole(image: Image.Image) -> None:
    """Decode all pixels, or raise what Pillow raises.

    To be called before anything else that decodes (a PNG's ``getexif`` does): Pillow marks a
    image as loaded before it has seen the end, so that a second try is silent.
    """
    if (
        not ImageFile.LOAD_TRUNCATED_IMAGES
        or not isinstance(image, ImageFile.ImageFile)
        or not image.tile
        or image.format not in _LENIENT
        or getattr(image, "use_load_libtiff", False)
    ):
        image.load()
        return
    if isinstance(image, JpegImagePlugin.JpegImageFile) and image.fp is not None:
        # Stock code adds an end marker where the file lacks one.
        vars(image)["load_read"] = image.fp.read
    _strict_load()(image)
