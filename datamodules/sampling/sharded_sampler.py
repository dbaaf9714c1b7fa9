"""The sharded batch sampler: this rank's part of a plan; indices only, never a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import BatchSampler
from torch.utils.data.distributed import DistributedSampler

from datamodules.seeding.sample_seeds import CopyCounter, Indices, run_seed, sample_seeds

from .plan import Batches, Plan


class Keys(NamedTuple):
    """One batch as the sampler hands it on.

    Attributes:
        indices: (N,) int64, positions in the dataset.
        seeds: (N,) uint64 below 2^32, the seed of each sample's random draws; None where the
            dataset draws nothing.
    """

    indices: Indices
    seeds: npt.NDArray[np.uint64] | None


class ShardedBatchSampler(DistributedSampler[Any]):
    """Batch sampler that gives this rank its part of a plan.

    It *is* a ``DistributedSampler``, and the loader shows it as ``loader.sampler``, because that
    is the one thing Lightning tests before it replaces a sampler, and where it calls
    ``set_epoch`` (``lightning.pytorch.trainer.connectors.data_connector``, 2.6).

    Args:
        plan: The epoch's batches for the whole world.
        size: Number of samples in the dataset.
        num_replicas: Number of ranks; None reads an initialised ``torch.distributed`` at each use.
        rank: This rank; None as above.
        seed: Seed of all epochs; None follows ``lightning.seed_everything``, else 0.
        uneven: What is done when the number of batches is no multiple of the number of ranks:
            ``"repeat"`` the first batches or ``"drop"`` the last (at most W - 1), or ``"keep"``:
            some ranks have a batch less, as exact evaluation needs it.
        seeded: Hand a batch on as :class:`Keys`; else as a list of plain integers.
        draws: Whether anything random is done to a sample: else there are no seeds.
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
        # `range`: DistributedSampler keeps what it is given, and a dataset may be large to pickle
        super().__init__(range(size), num_replicas=1, rank=0, shuffle=False)  # type: ignore[arg-type]
        if num_replicas is not None:
            self._world = (num_replicas, rank or 0)
        self.plan, self.size, self.uneven = plan, size, uneven
        self.seeded, self.draws = seeded, draws
        self.seed = run_seed(seed)
        self.first = 0
        self._planned: tuple[tuple[int, int], Batches] | None = None

    # Read at each use: a loader may be built before Fabric or a launcher sets the processes up.
    @property
    def num_replicas(self) -> int:
        """Number of ranks."""
        return (self._world or world())[0]

    @num_replicas.setter
    def num_replicas(self, value: int) -> None:
        pass  # DistributedSampler's constructor writes it

    @property
    def rank(self) -> int:
        """This rank."""
        return (self._world or world())[1]

    @rank.setter
    def rank(self, value: int) -> None:
        pass

    def planned(self) -> Batches:
        """The whole world's batches of the current epoch, made even over the ranks."""
        key = (self.epoch, self.num_replicas)
        if self._planned is None or self._planned[0] != key:
            generator = torch.Generator().manual_seed(_mix(self.seed, self.epoch))
            batches = Batches.of(self.plan(generator, self.num_replicas))
            found = batches.indices
            if len(found) and not 0 <= int(found.min()) <= int(found.max()) < self.size:
                raise ValueError(
                    f"the plan holds indices {found.min()} to {found.max()}, the dataset has "
                    f"{self.size} samples"
                )
            self._planned = (key, self._even(batches))
        return self._planned[1]

    def _even(self, batches: Batches) -> Batches:
        world, count = self.num_replicas, len(batches)
        over = count % world
        if not over or self.uneven == "keep":
            return batches
        if self.uneven == "drop":
            end = batches.offsets[count - over]
            return Batches(batches.indices[:end], batches.offsets[: count - over + 1])
        repeated = [batches.batch(b % count) for b in range(world - over)]
        lengths = [len(b) for b in repeated]
        offsets = np.concatenate([batches.offsets, batches.offsets[-1] + np.cumsum(lengths)])
        return Batches(np.concatenate([batches.indices, *repeated]), offsets)

    def step_seed(self, step: int) -> int:
        """32-bit seed of one step of this rank in this epoch, for draws of a whole batch."""
        place = np.array([step * self.num_replicas + self.rank])
        return int(sample_seeds(self.seed, self.epoch, place, np.full(1, -2))[0])

    def start(self, first: int) -> None:
        """Begin after ``first`` steps, on a resumed fit."""
        self.first = first

    @property
    def even(self) -> bool:
        """Whether all ranks take the same number of steps."""
        return len(self.planned()) % self.num_replicas == 0

    def __len__(self) -> int:
        """Steps of an epoch: the batches of the rank that has most."""
        return -(-len(self.planned()) // self.num_replicas)

    def __iter__(self) -> Iterator[Any]:
        # Changes no state: a DataLoader with workers calls iter() twice.
        batches, rank, world = self.planned(), self.rank, self.num_replicas
        seen = CopyCounter(batches.indices, self.size) if self.seeded and self.draws else None
        if seen is not None:
            seen.skip_to(batches.offsets[min(self.first * world, len(batches))])
        for b in range(rank + self.first * world, len(batches), world):
            part = slice(batches.offsets[b], batches.offsets[b + 1])
            indices = batches.indices[part]
            if seen is not None:
                copies = seen.copies(part.start, part.stop)
                yield Keys(indices, sample_seeds(self.seed, self.epoch, indices, copies))
            else:
                yield Keys(indices, None) if self.seeded else indices.tolist()


class RowBatches(BatchSampler):
    """A sharded sampler in ``BatchSampler``'s own form, for prediction.

    Lightning builds the batch sampler of a predict loader anew, to record ``batch_indices``, and
    warns about one that does not take ``(sampler, batch_size, drop_last)``.
    """

    def __init__(self, sampler: ShardedBatchSampler, batch_size: int, drop_last: bool) -> None:
        super().__init__(sampler, batch_size, drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        """This rank's batches of plain indices."""
        return iter(self.sampler)  # type: ignore[arg-type]

    def __len__(self) -> int:
        """Number of this rank's batches."""
        return len(self.sampler)  # type: ignore[arg-type]


def world() -> tuple[int, int]:
    """Number of ranks and this rank, by an initialised ``torch.distributed``, else 1 and 0."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return 1, 0


def _mix(seed: int, epoch: int) -> int:
    # a generator keeps 32 bits of its seed: mix (seed, epoch) so that neighbours do not meet
    return int(sample_seeds(seed, epoch, np.zeros(1, np.int64), np.full(1, -1))[0])
