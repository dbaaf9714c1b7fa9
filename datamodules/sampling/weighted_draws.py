"""Many draws in proportion to weights, in blocks that stay in the processor's cache."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from datamodules.seeding.sample_seeds import Indices

BLOCK = 1 << 19


def draw_weighted(
    total: npt.NDArray[np.float64], count: int, generator: torch.Generator, *, block: int = BLOCK
) -> Indices:
    """Draw positions with replacement, in proportion to their weights.

    The inverse of the distribution function at uniform numbers. Block by block these are sorted,
    looked up in ascending order, and the answers shuffled: independent draws as if one by one,
    without a miss of the cache at each.

    Args:
        total: (n,) float64, running sum of the weights; not all 0.
        count: M, number of draws.
        generator: Gives M float64 and a permutation of each block.
        block: Draws looked up at once.

    Returns:
        (M,) int64 in 0..n - 1.

    Example:
        >>> total = np.cumsum([1.0, 0.0, 1.0])
        >>> draw_weighted(total, 6, torch.Generator().manual_seed(0)).tolist()
        [0, 2, 2, 2, 2, 2]
    """
    drawn = np.empty(count, np.int64)
    # used again by each block: memory that is freed and taken anew grew to 80 MB here
    uniform = torch.empty(min(block, count), dtype=torch.float64)
    order = torch.empty(min(block, count), dtype=torch.int64)
    for start in range(0, count, block):
        size = min(block, count - start)
        points = uniform[:size].uniform_(generator=generator).numpy()
        points.sort()
        points *= total[-1]
        found = np.searchsorted(total, points, side="right")
        # a product may round up to the whole sum: the last position that has a weight
        if found[-1] == len(total):
            found[found == len(total)] = np.searchsorted(total, total[-1])
        torch.randperm(size, generator=generator, out=order[:size])
        np.take(found, order[:size].numpy(), out=drawn[start : start + size], mode="clip")
    return drawn


def choose_weighted(
    weights: npt.NDArray[np.float64], count: int, generator: torch.Generator
) -> Indices:
    """Draw positions without replacement, by the keys of Efraimidis and Spirakis (2006).

    Args:
        weights: (n,) float64, at least ``count`` of them above 0.
        count: M, number of draws.
        generator: Gives n float64.

    Returns:
        (M,) int64, all different, in the order of drawing.
    """
    keys = torch.rand(len(weights), dtype=torch.float64, generator=generator).numpy()
    with np.errstate(divide="ignore"):
        np.log(keys, out=keys)
        keys /= weights
    np.negative(keys, out=keys)  # ascending; a weight of 0 is infinite and comes last
    return np.argsort(keys, kind="stable")[:count]
