"""Report worker processes that hang or run out of shared memory, with the file and the remedy."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import get_worker_info
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from datamodules.batches.nested import tensors_of

SHARED = Path("/dev/shm")  # shared memory of Linux
PLENTY = 1 << 30  # bytes; with as many free the size of a batch is not measured
REMEDY = (
    "raise its size (docker run --shm-size=1g), lower batch_size, num_workers or "
    'prefetch_factor, or pass worker_type="thread" or num_workers=0'
)


def free_shared_memory() -> int | None:
    """Return the free bytes of shared memory; None if the system does not tell."""
    try:
        return shutil.disk_usage(SHARED).free
    except OSError:
        return None


class InSharedMemory:
    """Collate function that moves a worker's batch to shared memory, where an error is raised.

    Torch does it in a thread of the queue: if shared memory is full, that thread prints a traceback
    and continues, and the consumer waits forever (torch 2.14, ``/dev/shm`` of 12 MiB). Delete it
    when torch raises that error in the consumer (https://github.com/pytorch/pytorch/issues/5040).
    """

    def __call__(self, batch: Any) -> Any:
        """Return the batch with its CPU tensors in shared memory.

        Raises:
            RuntimeError: If they do not fit.
        """
        if get_worker_info() is None:
            return batch
        for tensor in tensors_of(batch):
            if tensor.device.type != "cpu" or tensor.layout != torch.strided:
                continue
            try:
                tensor.share_memory_()  # type: ignore[no-untyped-call]
            except RuntimeError as error:
                need = sum(part.nbytes for part in tensors_of(batch))
                raise RuntimeError(
                    f"a batch of {_mib(need)} does not fit into shared memory, {SHARED} has "
                    f"{_mib(free_shared_memory())} free; {REMEDY} ({error})"
                ) from error
        return batch


class WorkerWatch:
    """Checks shared memory before worker processes start and names the file if one hangs.

    Args:
        keyed: The loader's :class:`~datamodules.loading.fetch.KeyedDataset`; with a timeout its
            ``reading`` is set.
        split: Name of the split.
        rows: Samples per batch.
        workers: Number of worker processes.
        ahead: Batches prepared ahead by each worker.
        timeout: Seconds after which waiting for a batch is an error; 0: never.
    """

    def __init__(
        self, keyed: Any, *, split: str, rows: int, workers: int, ahead: int, timeout: float
    ) -> None:
        self.keyed, self.split, self.rows = keyed, split, rows
        self.workers, self.ahead, self.timeout = workers, ahead, timeout
        self._warned = False
        self.reading = torch.full((workers,), -1, dtype=torch.int64)
        if timeout:
            keyed.reading = self.reading.share_memory_()  # type: ignore[no-untyped-call]

    def check_memory(self) -> None:
        """Warn once if the workers' batches may not fit into shared memory.

        One sample is made to measure its size, but only if there is little memory.
        """
        free = free_shared_memory()
        if self._warned or free is None or free >= PLENTY:
            return
        self._warned = True
        batch = 0
        with suppress(Exception):  # a sample that fails is reported with its batch
            batch = self.rows * sum(
                part.nbytes for part in tensors_of(self.keyed.__getitems__([0]))
            )
        need = batch * self.ahead * self.workers
        if need > free:
            warnings.warn(
                f"the {self.split} loader may need {_mib(need)} of shared memory "
                f"({_mib(batch)} a batch, {self.ahead} ahead in each of {self.workers} workers), "
                f"{SHARED} has {_mib(free)} free; {REMEDY}",
                stacklevel=3,
            )

    def over(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield batches.

        Raises:
            RuntimeError: If there was no batch within ``timeout`` seconds; names the samples that
                workers were reading.
        """
        try:
            yield from batches
        except RuntimeError as error:
            if not self.timeout or "timed out" not in str(error):
                raise
            rows = sorted({row for row in self.reading.tolist() if row >= 0})
            names = ", ".join(map(self.keyed.name, rows[:4])) + ", ..." * (len(rows) > 4)
            raise RuntimeError(
                f"no {self.split} batch within timeout={self.timeout:g} seconds; the workers were "
                f"reading {names or 'no sample'}; check that the file can be read, "
                'or raise loader_options={"timeout": ...}'
            ) from error


def end_workers(batches: Any) -> None:
    """Shut down the worker processes of torch's iterator now.

    The traceback of an error keeps the iterator in a reference cycle. Garbage collected later, it
    cannot reach its workers any more and waits 5 seconds for each.
    """
    if isinstance(batches, _MultiProcessingDataLoaderIter):
        batches._shutdown_workers()


def _mib(size: int | None) -> str:
    return "an unknown amount" if size is None else f"{size / (1 << 20):.3g} MiB"
