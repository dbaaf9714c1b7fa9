"""Normalize an image in a loop compiled by numba, where it is installed (extra ``fast``).

The loop gives the bits of the torch calls and runs without the interpreter's lock, so that worker
threads do not wait for each other between short calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any

log = logging.getLogger(__name__)
Kernel = Callable[[Any, Any, Any], None]


def normalize_kernel() -> Kernel | None:
    """Return the compiled :func:`normalize_image` once :func:`load_kernel` was called, else None.

    Forked processes inherit it.
    """
    return load_kernel() if load_kernel.cache_info().currsize else None


@lru_cache(maxsize=1)
def load_kernel() -> Kernel | None:
    """Import numba and compile: 1 s, or 3 s the first time (2 CPU cores, numba 0.68).

    Returns:
        None if numba is absent, disabled (``NUMBA_DISABLE_JIT``) or fails to compile.
    """
    try:
        from numba import config, njit
    except ImportError:
        return None
    if getattr(config, "DISABLE_JIT", False):
        return None
    signature = "void(u1[:,:,::1], f4[:,::1], f4[:,:,::1])"
    try:
        try:
            kernel: Kernel = njit(signature, nogil=True, cache=True)(normalize_image)
        except Exception:  # the cache folder is not writable, full or damaged
            kernel = njit(signature, nogil=True)(normalize_image)
    except Exception as error:  # it only costs time
        log.warning("numba cannot compile the normalization, torch is used: %s", error)
        return None
    return kernel


def normalize_image(image: Any, table: Any, out: Any) -> None:
    """Look up each level of an image and write the channels one after the other.

    Args:
        image: (H, W, C) uint8.
        table: (C, 256) float32, the value of each level.
        out: (C, H, W) float32, overwritten.
    """
    height, width, channels = image.shape
    for channel in range(channels):
        for row in range(height):
            for column in range(width):
                out[channel, row, column] = table[channel, image[row, column, channel]]
