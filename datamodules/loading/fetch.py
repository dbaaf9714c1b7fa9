"""What a worker does: samples of one batch, each from a random stream of its own."""

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
from datamodules.batches.nested import map_tensors
from datamodules.batches.normalize import Normalizer
from datamodules.sampling.sharded_sampler import Keys
from datamodules.seeding.random_state import kept_random_state, own_generators, seed_all, seed_own
from datamodules.seeding.sample_seeds import Indices, Seeds
from datamodules.seeding.thread_rng import active_stream, without_modes

from .batch_rows import STACKS, NormalizedRows, Rows


class SampleError(RuntimeError):
    """A sample could not be made; the message names it and the cause."""


class KeyedDataset(Dataset[Any]):
    """A map-style dataset asked by :class:`Keys`: each sample draws from a stream of its own.

    A dataset with ``get_batch(indices, seeds)`` serves the whole batch in one go. Any other is
    asked item by item, after torch's, NumPy's and Python's generators were seeded for the sample,
    and those that its transforms keep for themselves, or is given the seed where it draws all by
    itself; samples are joined here, where they have names for the errors.

    Args:
        dataset: Map-style.
        collate_fn: Samples to batch; None for a dataset that serves whole batches.
        with_rows: Make batches :class:`RowBatch`, for a predict loader.
        skip: Leave samples out whose file cannot be read; the dataset has ``describe(index)``, the
            path, and ``blank()``, a sample of the same shape. Such a batch is a
            :class:`PartBatch`.

    Attributes:
        normalizer: Done to each image as it is made, where the samples are made in this process and
            wait for it; None leaves it to whoever takes the batch.
        reading: (W,) int64 in shared memory, the row that each of W workers is at, -1 for none;
            None where nobody wants to know.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        collate_fn: Callable[[Any], Any] | None = None,
        with_rows: bool = False,
        skip: bool = False,
    ) -> None:
        self.dataset, self.collate_fn, self.with_rows = dataset, collate_fn, with_rows
        self.skip = skip
        self._own: list[Any] | None = None
        self.normalizer: Normalizer | None = None
        self.reading: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_own": None}

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, keys: Keys | Sequence[int]) -> Any:
        """One finished batch."""
        rows, seeds = keys if isinstance(keys, Keys) else (np.asarray(keys, np.int64), None)
        if hasattr(self.dataset, "get_batch"):
            batch = self.dataset.get_batch(rows, seeds)
        elif active_stream() is not None and getattr(self.dataset, "draws_alone", False):
            with without_modes():  # the thread's takes 2 to 3 us of each of torch's calls
                batch = self._joined(rows, seeds)
        elif get_worker_info() is not None or active_stream() is not None:
            batch = self._joined(rows, seeds)
        else:
            with kept_random_state():
                batch = self._joined(rows, seeds)
        if not self.with_rows:
            return batch
        if isinstance(batch, PartBatch):
            kept = rows[~np.isin(rows, [bad.row for bad in batch.bad])]
            return batch._replace(batch=RowBatch(batch.batch, torch.from_numpy(kept)))
        return RowBatch(batch, torch.from_numpy(rows))

    def unfit_for_threads(self) -> str | None:
        """Why worker threads cannot make the samples, or None.

        They share torch's default generator, ``random``'s and NumPy's: only what is known to draw
        from torch alone can be given a stream of its own.
        """
        if hasattr(self.dataset, "get_batch"):
            return "the data are in memory and take no workers"
        if not hasattr(self.dataset, "drawn_elsewhere"):
            return f"{type(self.dataset).__name__} is not known to be safe in threads"
        if not getattr(self.collate_fn, "__module__", "").startswith("datamodules."):
            return f"nothing is known of the collate_fn {self.collate_fn!r}"
        step = self.dataset.drawn_elsewhere()
        return None if step is None else f"nothing is known of the draws of {step}"

    def _joined(self, rows: Indices, seeds: Seeds | None) -> Any:
        if self._own is None:  # in this process: a worker has copies
            self._own = own_generators(self.dataset)
        if self._leaves:
            self.dataset.check_unchanged()
        made = self._rows(len(rows))
        kept: list[int] = []
        bad: list[BadFile] = []
        for place, index in enumerate(rows.tolist()):
            self._note(index)
            try:
                made.take(self._sample(index, None if seeds is None else int(seeds[place])))
                kept.append(index)
            except Exception as error:
                if self.skip and unreadable(error, path := self.dataset.describe(index)):
                    bad.append(BadFile(index, path, str(error)))
                    continue
                name = self.name(index)
                raise SampleError(f"{name}: {type(error).__name__}: {error}") from error
            if not made.is_whole:
                self.normalizer = None  # such samples may come again
                return self._joined(rows, seeds)
        self._note(-1)
        if bad and not kept:
            return PartBatch(
                map_tensors(lambda t: t[:0], made.join([self.dataset.blank()])), 0, bad
            )
        try:
            batch = made.joined()
        except StackError as error:
            raise SampleError(
                error.named(*(self.name(kept[i]) for i in error.positions))
            ) from error
        return PartBatch(batch, len(kept), bad) if bad else batch

    def _sample(self, index: int, seed: int | None) -> Any:
        """One sample from a stream of its own."""
        if seed is not None:
            seed_own(self._own or (), seed)
        if self._leaves and self.collate_fn in STACKS:
            return self.dataset.unnormalized(index, seed)
        if seed is not None:  # a collate_fn of the user's own may draw after the last sample
            seed_all(seed)
        return self.dataset.unnormalized(index) if self._leaves else self.dataset[index]

    @property
    def _leaves(self) -> bool:
        """Whether the samples leave to the finishing step what is the same for all of them."""
        return hasattr(type(self.dataset), "unnormalized")

    def _rows(self, count: int) -> Rows:
        # asked once: another thread may meet a sample that is not to be finished
        join, normalizer = self.collate_fn or default_collate, self.normalizer
        if self._leaves and normalizer is not None and join in STACKS:
            return NormalizedRows(normalizer, count, join)
        return Rows(join)

    def _note(self, index: int) -> None:
        if self.reading is not None and (info := get_worker_info()) is not None:
            self.reading[info.id] = index

    def name(self, index: int) -> str:
        """A sample, for messages: its number, and its file where it has one."""
        said = self.dataset.describe(index) if hasattr(self.dataset, "describe") else ""
        return f"sample {index} ({said})" if said else f"sample {index}"
