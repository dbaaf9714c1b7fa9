"""Write files so that the error of a full disk names the file and no partial file is left."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FULL = {
    errno.ENOSPC: "free some space",
    errno.EFBIG: "raise the limit of a file's size",
    errno.EDQUOT: "free some of your quota",
}


@contextmanager
def named_writes(path: Path, *, remove: bool = False) -> Iterator[None]:
    """Add the path to the system's write errors, which do not have it.

    Args:
        path: The file, or its folder.
        remove: Whether to remove the file after an error.

    Raises:
        OSError: The system's error, with the path and a remedy for a full disk.
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
        message = error.strerror if remedy is None else f"{error.strerror} ({remedy})"
        name = error.filename2 or error.filename or str(path)  # filename2: target of a copy
        raise OSError(error.errno, message, name) from error


def write_all(file: io.FileIO, content: bytes) -> None:
    """Write to an unbuffered file, which may accept fewer bytes than it is given.

    A buffered file would raise the error of a full disk only when it is closed.
    """
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]
