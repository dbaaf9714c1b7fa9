"""Iterable datasets shared out over ranks and workers, each sample once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import worker as torch_worker

from datamodules.sampling.plan import EvaluationPlan, cut_steps
from datamodules.sampling.sharded_sampler import world
from datamodules.seeding.random_state import kept_random_state, seed_all
from datamodules.seeding.sample_seeds import Indices, run_seed, sample_seeds


class StreamBatches(IterableDataset[Any]):
    """Batches of an iterable dataset; every rank and worker reads the stream and keeps its part.

    A step is one batch for each rank, cut from the stream in order; it is made when the stream
    is known to go on, so that the end is shared out evenly and all ranks take the same number of
    steps. Which worker makes a step changes nothing. ``transform`` sees only what is kept: the
    heavy work belongs there.

    Args:
        dataset: Gives its samples in the same order in every process.
        batch_size: Samples a batch, at most.
        transform: Applied to each kept sample.
        collate_fn: Samples to batch.
        seed: Seed of each sample's draws, with its position; None follows ``seed_everything``.
        num_replicas: Number of ranks; None reads ``torch.distributed`` when iterated.
        rank: This rank.
        rest: What becomes of a rest too small for all ranks: ``"repeat"`` or ``"keep"`` uneven.
    """

    def __init__(
        self,
        dataset: Iterable[Any],
        *,
        batch_size: int,
        transform: Callable[[Any], Any],
        collate_fn: Callable[[list[Any]], Any],
        seed: int | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        rest: Literal["repeat", "keep"] = "repeat",
    ) -> None:
        self.dataset, self.batch_size = dataset, batch_size
        self.transform, self.collate_fn = transform, collate_fn
        self.seed, self.rest, self.epoch = run_seed(seed), rest, 0
        self.first = 0  # steps already done, on a resumed fit
        self._world = None if num_replicas is None else (num_replicas, rank or 0)

    @property
    def num_replicas(self) -> int:
        """Number of ranks."""
        return (self._world or world())[0]

    def set_epoch(self, epoch: int) -> None:
        """Tell the epoch to the draws, and to the dataset where it wants to know."""
        self.epoch = epoch
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def __len__(self) -> int:
        """Steps of an epoch, where the dataset knows its length."""
        samples = len(self.dataset)  # type: ignore[arg-type]
        return len(self._cut(np.arange(samples), self.num_replicas)) if samples else 0

    def __iter__(self) -> Iterator[Any]:
        ranks, rank = self._world or world()
        info = get_worker_info()
        workers, worker = (info.num_workers, info.id) if info is not None else (1, 0)
        for index, step in enumerate(self._steps(ranks)):
            # torch asks the workers in turn, from the first
            if index >= self.first and (index - self.first) % workers == worker and step[rank]:
                yield self._batch(step[rank])

    def _steps(self, ranks: int) -> Iterator[list[list[tuple[int, Any]]]]:
        """Steps of one batch a rank; a batch is a list of (position, sample)."""
        size = self.batch_size * ranks
        pending: list[tuple[int, Any]] = []
        for item in enumerate(_whole(self.dataset)):
            pending.append(item)
            if len(pending) == size + 2:  # two more: a single one would make a batch of its own
                yield [pending[k : k + self.batch_size] for k in range(0, size, self.batch_size)]
                pending = pending[size:]
        for cut in self._cut(np.arange(len(pending)), ranks):
            yield [[pending[i] for i in batch] for batch in cut]

    def _cut(self, order: Indices, ranks: int) -> list[list[Indices]]:
        """Steps of the end of the stream."""
        if self.rest == "repeat":
            batches = cut_steps(order, self.batch_size, ranks)
            cut = [batches.batch(b) for b in range(len(batches))]
        else:
            batches = EvaluationPlan(len(order), self.batch_size)(torch.Generator(), ranks)
            cut = [batches.batch(b) for b in range(len(batches))]
            cut += [order[:0]] * (-len(cut) % ranks)  # where samples are fewer than ranks
        return [cut[k : k + ranks] for k in range(0, len(cut), ranks)]

    def _batch(self, items: list[tuple[int, Any]]) -> Any:
        positions = np.array([position for position, _ in items])
        seeds = sample_seeds(self.seed, self.epoch, positions, np.zeros(1, np.int64))
        samples = []
        with kept_random_state():
            for (_, sample), seed in zip(items, seeds, strict=True):
                seed_all(int(seed))
                samples.append(self.transform(sample))
        return self.collate_fn(samples)


def _whole(dataset: Iterable[Any]) -> Iterator[Any]:
    """Read a dataset as if there were one process.

    Datasets as torch's manual shows them part themselves by ``get_worker_info()``; parted again
    here, most of their samples would be lost.
    """
    iterator, place = None, 0
    while True:
        info, torch_worker._worker_info = torch_worker._worker_info, None
        try:
            iterator = iter(dataset) if iterator is None else iterator
            sample = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            raise RuntimeError(
                f"sample {place} of the stream: {type(error).__name__}: {error}"
            ) from error
        finally:
            torch_worker._worker_info = info
        yield sample
        place += 1


class StreamPlace:
    """What a stream's loader shows as its sampler: takes the epoch and the place, draws nothing."""

    def __init__(self, stream: StreamBatches) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[None]:
        return repeat(None)

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on."""
        self.stream.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The stream's epoch."""
        return self.stream.epoch

    @property
    def num_replicas(self) -> int:
        """Number of ranks."""
        return self.stream.num_replicas

    def start(self, first: int) -> None:
        """Begin after ``first`` steps."""
        self.stream.first = first
