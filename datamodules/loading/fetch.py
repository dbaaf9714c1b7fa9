"""Fetch the samples of one batch, each with its own random seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate, get_worker_info

from datamodules.batches.bad_samples import BadFile, PartBatch, unreadable
from datamodules.batches.batch import RowBatch
from datamodules.batches.collate import StackError
from datamodules.batches.dataset_interface import DatasetInterface, ShrinksForWorkers
from datamodules.batches.nested import map_tensors
from datamodules.batches.normalize import Normalizer
from datamodules.sampling.sharded_sampler import Keys
from datamodules.seeding.random_state import kept_random_state, own_generators, seed_all, seed_own
from datamodules.seeding.sample_seeds import Indices, Seeds
from datamodules.seeding.thread_rng import active_stream, without_modes

from .batch_rows import STACKS, NormalizedImages, SampleList


class SampleError(RuntimeError):
    """A sample could not be made; the message names it and the cause."""


class KeyedDataset(Dataset[Any]):
    """A map-style dataset indexed by :class:`Keys`: each sample has its own random seed.

    A dataset that returns whole batches is called once per batch. Any other is read sample by
    sample, after torch's, NumPy's and Python's generators, and those that its transforms own, were
    seeded for the sample. Samples are collated here, so that errors can name them.

    Args:
        dataset: Map-style, see :mod:`datamodules.batches.dataset_interface`.
        collate_fn: Samples to batch; None for a dataset that returns whole batches.
        with_rows: Make batches :class:`RowBatch`, for a predict loader.
        skip: Leave out samples whose file cannot be read; such a batch is a :class:`PartBatch`.

    Attributes:
        interface: What the dataset offers.
        normalizer: Normalizes each image when it is made, if samples are made in this process;
            None leaves it to the consumer of the batch.
        reading: (W,) int64 in shared memory, the row that each of W workers reads, or -1; None if
            no timeout was given.

    Example:
        >>> keyed = KeyedDataset([1, 2, 3], collate_fn=list)
        >>> keyed.__getitems__([0, 2])
        [1, 3]
    """

    def __init__(
        self,
        dataset: Any,
        *,
        collate_fn: Callable[[Any], Any] | None = None,
        with_rows: bool = False,
        skip: bool = False,
    ) -> None:
        self.dataset, self.interface = dataset, DatasetInterface(dataset)
        self.collate_fn, self.with_rows, self.skip = collate_fn, with_rows, skip
        self._own: list[Any] | None = None
        self.normalizer: Normalizer | None = None
        self.reading: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        data = self.dataset  # pickled for worker processes
        data = data.for_workers() if isinstance(data, ShrinksForWorkers) else data
        return {**self.__dict__, "dataset": data, "interface": DatasetInterface(data), "_own": None}

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, keys: Keys | Sequence[int]) -> Any:
        """Return one batch."""
        rows, seeds = keys if isinstance(keys, Keys) else (np.asarray(keys, np.int64), None)
        interface = self.interface
        if interface.batches is not None:
            batch = interface.batches.get_batch(rows, seeds)
        elif active_stream() is not None:
            if interface.deferred is not None and interface.deferred.uses_thread_rng:
                with without_modes():  # a function mode costs 2 to 3 us per call of torch
                    batch = self._collated(rows, seeds)
            else:
                batch = self._collated(rows, seeds)
        elif get_worker_info() is not None:
            batch = self._collated(rows, seeds)
        else:
            with kept_random_state():
                batch = self._collated(rows, seeds)
        if not self.with_rows:
            return batch
        if isinstance(batch, PartBatch):
            kept = rows[~np.isin(rows, [bad.row for bad in batch.bad])]
            return batch._replace(batch=RowBatch(batch.batch, torch.from_numpy(kept)))
        return RowBatch(batch, torch.from_numpy(rows))

    def unfit_for_threads(self) -> str | None:
        """Return why worker threads cannot make the samples, or None.

        Threads share the default generators of torch, NumPy and ``random``; only code that is known
        to use torch's alone can be given its own random stream.
        """
        if self.interface.batches is not None:
            return "the data are in memory and take no workers"
        step = self.interface.thread_unsafe_step()
        if step is None and not _is_ours(self.collate_fn):
            step = f"collate_fn {self.collate_fn!r}"
        return None if step is None else f"{step} is not known to be thread-safe"

    def name(self, index: int) -> str:
        """Return the name of a sample for messages."""
        return self.interface.name(index)

    def _collated(self, rows: Indices, seeds: Seeds | None) -> Any:
        if self._own is None:  # in this process: a worker has copies
            self._own = own_generators(self.dataset)
        if self.interface.deferred is not None:
            self.interface.deferred.check_unchanged()
        samples = self._new_samples(len(rows))
        kept: list[int] = []
        bad: list[BadFile] = []
        for place, index in enumerate(rows.tolist()):
            self._set_reading(index)
            try:
                samples.add(self._sample(index, None if seeds is None else int(seeds[place])))
                kept.append(index)
            except Exception as error:
                if self.skip and unreadable(error, path := self.interface.skips.describe(index)):
                    bad.append(BadFile(index, path, str(error)))
                    continue
                name = self.name(index)
                raise SampleError(f"{name}: {type(error).__name__}: {error}") from error
            if not samples.can_join:
                self.normalizer = None  # later batches may have such samples, too
                return self._collated(rows, seeds)
        self._set_reading(-1)
        if bad and not kept:
            batch = samples.collate_fn([self.interface.skips.placeholder()])
            return PartBatch(map_tensors(lambda tensor: tensor[:0], batch), 0, bad)
        try:
            batch = samples.join()
        except StackError as error:
            raise SampleError(
                error.named(*(self.name(kept[i]) for i in error.positions))
            ) from error
        return PartBatch(batch, len(kept), bad) if bad else batch

    def _sample(self, index: int, seed: int | None) -> Any:
        """Return one sample, made with the random numbers of its seed."""
        if seed is not None:
            seed_own(self._own or (), seed)
        deferred = self.interface.deferred
        if deferred is not None and self.collate_fn in STACKS:
            return deferred.unnormalized(index, seed)
        if seed is not None:  # a user's collate_fn may use random numbers after the last sample
            seed_all(seed)
        return self.dataset[index] if deferred is None else deferred.unnormalized(index)

    def _new_samples(self, count: int) -> SampleList:
        # read once: another thread may set it to None
        collate_fn, normalizer = self.collate_fn or default_collate, self.normalizer
        if self.interface.deferred is None or normalizer is None or collate_fn not in STACKS:
            return SampleList(collate_fn)
        return NormalizedImages(normalizer, count, collate_fn)

    def _set_reading(self, index: int) -> None:
        if self.reading is not None and (info := get_worker_info()) is not None:
            self.reading[info.id] = index


def _is_ours(function: Any) -> bool:
    return getattr(function, "__module__", "").startswith("datamodules.")
