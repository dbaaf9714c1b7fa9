"""Inner loops for images, compiled by numba where it is installed (extra ``fast``).

They give the bits of the torch calls that they stand for, and run without the interpreter's lock:
worker threads that wait for it between dozens of short calls work one after the other.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

log = logging.getLogger(__name__)
TRIES = 10  # of a crop, before the whole image is taken
CLEAR = 1e-6  # of a side's length: torch's float32 logarithms and exponentials are good to 3e-7


class Kernels(NamedTuple):
    """Compiled :func:`normalize_image` and :func:`draw_crop`."""

    normalize_image: Callable[..., None]
    draw_crop: Callable[..., bool]


def kernels() -> Kernels | None:
    """The compiled loops, where :func:`load_kernels` found them; forked processes have them too."""
    return load_kernels() if load_kernels.cache_info().currsize else None


@lru_cache(maxsize=1)
def load_kernels() -> Kernels | None:
    """Import numba and compile: 1 s, or 3 s where it is done for the first time (2 CPU cores).

    Returns:
        None where numba is absent, told not to compile (``NUMBA_DISABLE_JIT``) or cannot.
    """
    try:
        from numba import config, njit
    except ImportError:
        return None
    if getattr(config, "DISABLE_JIT", False):
        return None
    try:
        return Kernels(
            _compiled(njit, "void(u1[:,:,::1], f4[:,::1], f4[:,:,::1])", normalize_image),
            _compiled(njit, "b1(u4, i8, i8, f4, f4, f4, f4, f4[::1], i8[::1])", draw_crop),
        )
    except Exception as error:  # nothing depends on it but time
        log.warning("numba cannot compile the loops for images, torch serves: %s", error)
        return None


def _compiled(njit: Any, signature: str, loop: Callable[..., Any]) -> Any:
    try:
        return njit(signature, nogil=True, cache=True)(loop)
    except Exception:  # no folder to write to, a full disk, a damaged file: compiled anew each time
        return njit(signature, nogil=True)(loop)


def normalize_image(image: Any, table: Any, out: Any) -> None:
    """Look up each level of an image and put the channels one behind the other.

    Args:
        image: (H, W, C) uint8.
        table: (C, 256) float32.
        out: (C, H, W) float32, is written.
    """
    height, width, channels = image.shape
    for channel in range(channels):
        for row in range(height):
            for column in range(width):
                out[channel, row, column] = table[channel, image[row, column, channel]]


def draw_crop(
    seed: Any,
    height: Any,
    width: Any,
    least: Any,
    areas: Any,
    low: Any,
    ratios: Any,
    chances: Any,
    drawn: Any,
) -> Any:
    """What torchvision's ``RandomResizedCrop`` and flips draw after ``torch.manual_seed(seed)``.

    torch's generator is the MT19937 of Matsumoto and Nishimura (ACM TOMACS 8, 1998), seeded as in
    their ``init_genrand``; a float32 in an interval is 24 bits of a word, a whole number below n
    its remainder.

    Args:
        seed: Below 2^32.
        height: Of the image, below 2^28.
        width: As ``height``.
        least: Smallest share of the area, float32.
        areas: Largest share less the smallest, float32.
        low: Logarithm of the smallest ratio, float32.
        ratios: Logarithm of the largest ratio less ``low``, float32.
        chances: (F,) float32, of each flip.
        drawn: (4 + F,) int64: top, left, height, width and 0 or 1 for each flip, is written.

    Returns:
        False where no crop fits, or where the last bits of torch's exponential would decide: then
        torch has to be asked.
    """
    word = 2 * TRIES + 2 + len(chances)
    state = np.empty(word + 398, np.uint64)
    state[0] = seed
    for i in range(1, len(state)):
        before = state[i - 1]
        mixed = np.uint64(1812433253) * (before ^ (before >> np.uint64(30)))
        state[i] = (mixed + np.uint64(i)) & np.uint64(0xFFFFFFFF)
    words = np.empty(word, np.int64)
    for i in range(word):
        joined = (state[i] & np.uint64(0x80000000)) | (state[i + 1] & np.uint64(0x7FFFFFFF))
        value = state[i + 397] ^ (joined >> np.uint64(1))
        if joined & np.uint64(1):
            value ^= np.uint64(0x9908B0DF)
        value ^= value >> np.uint64(11)
        value ^= (value << np.uint64(7)) & np.uint64(0x9D2C5680)
        value ^= (value << np.uint64(15)) & np.uint64(0xEFC60000)
        words[i] = (value ^ (value >> np.uint64(18))) & np.uint64(0xFFFFFFFF)
    unit, at = 1.0 / (1 << 24), 0
    for _ in range(TRIES):
        share = np.float32((words[at] & 0xFFFFFF) * unit * np.float64(areas) + np.float64(least))
        log = np.float32((words[at + 1] & 0xFFFFFF) * unit * np.float64(ratios) + np.float64(low))
        at += 2
        area, aspect = height * width * np.float64(share), math.exp(np.float64(log))
        wide, tall = math.sqrt(area * aspect), math.sqrt(area / aspect)
        for side in (wide, tall):
            if abs(side - math.floor(side) - 0.5) < CLEAR * (side + 1):
                return False
        drawn[2], drawn[3] = math.floor(tall + 0.5), math.floor(wide + 0.5)
        if 0 < drawn[3] <= width and 0 < drawn[2] <= height:
            drawn[0] = words[at] % (height - drawn[2] + 1)
            drawn[1] = words[at + 1] % (width - drawn[3] + 1)
            at += 2
            for i in range(len(chances)):
                flip = np.float32((words[at + i] & 0xFFFFFF) * unit) < chances[i]
                drawn[4 + i] = 1 if flip else 0
            return True
    return False
