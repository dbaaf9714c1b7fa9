"""Keep decoded images in RAM, once for all workers.

Pixels are appended to one file in memory; an index file has the start of each image. Both are
written by system calls, pixels first, and read through memory maps: readers take no lock, full
memory is an error instead of a signal that ends the worker, and processes started by fork,
forkserver or spawn need only the folder's name.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import tempfile
import threading
import time
import warnings
import weakref
from contextlib import suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]

SHARED = Path("/dev/shm")
MEMINFO = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
PREFIX = "lightning-datamodules-"
PIXELS, INDEX = "pixels", "index"
NEW_SECONDS = 60
SHARE = 0.5  # of the free memory, without cache_bytes
HEAD = struct.Struct("<4I")  # kind, and three sizes: 0 for a missing dimension


def check_cache(cache: Any, cache_bytes: Any) -> None:
    """Check the options of the cache when the datamodule is created.

    Raises:
        ValueError: If ``cache`` is unknown, or ``cache_bytes`` is not a number of bytes or has no
            effect.
    """
    if cache not in (None, "ram"):
        raise ValueError(f"cache must be None or 'ram', got {cache!r}")
    if cache_bytes is None:
        return
    if isinstance(cache_bytes, bool) or not isinstance(cache_bytes, int) or cache_bytes < 1:
        raise ValueError(f"cache_bytes must be a whole number of bytes, got {cache_bytes!r}")
    if cache is None:
        raise ValueError('cache_bytes has no effect without cache="ram"; add it')


class RamCache:
    """8-bit images by part and number, kept after their first use.

    The folder is removed when the process that created it ends; a folder left by a killed process
    is removed when the next cache is created.

    Args:
        limit: Most bytes; None: half of the free memory, divided by ``ranks``.
        ranks: Processes of the run on this machine, each with its own cache.

    Raises:
        RuntimeError: If less memory than ``limit`` is free, or on Windows.

    Example:
        >>> cache = RamCache(1 << 20)
        >>> cache.add_part("train", 10)
        >>> cache.put("train", 3, 0, np.zeros((2, 2, 3), np.uint8))
        >>> kind, pixels = cache.get("train", 3)
        >>> pixels.shape, str(cache)
        ((2, 2, 3), '1 images in RAM, 28 bytes of at most 1.0 MiB')
    """

    def __init__(self, limit: int | None = None, *, ranks: int = 1) -> None:
        if os.name != "posix":
            raise RuntimeError('cache="ram" needs Linux or macOS; leave it out here')
        above = memory_folder()
        _remove_stale(above)
        free = free_bytes(above)
        if limit is not None and limit > free:
            raise RuntimeError(
                f"cache_bytes={limit} ({as_size(limit)}) is more than the {as_size(free)} that are "
                f"free in {above}; lower it, free memory, or give a container more (--shm-size)"
            )
        self.limit = int(free * SHARE / max(1, ranks)) if limit is None else limit
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=above))
        (self.folder / PIXELS).touch()
        self._opened: Opened | None = None
        # weakref.finalize is not called at the end of a spawned rank; neither is in a forked worker
        Finalize(self, shutil.rmtree, (self.folder, True), exitpriority=-100)
        self._open()  # holds the folder from now on

    def add_part(self, part: str, count: int) -> None:
        """Create the index of a part with numbers 0 to ``count`` - 1, if it does not exist."""
        file = self.folder / f"{INDEX}-{part}"
        if not file.exists() and self.folder.is_dir():
            with file.open("wb") as index:
                index.truncate(8 * max(1, count))

    def get(self, part: str, number: int) -> tuple[int, Pixels] | None:
        """Return kind and pixels of an image, or None; do not write to the pixels."""
        opened = self._open()
        return None if opened is None else opened.get(part, number)

    def put(self, part: str, number: int, kind: int, pixels: Pixels) -> None:
        """Keep an image for every process, unless the limit is reached.

        Args:
            part: Part of the image, such as a split.
            number: Its number in the part.
            kind: A number that :meth:`get` returns with the pixels.
            pixels: uint8 of one to three dimensions.

        Raises:
            RuntimeError: If memory is full before the limit is reached.
        """
        opened = self._open()
        if opened is not None:
            opened.put(part, number, kind, pixels, self.limit)

    @property
    def used(self) -> int:
        """Bytes in use."""
        with suppress(FileNotFoundError):
            return (self.folder / PIXELS).stat().st_size
        return 0

    def counts(self) -> dict[str, int]:
        """Return the number of images in the cache, by part."""
        return {
            file.name.removeprefix(f"{INDEX}-"): int(np.count_nonzero(np.fromfile(file, np.int64)))
            for file in sorted(self.folder.glob(f"{INDEX}-*"))
        }

    def __str__(self) -> str:
        kept = sum(self.counts().values())
        return f"{kept:,} images in RAM, {as_size(self.used)} of at most {as_size(self.limit)}"

    def __getstate__(self) -> dict[str, Any]:
        return {"limit": self.limit, "folder": self.folder, "_opened": None}

    def _open(self) -> Opened | None:
        """Open the files once in each process; None if their owner has ended."""
        opened = self._opened
        if opened is None or opened.pid != os.getpid():  # a forked process shares the file position
            try:
                opened = self._opened = Opened(self.folder)
            except FileNotFoundError:
                return None
        return opened


class Opened:
    """The files of a cache, opened by one process.

    Args:
        folder: Where they lie.

    Raises:
        FileNotFoundError: If they are gone.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.pid, self.full = folder, os.getpid(), False
        # an append is atomic, also with other writers
        self._file = os.open(folder / PIXELS, os.O_RDWR | os.O_APPEND)
        self._close = weakref.finalize(self, os.close, self._file)
        _hold(self._file)
        self._lock = threading.Lock()
        self._map: memoryview = memoryview(b"")
        self._parts: dict[str, tuple[npt.NDArray[np.int64], int]] = {}

    def get(self, part: str, number: int) -> tuple[int, Pixels] | None:
        """See :meth:`RamCache.get`."""
        start = int(self._index(part)[0][number]) - 1  # 0: not in the cache
        if start < 0:
            return None
        if start >= len(self._map):
            # copy on write: other readers do not see what a caller does to the pixels
            self._map = memoryview(mmap.mmap(self._file, 0, access=mmap.ACCESS_COPY))
        kind, *sizes = HEAD.unpack_from(self._map, start)
        shape = [size for size in sizes if size]
        raw = np.frombuffer(self._map, np.uint8, int(np.prod(shape)), start + HEAD.size)
        return kind, raw.reshape(shape)

    def put(self, part: str, number: int, kind: int, pixels: Pixels, limit: int) -> None:
        """See :meth:`RamCache.put`."""
        needed, used = HEAD.size + pixels.nbytes, os.fstat(self._file).st_size
        if used + needed > limit:
            if not self.full:
                self.full = True
                warnings.warn(
                    f'cache="ram" is full at {as_size(used)}: the other images are decoded each '
                    "time; raise cache_bytes to keep them, too",
                    stacklevel=2,
                )
            return
        sizes = [*pixels.shape, 0, 0][:3]
        content = HEAD.pack(kind, *sizes) + pixels.tobytes()
        file = self._index(part)[1]
        with self._lock:
            try:
                written = os.write(self._file, content)
            except OSError as error:
                raise self._full_memory(needed, used) from error
            if written < needed:
                raise self._full_memory(needed, used)
            start = os.lseek(self._file, 0, os.SEEK_CUR) - needed
        os.pwrite(file, struct.pack("<q", start + 1), 8 * number)

    def _index(self, part: str) -> tuple[npt.NDArray[np.int64], int]:
        if part not in self._parts:
            file = os.open(self.folder / f"{INDEX}-{part}", os.O_RDWR)
            weakref.finalize(self, os.close, file)
            numbers = np.frombuffer(mmap.mmap(file, 0, access=mmap.ACCESS_READ), np.int64)
            self._parts[part] = numbers, file
        return self._parts[part]

    def _full_memory(self, needed: int, used: int) -> RuntimeError:
        total = shutil.disk_usage(self.folder)
        return RuntimeError(
            f'cache="ram": {self.folder.parent} is full: {as_size(total.total)} in total, '
            f"{as_size(total.free)} free; the cache uses {as_size(used)}, the next image "
            f"needs {as_size(needed)}; lower cache_bytes, free memory, or give a container more "
            "(--shm-size)"
        )


def _hold(file: int) -> None:
    """Mark the folder as used, as long as ``file`` is open."""
    import fcntl

    fcntl.flock(file, fcntl.LOCK_SH)


def _remove_stale(above: Path) -> None:
    """Remove folders without a lock: the processes that created them were killed."""
    import fcntl

    for folder in above.glob(f"{PREFIX}*"):
        try:
            if time.time() - folder.stat().st_mtime < NEW_SECONDS:  # not locked yet
                continue
            file = os.open(folder / PIXELS, os.O_RDWR)
        except OSError:  # owned by another user, or removed
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(file)


def as_size(count: int) -> str:
    """Format a number of bytes.

    Example:
        >>> as_size(512), as_size(64 << 20), as_size(3_700_000_000)
        ('512 bytes', '64.0 MiB', '3.4 GiB')
    """
    power = min(len(UNITS) - 1, max(0, (count.bit_length() - 1) // 10))
    return f"{count / 1024**power:.1f} {UNITS[power]}" if power else f"{count} bytes"


def memory_folder() -> Path:
    """Return a folder whose files are in memory, else the folder for temporary files."""
    return SHARED if os.access(SHARED, os.W_OK) else Path(tempfile.gettempdir())


def free_bytes(folder: Path) -> int:
    """Return how large a file in ``folder`` can be without pushing programs out of memory."""
    return min(shutil.disk_usage(folder).free, *_free_memory())


def _free_memory() -> list[int]:
    """Return the available memory of the system, and of the control group if it has a limit."""
    available = []
    try:
        lines = dict(line.split(":") for line in MEMINFO.read_text().splitlines() if ":" in line)
        available.append(int(lines["MemAvailable"].split()[0]) << 10)
    except (OSError, KeyError, ValueError):  # macOS reports only the total
        available.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    try:
        limit = int((GROUP / "memory.max").read_text())
        used = int((GROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
        available.append(max(0, limit - used + int(stat.get("inactive_file", 0))))
    except (OSError, ValueError):  # no such file, or "max"
        pass
    return available
