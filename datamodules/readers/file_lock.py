"""Lock a pack while it is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def sole_writer(target: Path) -> Iterator[None]:
    """Hold the lock file of a pack, ``<target>.lock``; the system releases it if the process dies.

    Raises:
        RuntimeError: If another process is writing the same pack.
    """
    lock = FileLock(target.with_name(f"{target.name}.lock"), blocking=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise RuntimeError(
            f"another process is writing the pack {str(target)!r}; wait until it has finished"
        ) from error
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no open file
            Path(lock.lock_file).unlink()
        lock.release()
