"""Draw the crop of a ``RandomResizedCrop`` as torchvision does, in a third of the time.

In a worker thread each of torchvision's calls passes through the thread's function mode; here the
generator is an argument. The arithmetic is torchvision's own. It is compared with the installed
release before its first use; if they differ, torchvision's own method is called.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
from torchvision.transforms import transforms as v1

from datamodules.seeding.thread_rng import Stream, generator_in_use, without_modes

Box = tuple[int, int, int, int]
TRIES = 10
PROBES = ((375, 500), (500, 375), (1, 999), (64, 64), (4000, 300))  # two of them seldom fit
LIMITS = (
    *(((0.08, 1.0), (3 / 4, 4 / 3)), ((0.9, 1.0), (0.3, 0.4))),
    *(((0.2, 1.5), (2.0, 5.0)), ((1.0, 1.0), (1.0, 1.0))),
)


def resized_crop_box(step: Any, height: int, width: int) -> Box:
    """Draw top, left, height and width of a v1 or v2 ``RandomResizedCrop``.

    Args:
        step: The transform.
        height: Of the image, in pixels.
        width: Of the image, in pixels.
    """
    kind: Any = type(step)
    if not draws_as_torchvision(kind):
        return _box_by_torchvision(step, height, width)
    with without_modes():
        # the attributes are read for each sample: a schedule may change them between epochs
        scale, ratio = tuple(map(float, step.scale[:2])), tuple(map(float, step.ratio[:2]))
        return _box(scale, ratio, height, width, generator_in_use())


def box_of(params: dict[str, Any]) -> Box:
    """Return the box in the parameters of a v2 transform."""
    return params["top"], params["left"], params["height"], params["width"]


@lru_cache(maxsize=64)
def draws_as_torchvision(kind: Any) -> bool:
    """Return whether the installed torchvision draws the same boxes and leaves the same state.

    Its draws need a function mode, so the first call must not be inside ``without_modes()``.
    """
    with Stream() as stream:
        for seed in range(20):
            for scale, ratio in LIMITS:
                size = PROBES[seed % len(PROBES)]
                step = kind(8, scale=scale, ratio=ratio)
                stream.generator.manual_seed(seed)
                expected = _box_by_torchvision(step, *size)
                state = stream.generator.get_state()
                stream.generator.manual_seed(seed)
                box = _box(scale, ratio, *size, stream.generator)
                if box != expected or not torch.equal(state, stream.generator.get_state()):
                    return False
    return True


def _box(
    scale: tuple[float, ...],
    ratio: tuple[float, ...],
    height: int,
    width: int,
    generator: torch.Generator,
) -> Box:
    low, high = _log(ratio)
    draw, place = torch.empty(1), torch.empty(1, dtype=torch.int64)
    for _ in range(TRIES):
        area = height * width * draw.uniform_(scale[0], scale[1], generator=generator).item()
        aspect = draw.uniform_(low, high, generator=generator).exp_().item()
        wide, tall = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < tall <= height:
            # torch.randint calls random_; on a tensor that exists it takes 1.0 us, not 4.2
            top = place.random_(0, height - tall + 1, generator=generator).item()
            left = place.random_(0, width - wide + 1, generator=generator).item()
            return int(top), int(left), tall, wide
    shape = width / height
    if shape < min(ratio):
        wide, tall = width, round(width / min(ratio))
    elif shape > max(ratio):
        wide, tall = round(height * max(ratio)), height
    else:
        wide, tall = width, height
    return (height - tall) // 2, (width - wide) // 2, tall, wide


@lru_cache(maxsize=64)
def _log(ratio: tuple[float, ...]) -> tuple[float, float]:
    low, high = torch.log(torch.tensor(ratio, dtype=torch.float32)).tolist()
    return low, high


def _box_by_torchvision(step: Any, height: int, width: int) -> Box:
    image = torch.empty(1, dtype=torch.uint8).expand(3, height, width)
    if isinstance(step, v1.RandomResizedCrop):
        top, left, tall, wide = step.get_params(image, step.scale, step.ratio)
        return top, left, tall, wide
    return box_of(step.make_params([image]))
