"""Compare the batches of two runs by digests, and stop waiting for a batch that hangs."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import FrameType
from typing import Any

import torch

from datamodules.core.accessors import loader_of
from datamodules.core.datamodule import DataModule

from .split_view import digest

Digests = list[dict[str, bytes]]
"""Digest of each part of each batch, by the part's name."""


def run_batches(dm: DataModule, limit: int, *, timeout_seconds: float) -> tuple[str, Digests]:
    """Take train batches of a new loader until they have ``limit`` samples.

    Args:
        dm: The datamodule.
        limit: Samples.
        timeout_seconds: For a batch made in this process; workers have their own limit.

    Returns:
        Shapes and dtypes of the first batch, and the digests of all.

    Raises:
        TimeoutError: If a sample hangs, in the main thread of systems with alarms.
    """
    shape, taken, digests = "", 0, Digests()
    # workers have torch's own limit, and may take long to start
    with (
        alarm(None if dm.hparams["num_workers"] else timeout_seconds) as restart,
        closing(loader_of(dm, "train")) as loader,
    ):
        for batch in loader:
            restart()
            shape = shape or shape_text(batch)
            taken += int(dm.hparams["batch_size"])
            digests.append({name: digest(content) for name, content in parts(batch)})
            del batch
            if taken >= limit:
                break
    return shape, digests


def parts(batch: Any, name: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each tensor or other value of a batch.

    Example:
        >>> [name for name, _ in parts((torch.zeros(2), {"mask": torch.ones(2)}))]
        ['part 0', 'part 1.mask']
    """
    if isinstance(batch, torch.Tensor):
        array = batch.detach().cpu().contiguous()
        content = array.reshape(-1).view(torch.uint8).numpy().tobytes() if array.numel() else b""
        yield name or "the batch", f"{array.dtype} {tuple(array.shape)} ".encode() + content
    elif isinstance(batch, tuple | list | dict):
        fields = getattr(batch, "_fields", None) or [f"part {k}" for k in range(len(batch))]
        items = batch.items() if isinstance(batch, dict) else zip(fields, batch, strict=True)
        for field, value in items:
            yield from parts(value, f"{name}.{field}".lstrip("."))
    else:
        yield name or "the batch", repr(batch).encode()


def difference(before: Digests, after: Digests) -> str | None:
    """Return the first difference of two runs, or None.

    Example:
        >>> difference([{"target": b"1"}, {"target": b"2"}], [{"target": b"2"}, {"target": b"1"}])
        'the same batches come in another order'
    """
    if before == after:
        return None
    if len(before) != len(after):
        return f"{len(after)} batches in place of {len(before)}"
    if sorted(map(repr, before)) == sorted(map(repr, after)):
        return "the same batches come in another order"
    wrong = [k for k, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    one, other = before[wrong[0]], after[wrong[0]]
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    return f"{len(wrong)} of {len(after)} batches, first {', '.join(names)} of batch {wrong[0]}"


@contextmanager
def alarm(seconds: float | None) -> Iterator[Callable[[], Any]]:
    """Raise a TimeoutError if this process hangs; calling the value restarts the time.

    Only in the main thread, and on systems with alarms (not Windows). An alarm that was set before
    continues afterwards. None sets no alarm.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if seconds is None or not in_main or not hasattr(signal, "setitimer"):
        yield lambda: None
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no batch came for {seconds:.0f} s")

    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_REAL, seconds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            remaining = max(0.001, left - (time.monotonic() - began))
            signal.setitimer(signal.ITIMER_REAL, remaining, interval)


def shape_text(batch: Any) -> str:
    """Return shapes and dtypes of a batch in one line.

    Example:
        >>> shape_text((torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)))
        '(2, 3) float32, (2,) int64'
    """
    if isinstance(batch, torch.Tensor):
        return f"{tuple(batch.shape)} {str(batch.dtype).removeprefix('torch.')}"
    if isinstance(batch, dict):
        return ", ".join(f"{name} {shape_text(value)}" for name, value in batch.items())
    if isinstance(batch, list | tuple):
        return ", ".join(map(shape_text, batch[:4]))
    return type(batch).__name__
