"""The box of a ``RandomResizedCrop``, drawn as torchvision draws it and in a third of the time.

In a worker thread each of torchvision's calls would pass through the thread's function mode; here a
generator is handed over instead. The arithmetic is torchvision's own, and it is compared with the
installed release before it is used: where that draws otherwise, its own method is called.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torchvision.transforms import transforms as v1

from datamodules.batches.kernels import Kernels, kernels
from datamodules.seeding.thread_rng import Stream, generator_in_use, without_modes

Box = tuple[int, int, int, int]
TRIES = 10
PROBES = ((375, 500), (500, 375), (1, 999), (64, 64), (4000, 300))  # two of them seldom fit
LIMITS = (
    *(((0.08, 1.0), (3 / 4, 4 / 3)), ((0.9, 1.0), (0.3, 0.4))),
    *(((0.2, 1.5), (2.0, 5.0)), ((1.0, 1.0), (1.0, 1.0))),
)


def resized_crop_box(step: Any, height: int, width: int) -> Box:
    """Top, left, height and width that a v1 or v2 ``RandomResizedCrop`` draws.

    Args:
        step: The transform.
        height: Of the image, in pixels.
        width: As ``height``.
    """
    scale, ratio = _limits(step)
    kind: Any = type(step)
    if not _agrees(kind):
        return _by_torchvision(step, height, width)
    with without_modes():
        return _box(scale, ratio, height, width, generator_in_use())


class SeededCrop:
    """The draws of a ``RandomResizedCrop`` and of flips, from a sample's seed and in one go.

    Args:
        step: The crop.
        flips: Flips that follow it.

    Attributes:
        agrees: Whether the installed torchvision draws as it is known to.
    """

    def __init__(self, step: Any, flips: Sequence[Any]) -> None:
        self.step, self.flips = step, flips
        kind: Any = type(step)
        self.agrees = _agrees(kind)

    def draw(self, height: int, width: int, seed: int) -> tuple[Box, list[int]] | None:
        """Box, and 0 or 1 for each flip, as after ``torch.manual_seed(seed)``.

        Args:
            height: Of the image, in pixels.
            width: As ``height``.
            seed: Below 2^32.

        Returns:
            None where torch has to be asked: without numba, for a torchvision that draws
            otherwise, and for the few seeds that a rounding decides.
        """
        loops = kernels()
        if loops is None or not self.agrees or not _loops_agree(loops):
            return None
        # asked for each sample: a user may change a step between epochs
        chances = np.array([flip.p for flip in self.flips], np.float32)
        drawn = np.empty(4 + len(chances), np.int64)
        interval = _interval(*_limits(self.step))
        if not loops.draw_crop(seed, height, width, *interval, chances, drawn):
            return None
        top, left, tall, wide, *flips = drawn.tolist()
        return (top, left, tall, wide), flips


def box_of(params: dict[str, Any]) -> Box:
    """The box in the parameters of a v2 transform."""
    return params["top"], params["left"], params["height"], params["width"]


def _box(
    scale: tuple[float, ...],
    ratio: tuple[float, ...],
    height: int,
    width: int,
    generator: torch.Generator,
) -> Box:
    low, high = _log(ratio)
    draw = torch.empty(1)
    for _ in range(TRIES):
        area = height * width * draw.uniform_(scale[0], scale[1], generator=generator).item()
        aspect = draw.uniform_(low, high, generator=generator).exp_().item()
        wide, tall = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < tall <= height:
            top = torch.randint(0, height - tall + 1, (1,), generator=generator).item()
            left = torch.randint(0, width - wide + 1, (1,), generator=generator).item()
            return int(top), int(left), tall, wide
    shape = width / height
    if shape < min(ratio):
        wide, tall = width, round(width / min(ratio))
    elif shape > max(ratio):
        wide, tall = round(height * max(ratio)), height
    else:
        wide, tall = width, height
    return (height - tall) // 2, (width - wide) // 2, tall, wide


def _limits(step: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Scale and ratio of a crop."""
    return tuple(map(float, step.scale[:2])), tuple(map(float, step.ratio[:2]))


@lru_cache(maxsize=64)
def _interval(scale: tuple[float, ...], ratio: tuple[float, ...]) -> tuple[np.float32, ...]:
    """Lower end and width of the scale, and of the ratio's logarithm."""
    least, most, low, high = (np.float32(v) for v in (*scale, *_log(ratio)))
    return least, most - least, low, high - low


@lru_cache(maxsize=64)
def _log(ratio: tuple[float, ...]) -> tuple[float, float]:
    low, high = torch.log(torch.tensor(ratio, dtype=torch.float32)).tolist()
    return low, high


@lru_cache(maxsize=64)
def _agrees(kind: Any) -> bool:
    """Whether the installed torchvision draws the same boxes and leaves the same state.

    Not to be asked for the first time where function modes are set aside: its draws need one.
    """
    with Stream() as stream:
        for seed, (height, width), (scale, ratio) in _probes():
            step = kind(8, scale=scale, ratio=ratio)
            stream.generator.manual_seed(seed)
            wanted = _by_torchvision(step, height, width)
            state = stream.generator.get_state()
            stream.generator.manual_seed(seed)
            found = _box(scale, ratio, height, width, stream.generator)
            if found != wanted or not torch.equal(state, stream.generator.get_state()):
                return False
    return True


@lru_cache(maxsize=4)
def _loops_agree(loops: Kernels) -> bool:
    """Whether the installed torch draws what the loops draw."""
    generator, drawn = torch.Generator(), np.empty(4, np.int64)
    for seed, (height, width), (scale, ratio) in _probes():
        interval = _interval(scale, ratio)
        if loops.draw_crop(seed, height, width, *interval, np.empty(0, np.float32), drawn):
            generator.manual_seed(seed)
            if tuple(drawn.tolist()) != _box(scale, ratio, height, width, generator):
                return False
    return True


def _probes() -> Iterator[tuple[int, tuple[int, int], tuple[Any, Any]]]:
    for seed in range(20):
        for limits in LIMITS:
            yield seed, PROBES[seed % len(PROBES)], limits


def _by_torchvision(step: Any, height: int, width: int) -> Box:
    nothing = torch.empty(1, dtype=torch.uint8).expand(3, height, width)
    if isinstance(step, v1.RandomResizedCrop):
        top, left, tall, wide = step.get_params(nothing, step.scale, step.ratio)
        return top, left, tall, wide
    return box_of(step.make_params([nothing]))
