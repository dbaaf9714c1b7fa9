"""List the files of a pack, and check that they do not change while they are packed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datamodules.images.listing import list_images, seen_from
from datamodules.readers.folders import contents
from datamodules.splits.split import fingerprint


class Files(NamedTuple):
    """N files to be packed.

    Attributes:
        root: The folder.
        names: Sorted names relative to it, with ``/``.
        sizes: (N,) int64, bytes.
        times: (N,) int64, mtime in ns.
    """

    root: Path
    names: list[str]
    sizes: np.ndarray[Any, Any]
    times: np.ndarray[Any, Any]

    def key(self) -> str:
        """Return a digest of names, sizes and mtimes."""
        return fingerprint("\0".join(self.names), self.sizes, self.times)


def list_files(root: Path) -> Files:
    """List all images below a folder with size and mtime.

    Raises:
        ValueError: If there are none.
    """
    paths, _ = list_images(root)
    if not paths:
        raise ValueError(f"{root} has no images; {contents(root)}")
    names = list(seen_from([root], paths))
    stats = [Path(path).stat() for path in paths]
    sizes = np.array([status.st_size for status in stats], np.int64)
    return Files(root, names, sizes, np.array([s.st_mtime_ns for s in stats], np.int64))


def read_file(files: Files, i: int) -> bytes:
    """Read one file.

    Raises:
        ValueError: If it changed since it was listed.
    """
    path = files.root / files.names[i]
    content = path.read_bytes()
    status = path.stat()
    if (len(content), status.st_mtime_ns) != (files.sizes[i], files.times[i]):
        raise ValueError(f"{str(path)!r} changed while it was packed; run the same command again")
    return content
