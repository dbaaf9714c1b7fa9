"""Decode by Pillow without its process-wide settings: neither changed nor relied on.

Other threads and the user's own code see the same settings, and may have set them either way.
"""

from __future__ import annotations

import importlib.util
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, cast

from PIL import Image, ImageFile, JpegImagePlugin


class _InsidePillow(threading.local):
    """The pattern of a warnings filter that matches in threads that are inside :func:`quiet`."""

    active = False

    def match(self, _text: str) -> bool:
        return self.active

    def __reduce__(self) -> str:
        return "_inside_pillow"  # scikit-learn pickles the list of filters for its processes


_inside_pillow = _InsidePillow()
_FILTER = ("ignore", _inside_pillow, Warning, None, 0)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings of this thread: what Pillow warns about is decoded correctly, or refused.

    ``warnings.catch_warnings`` replaces one list for all threads (cpython#128384). Replace this by
    it once the oldest supported Python has ``sys.flags.context_aware_warnings`` on by default.
    """
    # each call adds the filter once and removes it once: both are atomic, a lock is not needed
    cast("list[Any]", warnings.filters).insert(0, _FILTER)
    before, _inside_pillow.active = _inside_pillow.active, True
    try:
        yield
    finally:
        _inside_pillow.active = before
        with suppress(ValueError):  # another list was put in its place meanwhile
            cast("list[Any]", warnings.filters).remove(_FILTER)


def warn_of_truncated_images() -> None:
    """Warn, once, if the user told Pillow to accept truncated files, which are refused here."""
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        _warn_of_truncated_images()


@cache
def _warn_of_truncated_images() -> None:
    warnings.warn(
        "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is True, but damaged image files are refused all the "
        'same; on_error="skip" leaves them out, on_error="raise" stops at the first',
        stacklevel=3,
    )


@cache
def _strict_load() -> Callable[[ImageFile.ImageFile], object]:
    """Return ``load`` of a second copy of ``PIL.ImageFile``, in which the setting is off.

    Pillow reads LOAD_TRUNCATED_IMAGES from the module on each load and takes no argument for it
    (Pillow#3482); turning it off for a moment would change what other threads read. Delete this
    once ``load`` takes the setting as an argument.
    """
    spec = importlib.util.find_spec("PIL.ImageFile")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    load: Callable[[ImageFile.ImageFile], object] = module.ImageFile.load
    return load


# With the setting on, these readers return damaged data as pixels; the others raise.
_LENIENT = frozenset(("JPEG", "MPO", "PNG", "GIF", "BMP", "PPM", "TIFF", "JPEG2000"))


def load_whole(image: Image.Image) -> None:
    """Decode all pixels, or raise what Pillow raises.

    Call it before anything else that decodes (a PNG's ``getexif`` does): Pillow marks an image as
    loaded before it reaches the end, so that a second try does not raise.
    """
    if (
        not ImageFile.LOAD_TRUNCATED_IMAGES
        or not isinstance(image, ImageFile.ImageFile)
        or not image.tile
        or image.format not in _LENIENT
        or vars(image).get("use_load_libtiff")
    ):
        image.load()
        return
    if isinstance(image, JpegImagePlugin.JpegImageFile) and image.fp is not None:
        # Pillow's own load_read adds an end marker if the file lacks one
        vars(image)["load_read"] = image.fp.read
    _strict_load()(image)
