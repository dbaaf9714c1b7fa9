"""Batches run over once more: what they hold, by digest, and the end of waiting for one."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from datamodules.core.datamodule import DataModule
from datamodules.insight.tuning.trials import end_workers

from .split_view import digest

Digests = list[dict[str, bytes]]
"""Of each batch the digest of each of its parts, by name."""


def run_over(dm: DataModule, limit: int, *, timeout_seconds: float) -> tuple[str, Digests]:
    """Take train batches until ``limit`` samples were asked for.

    Args:
        dm: Its loader is built anew.
        limit: Samples.
        timeout_seconds: For a batch that this process makes itself; workers have their own limit.

    Returns:
        What the first batch is, and the digests of all.

    Raises:
        TimeoutError: From where a sample hangs, in the main thread where there are alarms.
    """
    said, asked, found = "", 0, Digests()
    # workers have torch's own limit, and may take long to start
    with alarm(None if dm.hparams["num_workers"] else timeout_seconds) as again:
        loader = dm._loader("train")
        try:
            for batch in loader:
                again()
                said = said or shape_text(batch)
                asked += int(dm.hparams["batch_size"])
                found.append({name: digest(content) for name, content in parts(batch)})
                del batch
                if asked >= limit:
                    break
        finally:
            end_workers(loader)
    return said, found


def parts(batch: Any, name: str = "") -> Iterator[tuple[str, bytes]]:
    """Name and content of each tensor or other value of a batch.

    Example:
        >>> [name for name, _ in parts((torch.zeros(2), {"mask": torch.ones(2)}))]
        ['part 0', 'part 1.mask']
    """
    if isinstance(batch, torch.Tensor):
        array = batch.detach().cpu().contiguous()
        head = f"{array.dtype} {tuple(array.shape)} ".encode()
        yield (
            name or "the batch",
            head + array.view(torch.uint8).numpy().tobytes()
            if (array.numel() and array.ndim)
            else head + repr(array.tolist()).encode(),
        )
    elif isinstance(batch, tuple | list | dict):
        fields = getattr(batch, "_fields", None) or [f"part {k}" for k in range(len(batch))]
        items = batch.items() if isinstance(batch, dict) else zip(fields, batch, strict=True)
        for field, value in items:
            yield from parts(value, f"{name}.{field}".lstrip("."))
    else:
        yield name or "the batch", repr(batch).encode()


def difference(before: Digests, after: Digests) -> str | None:
    """The first thing in which two runs differ, or None.

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
    place = next(k for k, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1])
    one, other = before[place], after[place]
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    count = sum(a != b for a, b in zip(before, after, strict=True))
    return f"{count} of {len(after)} batches, first {', '.join(names)} of batch {place}"


@contextmanager
def alarm(seconds: float | None) -> Iterator[Any]:
    """Raise a TimeoutError where this process hangs; the value, when called, starts anew.

    Only in the main thread, and where the system has alarms (not on Windows); an alarm that was
    set before goes on afterwards. None sets none.
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
            rest = max(0.001, left - (time.monotonic() - began))
            signal.setitimer(signal.ITIMER_REAL, rest, interval)


def shape_text(batch: Any) -> str:
    """Shapes and dtypes of a batch in one line.

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
