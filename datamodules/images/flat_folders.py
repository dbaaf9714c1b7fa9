"""List and sort folders of image files without a string for each path."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from datamodules.readers.path_list import PathBytes

MANY = 100  # files; fewer are listed as fast one by one
WORD = 8
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


def flat_folder(folder: str, endings: Collection[str]) -> PathBytes | None:
    """List a folder, sorted by name, if it has only image files and hidden files.

    With the datamodule around it 0.12 s for 200,000 files, against 0.17 s entry by entry and 0.28 s
    by torchvision (CPU time, 2 cores, n = 5).

    Args:
        folder: Its path, the start of each listed path.
        endings: Of images: ``".jpg"`` and the like, in lower case.

    Returns:
        The paths; None if there are few entries, or one that needs more checks: a folder, a broken
        link, another ending.
    """
    names = _plain_names(folder)
    if names is None or len(names) < MANY:
        return None
    start = os.path.join(folder, "")  # noqa: PTH118 - ends in a separator
    content = _joined(start, names)
    starts, ends = _places(content, len(names))
    shown = content[starts + len(os.fsencode(start))] != ord(".")
    if not _end_in(content, ends[shown], endings).all():
        return None
    rows = np.flatnonzero(shown)
    # bytes sort as strings do, except names that are not valid text
    order = None
    if len(rows) and all(map(str.isascii, names)):
        order = _order(content, starts[rows] + len(os.fsencode(start)))
    if order is None:
        names = sorted(name for name in names if name[0] != ".")
        content = _joined(start, names)
        return PathBytes(content, np.stack(_places(content, len(names))))
    return PathBytes(content, np.stack([starts[rows[order]], ends[rows[order]]]))


def _plain_names(folder: str) -> list[str] | None:
    """Return the names of all entries, if all are files or links to files."""
    # by file descriptor no path is built for each entry: a quarter of the time
    place = os.open(folder, os.O_RDONLY) if os.scandir in os.supports_fd else folder
    try:
        with os.scandir(place) as found:
            entries = list(found)
        plain = all(map(os.DirEntry.is_file, entries))  # no system call except for links
    except OSError:  # such as a circular link: an error of the listing entry by entry
        return None
    finally:
        if isinstance(place, int):
            os.close(place)
    return [entry.name for entry in entries] if plain else None


def _joined(start: str, names: Sequence[str]) -> Bytes:
    """Return the paths, each followed by a zero byte, and a word of zeros."""
    whole = f"\0{start}".join(names)
    return np.frombuffer(os.fsencode(f"{start}{whole}\0" + WORD * "\0"), np.uint8)


def _places(content: Bytes, count: int) -> tuple[Places, Places]:
    """Return the first byte of each path, and the zero byte after it."""
    ends = np.flatnonzero(content == 0)[:count]
    return np.append(0, ends[:-1] + 1)[:count], ends


def _words(content: Bytes, at: Places, kind: str) -> Words:
    """Return the eight bytes from each place on as one number."""
    every = np.ndarray((len(content) - WORD + 1,), kind, content, strides=(1,))
    return every[at].astype(np.uint64)


def _end_in(content: Bytes, ends: Places, endings: Collection[str]) -> npt.NDArray[np.bool_]:
    """Return which paths end in one of ``endings``, ignoring case."""
    found = np.zeros(len(ends), np.bool_)
    last = _words(content, np.maximum(ends - WORD, 0), "<u8")
    for length in {len(ending) for ending in endings if len(ending) <= WORD}:
        # the dot is the lowest byte, the letters above it become lower case
        tail = last >> np.uint64(8 * (WORD - length))
        tail |= np.uint64(int.from_bytes(b"\0" + b" " * (length - 1), "little"))
        for ending in endings:
            if len(ending) == length and ending[1:].isalpha():
                found |= tail == np.uint64(int.from_bytes(ending.encode(), "little"))
    return found


def _order(content: Bytes, first: Places) -> Places | None:
    """Sort names by the eight bytes in which they first differ; None if more are needed."""
    if len(first) < 2:
        return np.arange(len(first))
    while True:
        keys = _words(content, first, ">u8")
        differing = int(np.bitwise_or.reduce(keys ^ keys[0]))
        if differing >> (8 * (WORD - 1)):
            break
        first = first + (WORD - (differing.bit_length() + 7) // 8)
    order = np.argsort(keys)
    ordered = keys[order]
    return None if (ordered[1:] == ordered[:-1]).any() else order
