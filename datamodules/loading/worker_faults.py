"""Worker processes that hang, or find no shared memory: said with the file and the remedy."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import get_worker_info

from datamodules.batches.nested import tensors_of

SHARED = Path("/dev/shm")  # where Linux keeps what processes share; elsewhere there is none
PLENTY = 1 << 30  # with so many bytes free no batch is made to measure it
REMEDY = (
    "raise its size (docker run --shm-size=1g), lower batch_size, num_workers or "
    'prefetch_factor, or pass worker_type="thread" or num_workers=0'
)


def free_shared_memory() -> int | None:
    """Bytes free for what processes share; None where the system does not say."""
    try:
        return shutil.disk_usage(SHARED).free
    except OSError:
        return None


class InSharedMemory:
    """Puts a batch where the consumer gets it while an error can still be heard.

    Torch does it in a thread of the queue: where shared memory is full, that thread prints a
    traceback and goes on, and the consumer waits for ever (torch 2.14, ``/dev/shm`` of 12 MiB).
    """

    def __call__(self, batch: Any) -> Any:
        """Move a worker's batch.

        Raises:
            RuntimeError: If it does not fit.
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
    """What a loader says about its worker processes before they start and when they hang.

    Args:
        keyed: The dataset in its form for workers; ``note`` is set on it where there is a limit.
        split: Name of the split.
        rows: Samples in a batch.
        workers: Number of worker processes.
        ahead: Batches that each makes ahead.
        timeout: Seconds after which a batch is given up; 0: never.
    """

    def __init__(
        self, keyed: Any, *, split: str, rows: int, workers: int, ahead: int, timeout: float
    ) -> None:
        self.keyed, self.split, self.rows = keyed, split, rows
        self.workers, self.ahead, self.timeout = workers, ahead, timeout
        self.said = False
        self.reading = torch.full((workers,), -1, dtype=torch.int64)
        if timeout:
            keyed.reading = self.reading.share_memory_()  # type: ignore[no-untyped-call]

    def check_memory(self) -> None:
        """Warn once where the workers' batches may not fit into shared memory.

        A sample is made to measure it, but only where there is little memory.
        """
        free = free_shared_memory()
        if self.said or free is None or free >= PLENTY:
            return
        self.said = True
        batch = 0
        with suppress(Exception):  # a sample that fails does so again, in its turn
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
        """Hand batches on.

        Raises:
            RuntimeError: If no batch came within ``timeout`` seconds; names what was being read.
        """
        try:
            yield from batches
        except RuntimeError as error:
            if not self.timeout or "timed out" not in str(error):
                raise
            rows = sorted({row for row in self.reading.tolist() if row >= 0})
            names = ", ".join(map(self.keyed.name, rows[:4])) + ", ..." * (len(rows) > 4)
            raise RuntimeError(
                f"no {self.split} batch came within timeout={self.timeout:g} seconds; "
                f"the workers were at {names or 'no sample'}; see whether that file can be read, "
                'or raise loader_options={"timeout": ...}'
            ) from error


def end_workers(batches: Any) -> None:
    """End the worker processes of torch's iterator now.

    An error's traceback keeps the iterator in a cycle of references. Collected with its queues at
    some later time, it cannot reach its workers any more and waits 5 seconds for each.
    """
    end = getattr(batches, "_shutdown_workers", None)
    if end is not None:
        end()


def _mib(size: int | None) -> str:
    return "an unknown amount" if size is None else f"{size / (1 << 20):.3g} MiB"
