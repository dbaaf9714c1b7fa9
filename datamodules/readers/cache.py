"""Cache results on disk between runs, under a digest of their inputs."""

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
    """Return ``$DATAMODULES_CACHE``, or a folder in the cache directory of the platform.

    The folder can be deleted at any time.
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
    """Read an entry of the cache; if there is none, make it and write it atomically.

    A cache that cannot be written is not an error: the entry is made again next time.

    Args:
        name: File name, with a digest of everything that the content depends on.
        make: Makes the content.
        read: Reads the content from a path; if it raises any error, the entry is made again.
        write: Writes the content to a path.
    """
    path = cache_folder() / name
    if path.is_file():
        with suppress(Exception):
            return read(path)
    made = make()
    half: Path | None = None
    with suppress(OSError, RuntimeError):  # torch raises RuntimeError if the disk is full
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
    """Return folder ``name`` of the cache; written under another name and then renamed."""
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
    whole = half / name  # the folder made by mkdtemp is private to its user
    try:
        whole.mkdir()
        with named_writes(whole):
            write(whole)
        whole.rename(folder)
    except OSError:
        if not folder.is_dir():  # otherwise another process was faster, with the same content
            raise
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return folder
