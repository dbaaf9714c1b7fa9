"""Writing that a full disk may stop: the error names the file, and no half file is left."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FULL = {
    errno.ENOSPC: "free some space",
    errno.EFBIG: "raise the limit of a file's size",
    getattr(errno, "EDQUOT", -1): "free some of your quota",
}


@contextmanager
def named_writes(path: Path, *, remove: bool = False) -> Iterator[None]:
    """Give the path to the system's errors about writing, which come without it.

    Args:
        path: The file, or the folder that holds it.
        remove: Whether to remove the file after an error.

    Raises:
        OSError: The system's own, with the path, and what to do about a full disk.
    """
    try:
        yield
    except BaseException as error:
        if remove:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        if not isinstance(error, OSError) or error.errno is None:
            raise
        remedy = FULL.get(error.errno)
        said = error.strerror if remedy is None else f"{error.strerror} ({remedy})"
        place = error.filename2 or error.filename or str(path)  # of a copy, where it goes
        raise OSError(error.errno, said, place) from error


def write_all(file: io.FileIO, content: bytes) -> None:
    """Write to an unbuffered file, which may take a part at a time; a buffer fails when closed."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]
