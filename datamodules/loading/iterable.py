"""Shard an iterable dataset over ranks and workers, so that each sample is used once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import worker as torch_worker

from datamodules.batches.dataset_interface import DatasetInterface
from datamodules.sampling.plan import EvaluationPlan, cut_steps
from datamodules.sampling.sharded_sampler import world
from datamodules.seeding.random_state import kept_random_state, seed_all
from datamodules.seeding.sample_seeds import Indices, run_seed, sample_seeds


class StreamBatches(IterableDataset[Any]):
    """Batches of an iterable dataset; every rank and worker reads the stream and keeps its share.

    A step is one batch for each rank, in the order of the stream. A step is made once the stream
    has more samples behind it, so that the last samples are shared evenly and all ranks take the
    same number of steps. The batches do not depend on the number of workers. ``transform`` is
    applied only to the samples that are kept: put expensive work there.

    Args:
        dataset: Yields its samples in the same order in every process.
        batch_size: Samples per batch, at most.
        transform: Applied to each kept sample.
        collate_fn: Samples to batch.
        seed: Seed of the samples' random numbers, combined with epoch and position; None follows
            ``lightning.seed_everything``.
        num_replicas: Number of ranks; None reads ``torch.distributed`` when iterated.
        rank: This rank.
        rest: If the last samples are too few for all ranks: ``"repeat"`` some, or ``"keep"`` steps
            uneven.

    Example:
        >>> stream = StreamBatches(range(4), batch_size=2, transform=float, collate_fn=list)
        >>> list(stream)
        [[0.0, 1.0], [2.0, 3.0]]
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
        self.first = 0  # steps to leave out, of a resumed fit
        self._world = None if num_replicas is None else (num_replicas, rank or 0)

    @property
    def num_replicas(self) -> int:
        """Number of ranks."""
        return (self._world or world())[0]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the random numbers, and of the dataset if it follows epochs."""
        self.epoch = epoch
        if (follower := DatasetInterface(self.dataset).epochs) is not None:
            follower.set_epoch(epoch)

    def __len__(self) -> int:
        """Return the steps of an epoch, if the dataset has a length."""
        samples = len(self.dataset)  # type: ignore[arg-type]
        return len(self._cut(np.arange(samples), self.num_replicas)) if samples else 0

    def __iter__(self) -> Iterator[Any]:
        ranks, rank = self._world or world()
        info = get_worker_info()
        workers, worker = (info.num_workers, info.id) if info is not None else (1, 0)
        for index, step in enumerate(self._steps(ranks)):
            # torch takes batches from the workers in turn, starting with the first
            if index >= self.first and (index - self.first) % workers == worker and step[rank]:
                yield self._batch(step[rank])

    def _steps(self, ranks: int) -> Iterator[list[list[tuple[int, Any]]]]:
        """Yield steps of one batch per rank; a batch is a list of (position, sample)."""
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
        """Return the steps of the end of the stream."""
        if self.rest == "repeat":
            batches = cut_steps(order, self.batch_size, ranks)
            cut = [batches.batch(b) for b in range(len(batches))]
        else:
            batches = EvaluationPlan(len(order), self.batch_size)(torch.Generator(), ranks)
            cut = [batches.batch(b) for b in range(len(batches))]
            cut += [order[:0]] * (-len(cut) % ranks)  # if there are fewer samples than ranks
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
    """Read a dataset as if there were no workers.

    Datasets written as in torch's documentation shard themselves by ``get_worker_info()``; sharded
    again here, most of their samples would be lost.
    """
    iterator, position = None, 0
    while True:
        try:
            with _without_worker_info():
                iterator = iter(dataset) if iterator is None else iterator
                sample = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            raise RuntimeError(
                f"sample {position} of the stream: {type(error).__name__}: {error}"
            ) from error
        yield sample
        position += 1


@contextmanager
def _without_worker_info() -> Iterator[None]:
    """Make ``get_worker_info()`` return None while a user's dataset yields one sample.

    Delete it when torch has a public way to set the worker info
    (https://github.com/meta-pytorch/data/issues/1388).
    """
    info, torch_worker._worker_info = torch_worker._worker_info, None
    try:
        yield
    finally:
        torch_worker._worker_info = info


class StreamPlace:
    """Stands in for the sampler of a stream's loader: passes on the epoch and the position.

    Example:
        >>> stream = StreamBatches(range(3), batch_size=2, transform=int, collate_fn=list)
        >>> StreamPlace(stream).set_epoch(4)
        >>> stream.epoch
        4
    """

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
        """Leave out the first ``first`` steps."""
        self.stream.first = first
