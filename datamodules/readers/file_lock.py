"""One writer at a time: a lock that the system gives up with the process that holds it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def sole_writer(target: Path) -> Iterator[None]:
    """Hold the lock of a pack; the system gives it up when the process ends, however it ends."""
    path = target.with_name(target.name + ".lock")
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(handle)
        except OSError as error:
            os.close(handle)
            raise RuntimeError(
                f"another process is writing the pack {str(target)!r}; wait until it has finished"
            ) from error
        with suppress(OSError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                break
        os.close(handle)  # the writer before removed it between the two calls
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no open file
            path.unlink()
        os.close(handle)


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock file at ``path``, then hold it.

    The file stays: removed, it could be held twice.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _lock(handle, wait=True)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, *, wait: bool = False) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        while True:
            try:
                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            except OSError:
                if not wait:
                    raise
                time.sleep(0.2)
            else:
                return
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
