"""Decoded images kept once for all workers, in files in the machine's memory.

Pixels are appended to one file; an index of a number an image says where they begin. Both are
written by system calls, pixels first, and read through memory maps: no reader takes a lock, full
memory is an error and no signal that ends the worker, and processes made by fork, forkserver or
spawn need no more than the folder's name.
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

from .free_memory import as_size, free_bytes, memory_folder

Pixels = npt.NDArray[np.uint8]

PREFIX = "lightning-datamodules-"
PIXELS, INDEX = "pixels", "index"
NEW_SECONDS = 60
SHARE = 0.5  # of the free memory, where no limit is given
HEAD = struct.Struct("<4I")  # kind, and three sizes: 0 for a dimension that is not there


def check_cache(cache: Any, cache_bytes: Any) -> None:
    """Refuse settings of the cache that cannot work, when the datamodule is built.

    Raises:
        ValueError: For another kind of cache, or a limit that is no number of bytes.
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
    """8-bit images by part and number, kept from their first use on.

    The folder goes when its maker does, and one that a killed process left goes when the next
    cache is made.

    Args:
        limit: The most bytes; None: half of what is free, shared between the ranks.
        ranks: Processes of the run on this machine, each of which keeps its own.

    Raises:
        RuntimeError: If the machine has less room than ``limit``, or no way to share it.
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
        # weakref.finalize is not called where a rank that was spawned ends; in a forked worker's
        # copy of the maker neither does anything
        Finalize(self, shutil.rmtree, (self.folder, True), exitpriority=-100)
        self._here()  # holds the folder from the first moment

    def add_part(self, part: str, count: int) -> None:
        """Make room for the numbers 0 to ``count`` - 1 of a part; does nothing the second time."""
        file = self.folder / f"{INDEX}-{part}"
        if not file.exists() and self.folder.is_dir():
            with file.open("wb") as index:
                index.truncate(8 * max(1, count))

    def get(self, part: str, number: int) -> tuple[int, Pixels] | None:
        """Kind and pixels of an image, or None; the memory is the cache's own, to be read only."""
        here = self._here()
        return None if here is None else here.get(part, number)

    def put(self, part: str, number: int, kind: int, pixels: Pixels) -> None:
        """Keep an image for every process, unless the limit is reached.

        Args:
            part: Which numbers are meant.
            number: Its number in the part.
            kind: A number that comes back with the pixels.
            pixels: uint8 of one to three dimensions.

        Raises:
            RuntimeError: If memory is full before the limit is reached.
        """
        here = self._here()
        if here is not None:
            here.put(part, number, kind, pixels, self.limit)

    @property
    def used(self) -> int:
        """Bytes taken."""
        with suppress(FileNotFoundError):
            return (self.folder / PIXELS).stat().st_size
        return 0

    def counts(self) -> dict[str, int]:
        """Images kept, by part."""
        found = {}
        for file in sorted(self.folder.glob(f"{INDEX}-*")):
            found[file.name.removeprefix(f"{INDEX}-")] = int(
                np.count_nonzero(np.fromfile(file, np.int64))
            )
        return found

    def __str__(self) -> str:
        kept = sum(self.counts().values())
        return f"{kept:,} images in RAM, {as_size(self.used)} of at most {as_size(self.limit)}"

    def __getstate__(self) -> dict[str, Any]:
        return {"limit": self.limit, "folder": self.folder, "_opened": None}

    def _here(self) -> Opened | None:
        """The files as this process has opened them; None when their maker has gone."""
        opened = self._opened
        if opened is None or opened.pid != os.getpid():  # a fork shares the place in the file
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
        # appending takes place and length at once, whoever else appends
        self._file = os.open(folder / PIXELS, os.O_RDWR | os.O_APPEND)
        self._close = weakref.finalize(self, os.close, self._file)
        _hold(self._file)
        self._lock = threading.Lock()
        self._map: memoryview = memoryview(b"")
        self._parts: dict[str, tuple[npt.NDArray[np.int64], int]] = {}

    def get(self, part: str, number: int) -> tuple[int, Pixels] | None:
        """See :meth:`RamCache.get`."""
        start = int(self._index(part)[0][number]) - 1  # 0: not there yet
        if start < 0:
            return None
        if start >= len(self._map):
            # a copy on writing: nothing that is done to the pixels reaches another reader
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
                    "time; raise cache_bytes, or leave it so",
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
                raise self._no_room(needed, used) from error
            if written < needed:
                raise self._no_room(needed, used)
            start = os.lseek(self._file, 0, os.SEEK_CUR) - needed
        os.pwrite(file, struct.pack("<q", start + 1), 8 * number)

    def _index(self, part: str) -> tuple[npt.NDArray[np.int64], int]:
        if part not in self._parts:
            file = os.open(self.folder / f"{INDEX}-{part}", os.O_RDWR)
            weakref.finalize(self, os.close, file)
            numbers = np.frombuffer(mmap.mmap(file, 0, access=mmap.ACCESS_READ), np.int64)
            self._parts[part] = numbers, file
        return self._parts[part]

    def _no_room(self, needed: int, used: int) -> RuntimeError:
        total = shutil.disk_usage(self.folder)
        return RuntimeError(
            f'cache="ram": {self.folder.parent} is full: it holds {as_size(total.total)}, '
            f"{as_size(total.free)} are free, the cache has {as_size(used)} and the next image "
            f"needs {as_size(needed)}; lower cache_bytes, free memory, or give a container more "
            "(--shm-size)"
        )


def _hold(file: int) -> None:
    """Show that somebody uses the folder, for as long as ``file`` is open."""
    import fcntl

    fcntl.flock(file, fcntl.LOCK_SH)


def _remove_stale(above: Path) -> None:
    """Remove folders that nobody holds: their makers were killed."""
    import fcntl

    for folder in above.glob(f"{PREFIX}*"):
        try:
            if time.time() - folder.stat().st_mtime < NEW_SECONDS:  # its maker may not hold it yet
                continue
            file = os.open(folder / PIXELS, os.O_RDWR)
        except OSError:  # another user's, or gone
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(file)
