"""Draw many positions with probabilities proportional to weights."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from datamodules.seeding.sample_seeds import Indices

BLOCK = 1 << 19


def draw_weighted(
    total: npt.NDArray[np.float64], count: int, generator: torch.Generator, *, block: int = BLOCK
) -> Indices:
    """Draw positions with replacement, with probabilities proportional to weights.

    Inverts the cumulative distribution. Each block of uniform numbers is sorted, looked up in
    ascending order, which avoids cache misses, and the results are shuffled: the draws are as
    independent as single ones.

    Args:
        total: (n,) float64 cumulative weights; not all 0.
        count: M, number of draws.
        generator: Draws M float64 and a permutation per block.
        block: Draws per block.

    Returns:
        (M,) int64 in 0..n - 1.

    Example:
        >>> total = np.cumsum([1.0, 0.0, 1.0])
        >>> draw_weighted(total, 6, torch.Generator().manual_seed(0)).tolist()
        [0, 2, 2, 2, 2, 2]
    """
    drawn = np.empty(count, np.int64)
    # reused by each block: allocating per block grew to 80 MB
    uniform = torch.empty(min(block, count), dtype=torch.float64)
    order = torch.empty(min(block, count), dtype=torch.int64)
    for start in range(0, count, block):
        size = min(block, count - start)
        points = uniform[:size].uniform_(generator=generator).numpy()
        points.sort()
        points *= total[-1]
        found = np.searchsorted(total, points, side="right")
        # the product may round up to the sum: take the last position with a weight
        if found[-1] == len(total):
            found[found == len(total)] = np.searchsorted(total, total[-1])
        torch.randperm(size, generator=generator, out=order[:size])
        np.take(found, order[:size].numpy(), out=drawn[start : start + size], mode="clip")
    return drawn


def choose_weighted(
    weights: npt.NDArray[np.float64], count: int, generator: torch.Generator
) -> Indices:
    """Draw positions without replacement, with the keys of Efraimidis and Spirakis (2006).

    Args:
        weights: (n,) float64, at least ``count`` of them greater than 0.
        count: M, number of draws.
        generator: Draws n float64.

    Returns:
        (M,) int64 without repetition, in the order of the draws.
    """
    keys = torch.rand(len(weights), dtype=torch.float64, generator=generator).numpy()
    with np.errstate(divide="ignore"):
        np.log(keys, out=keys)
        keys /= weights
    np.negative(keys, out=keys)  # ascending; a weight of 0 gives infinity, the last
    return np.argsort(keys, kind="stable")[:count]
