"""Compute mean and standard deviation of each channel, to normalize images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.batches.bad_samples import unreadable
from datamodules.batches.dataset_interface import DatasetInterface
from datamodules.batches.normalize import IMAGENET_MEAN, IMAGENET_STD, Normalizer
from datamodules.seeding.random_state import kept_random_state
from datamodules.settings.arguments import check_name
from datamodules.settings.cpu_count import usable_cores

MOST = 4_096  # images; their mean is accurate to 0.002 on the scale 0..1


def channel_statistics(
    data: Any, *, most: int | None = MOST, skip: bool = False
) -> tuple[list[float], list[float]]:
    """Compute mean and (population) standard deviation over all pixels, on the scale 0 to 1.

    Args:
        data: Items are images (C, H, W) uint8, or tuples that begin with one; use the train rows
            with the evaluation transform, which adds no augmentation.
        most: Largest number of images, evenly spaced, the same in every process; None: all.
        skip: Ignore files that cannot be read; ``data`` needs ``describe(index)``.

    Returns:
        Mean and standard deviation, one value per channel each.

    Raises:
        ValueError: If the images are normalized already, differ in channels or are constant.

    Example:
        >>> black_and_white = [torch.tensor([[[0, 255]]], dtype=torch.uint8)]
        >>> channel_statistics(black_and_white)
        ([0.5], [0.5])
    """
    count = len(data) if most is None else min(most, len(data))
    rows = [i * len(data) // count for i in range(count)]

    def sums(row: int) -> tuple[int, Tensor] | None:
        try:
            item = data[row]
        except Exception as error:
            if skip and unreadable(error, data.describe(row)):
                return None
            raise
        return _sums(item[0] if isinstance(item, tuple | list) else item)

    pixels, total = 0, torch.zeros(0)
    for found in _each(data, sums, rows):
        if found is None:
            continue
        if len(total) and found[1].shape != total.shape:
            raise ValueError(
                f"train images have {total.shape[1]} and {found[1].shape[1]} channels, so they "
                "have no common mean; convert them to one number of channels in the transform"
            )
        pixels, total = pixels + found[0], total + found[1] if len(total) else found[1]
    if not pixels:
        raise ValueError(
            "none of the train images can be read, so their mean is undefined; check the files"
        )
    mean, square = (total / pixels / torch.tensor([[255.0], [255.0**2]])).double()
    std = (square - mean**2).clamp(min=0).sqrt()
    if bool((std < 1e-4).any()):
        raise ValueError(
            f"a channel of the train images is constant (mean {mean.tolist()}, std "
            f"{std.tolist()}), so it cannot be normalized; pass mean and std, or another mode"
        )
    return mean.tolist(), std.tolist()


def normalizer_of(
    mode: str,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    normalize: str | None = None,
) -> Normalizer:
    """Return the normalizer of a source of images before any statistics are computed.

    Args:
        mode: ``"RGB"`` or ``"L"``.
        mean: One value per channel; None: ImageNet's, or their average for grey.
        std: Like ``mean``.
        normalize: ``"train"`` to compute both from the train images.

    Raises:
        ValueError: If the values do not match the mode or the scale 0..1, or are combined with
            ``normalize``.
    """
    if normalize is not None:
        check_name(normalize, ("train",), "normalize")
        if mean is not None or std is not None:
            raise ValueError('normalize="train" computes mean and std; remove mean and std')
    channels = 3 if mode == "RGB" else 1
    grey = ([sum(IMAGENET_MEAN) / 3], [sum(IMAGENET_STD) / 3])
    default = (IMAGENET_MEAN, IMAGENET_STD) if channels == 3 else grey
    normalizer = Normalizer(
        default[0] if mean is None else mean, default[1] if std is None else std
    )
    if len(normalizer.mean) != channels:
        raise ValueError(
            f"mode={mode!r} needs {channels} values of mean and std, one per channel, got "
            f"{len(normalizer.mean)}"
        )
    if max(normalizer.mean) > 1:
        raise ValueError(f"mean and std are on the scale 0 to 1, got mean={mean}; divide by 255")
    return normalizer


def _sums(image: Any) -> tuple[int, Tensor]:
    """Return the number of pixels, and (2, C) float64 sums of their levels and squares."""
    whole = isinstance(image, Tensor) and image.dtype == torch.uint8 and image.ndim == 3
    if not whole:
        kind = f"{image.dtype}" if isinstance(image, Tensor) else type(image).__name__
        raise ValueError(
            f"the transform returns {kind} images, which are normalized already, so a mean and std "
            "would have no effect; end it with uint8 (C, H, W), or normalize inside it"
        )
    levels = image.flatten(1).numpy().astype(np.float64)
    sums = np.stack([levels.sum(1), (levels**2).sum(1)])
    return levels.shape[1], torch.from_numpy(sums)


def _each(data: Any, made: Callable[[int], Any], rows: list[int]) -> Iterator[Any]:
    """Map over rows, in threads if all random numbers of the transform are known to be torch's."""
    with kept_random_state():
        if DatasetInterface(data).thread_unsafe_step() is not None:
            yield from map(made, rows)
            return
        with ThreadPoolExecutor(usable_cores()) as pool:
            yield from pool.map(made, rows)
