"""List the images of class folders."""

from __future__ import annotations

import logging
import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from datamodules.readers.folders import (
    IMAGE_SUFFIXES,
    contents,
    folder_chain,
    folder_identity,
    suffix_of,
    visible_entries,
    without_clutter,
)
from datamodules.readers.path_list import PathBytes, PathList, encode_paths

from .flat_folders import flat_folder

log = logging.getLogger(__name__)
USUAL_ENDINGS = frozenset(
    case for ending in IMAGE_SUFFIXES if len(ending) == 4 for case in (ending, ending.upper())
)


class Listing(NamedTuple):
    """Images of one split, listed from class folders.

    Attributes:
        paths: N paths, sorted by class, root and name.
        folders: The class of each folder and its number of images, in the order of the paths.
        classes: Sorted class names, including those of empty folders.
    """

    paths: PathList
    folders: list[tuple[str, int]]
    classes: list[str]

    @property
    def labels(self) -> list[str]:
        """Class name of each of N images."""
        return [name for name, count in self.folders for _ in range(count)]


def list_classes(roots: Sequence[Path]) -> Listing:
    """List ``root/class/**/image`` of one or several roots, joining classes of the same name.

    Hidden files, ``__MACOSX``, checkpoint folders and AppleDouble twins are ignored.

    Raises:
        ValueError: If there is no class folder, no image in any of them, or a link to a folder
            above it.
        FileNotFoundError: If a link is broken.
    """
    skipped: Counter[str] = Counter()
    folders = []
    for place, root in enumerate(roots):  # not the path: a moved folder keeps its split
        for entry in visible_entries(root):
            if entry.is_dir():
                folders.append((entry.name, place, entry.path))
            else:
                skipped["outside the class folders"] += 1
    parts: list[PathBytes] = []
    counts: list[tuple[str, int]] = []
    for name, _, folder in sorted(folders):
        parts.append(_class_images(folder, skipped))
        counts.append((name, parts[-1].places.shape[1]))
    if not parts:
        where = ", ".join(map(str, roots))
        raise ValueError(
            f"{where} must hold one folder for each class; {'; '.join(map(contents, roots))}"
        )
    if not any(count for _, count in counts):
        where = ", ".join(map(str, roots))
        raise ValueError(
            f"the class folders of {where} hold no images; {'; '.join(map(contents, roots))}"
        )
    report_skipped(skipped)
    return Listing(PathList.joined(parts), counts, sorted({name for name, _ in counts}))


def list_images(folder: Path) -> tuple[list[str], Counter[str]]:
    """Return the sorted images below ``folder`` and the number of other files by ending."""
    skipped: Counter[str] = Counter()
    found = _images(str(folder), skipped, folder_chain(folder.absolute().parent))
    return sorted(found, key=_portable), skipped


def seen_from(roots: Sequence[Path], paths: Iterable[str]) -> Iterator[str]:
    """Yield paths relative to their root, with ``/`` on every system."""
    starts = [str(root) + os.sep for root in roots]
    for path in paths:
        start = next((start for start in starts if path.startswith(start)), "")
        yield path[len(start) :].replace(os.sep, "/")


def report_skipped(skipped: Counter[str]) -> None:
    """Log the files that a listing ignored."""
    if skipped:
        text = ", ".join(f"{count} {ending}" for ending, count in sorted(skipped.items()))
        log.info("ignored, not images or not in a class folder: %s", text)


# sorted as on Linux: the split is the same on Windows
_portable = None if os.sep == "/" else (lambda path: path.replace(os.sep, "/"))


def _class_images(folder: str, skipped: Counter[str]) -> PathBytes:
    """Return the sorted images of a class."""
    above = folder_chain(Path(folder).parent)
    flat = None if folder_identity(folder) in above else flat_folder(folder, IMAGE_SUFFIXES)
    if flat is not None:
        return flat
    return encode_paths(sorted(_images(folder, skipped, above), key=_portable))


def _images(folder: str, skipped: Counter[str], above: frozenset[tuple[int, int]]) -> list[str]:
    identity = folder_identity(folder)
    if identity in above:
        raise ValueError(f"link {folder!r} points to a folder above it; remove it")
    names: list[str] = []
    others: list[os.DirEntry[str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            # nearly all are image files; clutter has other endings, so no more checks are needed
            if name[-4:] in USUAL_ENDINGS and entry.is_file(follow_symlinks=False):
                names.append(name)
            else:
                others.append(entry)
    names.sort()  # faster than the paths; the caller sorts those, already in order
    del names[bisect_left(names, ".") : bisect_left(names, "/")]  # the hidden ones
    start = os.path.join(folder, "")  # noqa: PTH118 - ends in a separator
    found = [start + name for name in names]
    for entry in without_clutter(others):
        if entry.is_dir():
            found += _images(entry.path, skipped, above | {identity})
            continue
        suffix = suffix_of(entry.name)
        if suffix in IMAGE_SUFFIXES:
            found.append(entry.path)
        else:
            skipped[suffix or "no ending"] += 1
    return found


def matched(pattern: str, paths: Sequence[str]) -> npt.NDArray[np.object_]:
    """Return (N,) the match of a regular expression in each path, or its first group if any.

    Raises:
        ValueError: If ``pattern`` is not a regular expression, or a path does not match.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"split_options: {pattern!r} is not a regular expression: {error}"
        ) from None
    found = np.empty(len(paths), object)
    for row, path in enumerate(paths):
        match = expression.search(path)
        if match is None:
            raise ValueError(
                f"split_options: {pattern!r} does not match {path!r}; it is a regular expression "
                "on the path below the root, and must match every path"
            )
        found[row] = match[1 if expression.groups else 0] or ""
    return found
