"""Measure the private and the shared memory of worker processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple


class Memory(NamedTuple):
    """Mean over the workers, in MiB.

    Attributes:
        own: Pages that no other process maps.
        shared: Pages that others map too: libraries, unchanged pages after a fork, shared memory.
    """

    own: float
    shared: float


def after_an_epoch(batches: Iterable[Any]) -> Memory | None:
    """Return the memory of the worker processes that run when the last batch is yielded.

    Args:
        batches: A loader.

    Returns:
        None without worker processes, or if the system does not report it.
    """
    total = len(batches)  # type: ignore[arg-type]
    for number, _ in enumerate(batches, 1):
        if number == total:
            found = [m for m in map(memory_of, _workers()) if m is not None]
            if not found:
                return None
            return Memory(*(sum(part) / len(found) for part in zip(*found, strict=True)))
    return None


def memory_of(process: int) -> Memory | None:
    """Return the memory of one process, as reported by the kernel."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:  # another system, or it has ended
        return None
    kib = {line.split(":")[0]: int(line.split()[1]) for line in text.splitlines()[1:]}
    own = kib["Private_Clean"] + kib["Private_Dirty"]
    return Memory(own / 1024, (kib["Rss"] - own) / 1024)


def _workers() -> list[int]:
    return [process.pid for process in multiprocessing.active_children() if process.pid]
