"""Sample the batches that this rank takes from a plan, as indices and seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import BatchSampler
from torch.utils.data.distributed import DistributedSampler

from datamodules.seeding.sample_seeds import CopyCounter, Indices, run_seed, sample_seeds

from .plan import Batches, Plan, offsets_of


class Keys(NamedTuple):
    """Indices and seeds of one batch, passed from the sampler to the dataset.

    Attributes:
        indices: (N,) int64 positions in the dataset.
        seeds: (N,) uint64 below 2^32, one seed per sample; None if samples use no random numbers.
    """

    indices: Indices
    seeds: npt.NDArray[np.uint64] | None


class ShardedBatchSampler(DistributedSampler[Any]):
    """Batch sampler that yields this rank's batches of a plan.

    It is a ``DistributedSampler``, and the loader's ``sampler``, because that is what Lightning
    checks before it replaces a sampler, and where it calls ``set_epoch``
    (``lightning.pytorch.trainer.connectors.data_connector``, 2.6).

    Args:
        plan: Returns the batches of an epoch for all ranks.
        size: Number of samples in the dataset.
        num_replicas: Number of ranks; None: that of ``torch.distributed`` at each use.
        rank: This rank; None as above.
        seed: Seed of the run; None: that of ``lightning.seed_everything``, or 0 without one.
        uneven: If the number of batches is not divisible by the world size W, ``"repeat"`` the
            first batches, ``"drop"`` the last ones (at most W - 1), or ``"keep"`` them: some ranks
            have one batch less, which exact evaluation needs.
        seeded: Yield :class:`Keys`; otherwise lists of integers.
        draws: Whether samples use random numbers; if not, no seeds are generated.

    Example:
        >>> plan = lambda generator, world_size: [[0, 1], [2, 3], [4]]
        >>> sampler = ShardedBatchSampler(plan, 5, num_replicas=2, rank=1, seeded=False)
        >>> list(sampler)  # three batches on two ranks: the first is repeated
        [[2, 3], [0, 1]]
    """

    def __init__(
        self,
        plan: Plan | Callable[[torch.Generator, int], Any],
        size: int,
        *,
        num_replicas: int | None = None,
        rank: int | None = None,
        seed: int | None = None,
        uneven: Literal["repeat", "drop", "keep"] = "repeat",
        seeded: bool = True,
        draws: bool = True,
    ) -> None:
        if num_replicas is not None and not 0 <= (rank or 0) < num_replicas:
            raise ValueError(f"rank must be in 0..{num_replicas - 1}, got {rank}")
        self._world: tuple[int, int] | None = None
        # `range`: DistributedSampler stores its dataset, which may be large to pickle
        super().__init__(range(size), num_replicas=1, rank=0, shuffle=False)  # type: ignore[arg-type]
        if num_replicas is not None:
            self._world = (num_replicas, rank or 0)
        self.plan, self.size, self.uneven = plan, size, uneven
        self.seeded, self.draws = seeded, draws
        self.seed = run_seed(seed)
        self.first = 0
        self._planned: tuple[tuple[int, int], Batches] | None = None

    # Read at each use: a loader may be built before torch.distributed is initialized.
    @property
    def num_replicas(self) -> int:
        """Return the number of ranks."""
        return (self._world or world())[0]

    @num_replicas.setter
    def num_replicas(self, value: int) -> None:
        pass  # set by DistributedSampler's constructor

    @property
    def rank(self) -> int:
        """Return this rank."""
        return (self._world or world())[1]

    @rank.setter
    def rank(self, value: int) -> None:
        pass

    def planned(self) -> Batches:
        """Return the batches of the current epoch for all ranks, with ``uneven`` applied."""
        key = (self.epoch, self.num_replicas)
        if self._planned is None or self._planned[0] != key:
            generator = torch.Generator().manual_seed(_mix(self.seed, self.epoch))
            batches = Batches.of(self.plan(generator, self.num_replicas))
            indices = batches.indices
            if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < self.size:
                raise ValueError(
                    f"the plan has indices {indices.min()} to {indices.max()}, the dataset has "
                    f"{self.size} samples"
                )
            self._planned = (key, self._equalize(batches))
        return self._planned[1]

    def _equalize(self, batches: Batches) -> Batches:
        world, count = self.num_replicas, len(batches)
        over = count % world
        if not over or self.uneven == "keep":
            return batches
        if self.uneven == "drop":
            end = batches.offsets[count - over]
            return Batches(batches.indices[:end], batches.offsets[: count - over + 1])
        repeated = [batches.batch(b % count) for b in range(world - over)]
        sizes = [np.diff(batches.offsets), np.array([len(b) for b in repeated])]
        return Batches(np.concatenate([batches.indices, *repeated]), offsets_of(sizes))

    def step_seed(self, step: int) -> int:
        """Return a 32-bit seed for random numbers of a whole batch, such as MixUp."""
        place = np.array([step * self.num_replicas + self.rank])
        return int(sample_seeds(self.seed, self.epoch, place, np.full(1, -2))[0])

    def start(self, first: int) -> None:
        """Skip the first ``first`` steps of the epoch, to resume a fit."""
        self.first = first

    @property
    def even(self) -> bool:
        """Return whether all ranks take the same number of steps."""
        return len(self.planned()) % self.num_replicas == 0

    def __len__(self) -> int:
        """Return the steps of an epoch, those of the rank with most batches."""
        return -(-len(self.planned()) // self.num_replicas)

    def __iter__(self) -> Iterator[Any]:
        # must not change state: a DataLoader with workers calls iter() twice
        batches, rank, world = self.planned(), self.rank, self.num_replicas
        counter = CopyCounter(batches.indices, self.size) if self.seeded and self.draws else None
        if counter is not None:
            counter.skip_to(batches.offsets[min(self.first * world, len(batches))])
        for b in range(rank + self.first * world, len(batches), world):
            part = slice(batches.offsets[b], batches.offsets[b + 1])
            indices = batches.indices[part]
            if counter is not None:
                copies = counter.copies(part.start, part.stop)
                yield Keys(indices, sample_seeds(self.seed, self.epoch, indices, copies))
            else:
                yield Keys(indices, None) if self.seeded else indices.tolist()


class RowBatches(BatchSampler):
    """Wrap a sharded sampler for prediction with the signature of ``BatchSampler``.

    Lightning builds the batch sampler of a predict loader again, to record ``batch_indices``, and
    warns unless it takes ``(sampler, batch_size, drop_last)``.
    """

    def __init__(self, sampler: ShardedBatchSampler, batch_size: int, drop_last: bool) -> None:
        super().__init__(sampler, batch_size, drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this rank's batches as lists of integers."""
        return iter(self.sampler)  # type: ignore[arg-type]

    def __len__(self) -> int:
        """Return the number of this rank's batches."""
        return len(self.sampler)  # type: ignore[arg-type]


def world() -> tuple[int, int]:
    """Return the world size and rank of ``torch.distributed``, or 1 and 0 without it."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return 1, 0


def _mix(seed: int, epoch: int) -> int:
    # torch uses 32 bits of a seed: hash (seed, epoch), so that neighbours do not collide
    return int(sample_seeds(seed, epoch, np.zeros(1, np.int64), np.full(1, -1))[0])
