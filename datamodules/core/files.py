"""Lists image folders, and keeps long lists of paths in one tensor."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .decode import IMAGE_SUFFIXES

log = logging.getLogger(__name__)
CLUTTER = frozenset({"__macosx", "thumbs.db", "desktop.ini"})
SPLIT_FOLDERS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}


class PathList(Sequence[str]):
    """N paths in one uint8 tensor: handed to workers without a copy.

    200,000 paths as a list of str cost each worker that reads them 30 MiB, since reading a str
    writes its reference count; as one NumPy array 19 MiB under spawn; as one tensor 0.2 MiB under
    fork, forkserver and spawn.

    Example:
        >>> paths = PathList(["a/b.png", "c.png"])
        >>> len(paths), paths[1], list(paths)
        (2, 'c.png', ['a/b.png', 'c.png'])
    """

    def __init__(self, paths: Iterable[str]) -> None:
        encoded = [os.fsencode(path) for path in paths]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        self._bytes = torch.from_numpy(np.frombuffer(b"".join(encoded), np.uint8).copy())
        self._ends: Tensor = torch.from_numpy(ends)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(f"path {index} of {len(self)}")
        start, end = int(self._ends[index]), int(self._ends[index + 1])
        return os.fsdecode(self._bytes[start:end].numpy().tobytes())

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def take(self, indices: Iterable[int]) -> PathList:
        """The paths at ``indices``."""
        return PathList(self[int(i)] for i in indices)


class Listing(NamedTuple):
    """Images of one split, found in class folders.

    Attributes:
        paths: N paths, sorted by class and name.
        labels: N class names.
        classes: Sorted class names, those of empty folders too.
        skipped: What was passed over, counted by ending.
    """

    paths: list[str]
    labels: list[str]
    classes: list[str]
    skipped: Counter[str]


def list_classes(roots: Sequence[Path]) -> Listing:
    """List ``root/class/**/image`` of one or several roots whose equal classes are joined.

    Hidden files, ``__MACOSX``, checkpoint folders and AppleDouble twins are not data.

    Raises:
        ValueError: If there is no class folder, or a link leads back into a folder above it.
    """
    paths: list[str] = []
    labels: list[str] = []
    names: set[str] = set()
    skipped: Counter[str] = Counter()
    for name, folder in sorted(
        (entry.name, entry.path) for root in roots for entry in _entries(root) if entry.is_dir()
    ):
        found = sorted(_images(folder, skipped, (_identity(folder),)))
        names.add(name)
        paths += found
        labels += [name] * len(found)
    if not names:
        where = ", ".join(map(str, roots))
        raise ValueError(
            f"{where} must hold one folder for each class; {'; '.join(map(contents, roots))}"
        )
    return Listing(paths, labels, sorted(names), skipped)


def list_images(folder: Path) -> tuple[list[str], Counter[str]]:
    """Sorted images below ``folder``, and what was passed over, counted by ending."""
    skipped: Counter[str] = Counter()
    return sorted(_images(str(folder), skipped, (_identity(str(folder)),))), skipped


def split_folders(root: Path) -> dict[str, Path]:
    """``{"train": ..., "val": ..., "test": ...}`` as far as ``root`` holds them.

    Empty where there is no train folder: then the folders are classes.
    """
    folders = {entry.name.lower(): Path(entry.path) for entry in _entries(root) if entry.is_dir()}
    found = {}
    for split, names in SPLIT_FOLDERS.items():
        there = [name for name in names if name in folders]
        if len(there) > 1:
            raise ValueError(
                f"{root} holds {there[0]}/ and {there[1]}/, both could be {split}; rename one"
            )
        if there:
            found[split] = folders[there[0]]
    if found and "train" not in found and len(found) == len(folders):
        raise ValueError(f"{root} holds {', '.join(sorted(folders))} but no train/; add it")
    return found if "train" in found else {}


def contents(folder: Path) -> str:
    """What a folder holds, for messages: 'it holds 2 folders (a, b) and 1 file (notes.txt)'."""
    entries = sorted(os.scandir(folder), key=lambda e: e.name)
    said = []
    for kind, names in (
        ("folder", [e.name for e in entries if e.is_dir()]),
        ("file", [e.name for e in entries if not e.is_dir()]),
    ):
        if names:
            more = ", ..." if len(names) > 4 else ""
            plural = "s" if len(names) > 1 else ""
            said.append(f"{len(names)} {kind}{plural} ({', '.join(names[:4])}{more})")
    return f"it holds {' and '.join(said)}" if said else "it is empty"


def report_skipped(skipped: Counter[str]) -> None:
    """Log what a listing passed over."""
    if skipped:
        said = ", ".join(f"{count} {ending}" for ending, count in sorted(skipped.items()))
        log.info("files that are not pictures passed over: %s", said)


def check_folder(path: str | Path, argument: str) -> Path:
    """Return the folder or say what is there instead.

    Raises:
        FileNotFoundError: If there is nothing of that name.
        NotADirectoryError: If it is a file.
    """
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise NotADirectoryError(f"{argument}={str(path)!r} is a file, a folder is needed")
    above = next(p for p in (*folder.absolute().parents, Path("/")) if p.is_dir())
    raise FileNotFoundError(
        f"{argument}={str(path)!r} does not exist; the nearest folder is {str(above)!r} and "
        f"{contents(above)}"
    )


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [e for e in entries if e.name[0] != "." and e.name.lower() not in CLUTTER]


def _identity(folder: str) -> tuple[int, int]:
    status = Path(folder).stat()
    return status.st_dev, status.st_ino


def _images(
    folder: str, skipped: Counter[str], above: tuple[tuple[int, int], ...]
) -> Iterator[str]:
    for entry in _entries(folder):
        if entry.is_dir():
            identity = _identity(entry.path)
            if identity in above:
                raise ValueError(
                    f"link {entry.path!r} leads back into a folder above it; remove it"
                )
            yield from _images(entry.path, skipped, (*above, identity))
            continue
        suffix = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122 - 200,000 Paths cost 1 s
        if suffix in IMAGE_SUFFIXES:
            yield entry.path
        else:
            skipped[suffix or "no ending"] += 1
