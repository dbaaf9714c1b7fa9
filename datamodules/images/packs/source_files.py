"""The files that a pack is made from, as they were when they were listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datamodules.images.listing import list_images, seen_from
from datamodules.readers.folders import contents
from datamodules.splits.split import fingerprint


class Files(NamedTuple):
    """N files that are packed.

    Attributes:
        root: The folder.
        names: Sorted names relative to it, with ``/``.
        sizes: (N,) int64, bytes.
        times: (N,) int64, time of change in ns.
    """

    root: Path
    names: list[str]
    sizes: np.ndarray[Any, Any]
    times: np.ndarray[Any, Any]

    def key(self) -> str:
        """Digest of names, sizes and times."""
        return fingerprint("\0".join(self.names), self.sizes, self.times)


def list_files(root: Path) -> Files:
    """All images below a folder, with size and time of change.

    Raises:
        ValueError: If there is none.
    """
    paths, _ = list_images(root)
    if not paths:
        raise ValueError(f"{root} holds no images; {contents(root)}")
    names = list(seen_from([root], paths))
    found = [Path(path).stat() for path in paths]
    sizes = np.array([status.st_size for status in found], np.int64)
    return Files(root, names, sizes, np.array([s.st_mtime_ns for s in found], np.int64))


def read_file(files: Files, i: int) -> bytes:
    """Content of one file.

    Raises:
        ValueError: If it is no longer the one that was listed.
    """
    path = files.root / files.names[i]
    content = path.read_bytes()
    status = path.stat()
    if (len(content), status.st_mtime_ns) != (files.sizes[i], files.times[i]):
        raise ValueError(f"{str(path)!r} changed while it was packed; run the same command again")
    return content
