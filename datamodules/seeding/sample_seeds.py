"""Compute a seed for each sample from (seed, epoch, index, copy), in any process or thread."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt
import torch

Indices = npt.NDArray[np.int64]
Seeds = npt.NDArray[np.uint64]


def check_seed(name: str, seed: int) -> None:
    """Raise an error for a seed that torch's generators do not accept.

    Raises:
        ValueError: If ``seed`` is not an integer of 64 bits.
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or not -(2**63) <= seed < 2**63:
        raise ValueError(f"{name} must be an integer of 64 bits, got {seed!r}")


def run_seed(seed: int | None) -> int:
    """Return ``seed``; for None the seed of ``lightning.seed_everything``, or 0 without one."""
    return int(os.environ.get("PL_GLOBAL_SEED", 0)) if seed is None else seed


def sample_seeds(seed: int, epoch: int, indices: Indices, copies: Indices) -> Seeds:
    """Hash to 32-bit seeds by splitmix64 (Steele, Lea and Flood, OOPSLA 2014).

    torch's CPU generator keeps only the low 32 bits of a seed, and sums such as ``seed + epoch``
    would collide.

    Args:
        seed: Seed of the run.
        epoch: Epoch from 0.
        indices: (N,) int64 indices of the samples.
        copies: (N,) or (1,) int64, number of earlier occurrences of the sample in this epoch.

    Returns:
        (N,) uint64 below 2^32.
    """
    words = 0
    for part in (seed, epoch):
        words = _splitmix(np.uint64((part ^ words) & 0xFFFFFFFFFFFFFFFF))
    return _splitmix_array(
        _splitmix_array(indices.astype(np.uint64) ^ np.uint64(words)) ^ copies.astype(np.uint64)
    ) & np.uint64(0xFFFFFFFF)


def _splitmix(word: np.uint64) -> int:
    return int(_splitmix_array(np.array([word], np.uint64))[0])


def _splitmix_array(words: Seeds) -> Seeds:
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def draw_integers(seeds: Seeds, bound: int, *, stream: int) -> torch.Tensor:
    """Draw one integer in ``0..bound - 1`` for each seed, to augment whole batches.

    Args:
        seeds: (N,) uint64.
        bound: Much smaller than 2^32, so that the remainder is uniform.
        stream: Number of the draw; draws of one sample with different numbers are independent.

    Returns:
        (N,) int64.
    """
    words = _splitmix_array(seeds + np.uint64(stream << 32)) >> np.uint64(32)
    return torch.from_numpy((words % np.uint64(bound)).astype(np.int64))


class CopyCounter:
    """Count the earlier occurrences of each sample in an epoch.

    Takes four bytes per sample, or none if no sample occurs twice.

    Args:
        indices: (M,) int64 below ``size``, the samples of an epoch in order.
        size: Number of samples.

    Example:
        >>> counter = CopyCounter(np.array([4, 2, 4, 4]), 5)
        >>> counter.copies(0, 3).tolist(), counter.copies(3, 4).tolist()
        ([0, 0, 1], [2])
    """

    def __init__(self, indices: Indices, size: int) -> None:
        once = np.zeros(size, bool)
        once[indices] = True
        repeats = int(np.count_nonzero(once)) != len(indices)
        self._indices, self._at = indices, 0
        self._counts = np.zeros(size, np.int32) if repeats else None

    def skip_to(self, stop: int) -> None:
        """Count the samples before position ``stop`` at once."""
        if self._counts is not None and stop > self._at:
            np.add.at(self._counts, self._indices[self._at : stop], 1)
            self._at = stop

    def copies(self, start: int, stop: int) -> Indices:
        """Return the earlier occurrences of the samples at ``start`` to ``stop``, in rising order.

        Returns:
            (stop - start,) int64; (1,) if no sample occurs twice.
        """
        if self._counts is None:
            return np.zeros(1, np.int64)
        self.skip_to(start)
        indices = self._indices[start:stop]
        order = np.argsort(indices, kind="stable")
        ranked = indices[order]
        first = np.append(True, ranked[1:] != ranked[:-1])[: len(ranked)]
        position = np.arange(len(ranked))
        copies = np.empty(len(ranked), np.int64)
        copies[order] = position - np.maximum.accumulate(np.where(first, position, 0))
        copies += self._counts[indices]
        self.skip_to(stop)
        return copies
