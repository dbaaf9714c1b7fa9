"""Results kept on disk between runs, named by what they were made from."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from .atomic_write import named_writes

T = TypeVar("T")


def cache_folder() -> Path:
    """``$DATAMODULES_CACHE``, else a folder in the platform's place for caches.

    Entries are named by their content, so the folder can be deleted at any time.
    """
    if chosen := os.environ.get("DATAMODULES_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(base).expanduser() / "lightning-datamodules"


def cached(
    name: str, make: Callable[[], T], read: Callable[[Path], T], write: Callable[[T, Path], Any]
) -> T:
    """Read an entry of the cache, or make it, and write it whole or not at all.

    A cache that cannot be written only costs time, so it is no error.

    Args:
        name: File name, with a digest of everything that the content follows from.
        make: Makes the content.
        read: Reads it; whatever it raises, the entry is made again.
        write: Writes it to a path.
    """
    path = cache_folder() / name
    if path.is_file():
        with suppress(Exception):
            return read(path)
    made = make()
    half: Path | None = None
    with suppress(OSError, RuntimeError):  # torch says a full disk by RuntimeError
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{name}-", dir=path.parent)
        os.close(handle)
        half = Path(temporary)
        write(made, half)
        half.replace(path)
    if half is not None:
        with suppress(OSError):
            half.unlink(missing_ok=True)
    return made


def written_once(name: str, write: Callable[[Path], None]) -> Path:
    """Folder ``name`` of the cache, written under another name and switched in when whole."""
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
    whole = half / name  # mkdtemp's own folder is for its user alone
    try:
        whole.mkdir()
        with named_writes(whole):
            write(whole)
        whole.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another process was faster, with the same content
            raise
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return folder
