"""Plans and steps: the batches that the whole world runs in one epoch.

A *plan* is a pure function of (seed, epoch, world size): the list of batches that the whole world
runs in one epoch, as one permutation and the offsets at which it is cut. Rank r takes every W-th
batch, so W batches are a step. Nothing else in the project knows about ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch

from datamodules.seeding.sample_seeds import Indices


class Batches(NamedTuple):
    """Batches of one epoch in the order in which the world runs them.

    Attributes:
        indices: (M,) int64, positions in the dataset, batch after batch.
        offsets: (B + 1,) int64, batch b is ``indices[offsets[b]:offsets[b + 1]]``.
    """

    indices: Indices
    offsets: Indices

    @classmethod
    def of(cls, batches: Batches | Sequence[Sequence[int]]) -> Batches:
        """Take batches as they are, or pack lists of indices as a user's own plan gives them."""
        if isinstance(batches, Batches):
            return batches
        if not isinstance(batches, Sequence) or not all(hasattr(b, "__len__") for b in batches):
            raise ValueError(
                "a plan gives a list of batches, each a list of indices, got "
                f"{type(batches).__name__}"
            )
        for b, batch in enumerate(batches):
            if not len(batch) or not np.issubdtype(np.asarray(batch).dtype, np.integer):
                raise ValueError(f"batch {b} of the plan holds no whole numbers: {batch!r}")
        sizes = np.fromiter((len(b) for b in batches), np.int64, len(batches))
        flat = [np.asarray(b, np.int64) for b in batches]
        indices = np.concatenate(flat) if flat else np.empty(0, np.int64)
        return cls(indices, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.offsets) - 1

    def batch(self, b: int) -> Indices:
        """Indices of batch ``b``."""
        return self.indices[self.offsets[b] : self.offsets[b + 1]]


@runtime_checkable
class Plan(Protocol):
    """``plan(generator, world_size) -> batches``; a plain function will do as well."""

    def __call__(
        self, generator: torch.Generator, world_size: int, /
    ) -> Batches | Sequence[Sequence[int]]:
        """Plan one epoch with the draws of ``generator``, which is seeded by (seed, epoch)."""
        ...


class Shuffled:
    """Every sample once an epoch, in a new order each time.

    The batches of one step are cut from one stretch of the permutation, so their union does not
    depend on the number of ranks as long as ``batch_size * world_size`` stays the same. A short
    last step is kept; one of a single sample, on which batch norm means nothing, is never made:
    the step before gives it half of its samples. A last step with fewer than two samples a rank
    repeats samples of its own (at most ``2 * world_size - 1``, counted in ``repeated``).

    Args:
        n: Number of samples.
        batch_size: Samples a batch and rank, at most.
        drop_last: Leave the last, incomplete step out.
    """

    def __init__(self, n: int, batch_size: int, *, drop_last: bool = False) -> None:
        self.n, self.batch_size, self.drop_last = n, check_batch_size(batch_size), drop_last

    def order(self, generator: torch.Generator) -> Indices:
        """(n,) int64, the order of one epoch."""
        # the same order by half the memory: 25 ms against 49 for 2 million (2 cores, torch 2.14)
        dtype = torch.int32 if self.n < 2**31 else torch.int64
        return torch.randperm(self.n, generator=generator, dtype=dtype).long().numpy()

    def __call__(self, generator: torch.Generator, world_size: int) -> Batches:
        """Plan one epoch for ``world_size`` ranks."""
        order = self.order(generator)
        return cut_steps(order, self.batch_size, world_size, drop_last=self.drop_last)


class InOrder(Shuffled):
    """Every sample once an epoch, always in the dataset's own order."""

    def order(self, generator: torch.Generator) -> Indices:
        """(n,) int64, ascending."""
        return np.arange(self.n, dtype=np.int64)


class Exact:
    """Evaluation: each sample once and in order, on any number of ranks.

    One process takes plain chunks of ``batch_size``. Several take full batches, and only the tail
    is shared out anew so that all ranks take the same number of steps. Where that cannot be
    (batches of one, fewer samples than ranks) the last step leaves some ranks without a batch;
    ``even`` tells.

    Args:
        n: Number of samples.
        batch_size: Samples a batch and rank, at most.
    """

    def __init__(self, n: int, batch_size: int) -> None:
        self.n, self.batch_size = n, check_batch_size(batch_size)

    def __call__(self, generator: torch.Generator, world_size: int) -> Batches:
        """Plan the only epoch there is; draws nothing."""
        n, size, world = self.n, self.batch_size, world_size
        if world == 1:
            offsets = np.append(np.arange(0, n, size), n)
            return Batches(np.arange(n, dtype=np.int64), offsets.astype(np.int64))
        steps, rest = divmod(n, size * world)
        tail = 1 if rest else 0
        if 0 < rest < world and steps and size > 1:  # too few for a step: two steps share them
            steps, rest, tail = steps - 1, rest + size * world, 2
        pieces = min(tail * world, rest)
        sizes = [
            np.full(steps * world, size),
            np.diff(np.arange(pieces + 1) * rest // max(1, pieces)),
        ]
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        return Batches(np.arange(n, dtype=np.int64), offsets.astype(np.int64))


def check_batch_size(batch_size: int, name: str = "batch_size") -> int:
    """Return ``batch_size`` or say what is wrong with it.

    Raises:
        ValueError: If it is no whole number, or below 1.
    """
    whole = isinstance(batch_size, Integral) and not isinstance(batch_size, bool)
    if not whole or batch_size < 1:
        raise ValueError(f"{name} must be a whole number, at least 1, got {batch_size!r}")
    return int(batch_size)


def cut_steps(
    order: Indices, batch_size: int, world_size: int, *, drop_last: bool = False
) -> Batches:
    """Cut an epoch's order into steps of ``world_size`` batches each, the same number on each rank.

    Args:
        order: (M,) int64.
        batch_size: Samples a batch, at most.
        world_size: Number of ranks.
        drop_last: Leave the last, incomplete step out.

    Returns:
        ``steps * world_size`` batches of at least two samples (one where ``batch_size`` is 1).
    """
    step = batch_size * world_size
    whole, rest = divmod(len(order), step)
    if drop_last or not rest:
        return Batches(order[: whole * step], np.arange(0, whole * step + 1, batch_size))
    tails = [rest]
    if rest == 1 and whole and batch_size > 1:
        whole, rest = whole - 1, step + 1
        # 33 = 32 + 1 becomes 17 + 16; of 3 = 2 + 1 only one batch of three can be made
        tails = [rest - rest // 2, rest // 2] if step > 2 else [rest]
    least = world_size * min(2, batch_size, len(order))
    lengths = [max(size, least) for size in tails]
    if lengths != tails:  # else the order serves as it is, uncopied: 80 MB of 10 million
        parts, start = [order[: whole * step]], whole * step
        for size, length in zip(tails, lengths, strict=True):
            parts.append(np.resize(order[start : start + size], length))  # repeats from its start
            start += size
        order = np.concatenate(parts)
    sizes = [np.full(whole * world_size, batch_size)]
    sizes += [shared_out(length, world_size) for length in lengths]
    return Batches(order, np.append(0, np.cumsum(np.concatenate(sizes))))


def shared_out(count: int, parts: int) -> Indices:
    """Sizes (parts,) int64 of ``count`` things shared out evenly."""
    return np.diff(np.arange(parts + 1) * count // max(1, parts))
