"""Lists image folders."""

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

from .decode import IMAGE_SUFFIXES
from .flat_folders import flat_folder
from .path_list import PathBytes, PathList, encode_paths

log = logging.getLogger(__name__)
CLUTTER = frozenset({"__macosx", "thumbs.db", "desktop.ini", "@eadir"})  # the last: Synology's
USUAL_ENDINGS = frozenset(
    case for ending in IMAGE_SUFFIXES if len(ending) == 4 for case in (ending, ending.upper())
)
SPLIT_FOLDERS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}


class Listing(NamedTuple):
    """Images of one split, found in class folders.

    Attributes:
        paths: N paths, sorted by class, root and name.
        folders: The class of each folder and its number of pictures, in the order of the paths.
        classes: Sorted class names, those of empty folders too.
    """

    paths: PathList
    folders: list[tuple[str, int]]
    classes: list[str]

    @property
    def labels(self) -> list[str]:
        """N class names."""
        return [name for name, count in self.folders for _ in range(count)]


def list_classes(roots: Sequence[Path]) -> Listing:
    """List ``root/class/**/image`` of one or several roots whose equal classes are joined.

    Hidden files, ``__MACOSX``, checkpoint folders and AppleDouble twins are not data.

    Raises:
        ValueError: If there is no class folder, no picture in any of them, or a link leads back
            into a folder above it.
        FileNotFoundError: If a link leads nowhere.
    """
    skipped: Counter[str] = Counter()
    folders = []
    for place, root in enumerate(roots):  # not by their paths: the split moves with the folders
        for entry in _entries(root):
            if entry.is_dir():
                folders.append((entry.name, place, entry.path))
            else:
                skipped["outside the class folders"] += 1
    parts: list[PathBytes] = []
    counts: list[tuple[str, int]] = []
    for name, _, folder in sorted(folders):
        parts.append(_pictures(folder, skipped))
        counts.append((name, parts[-1].places.shape[1]))
    if not parts:
        where = ", ".join(map(str, roots))
        raise ValueError(
            f"{where} must hold one folder for each class; {'; '.join(map(contents, roots))}"
        )
    if not any(count for _, count in counts):
        where = ", ".join(map(str, roots))
        raise ValueError(
            f"the class folders of {where} hold no pictures; {'; '.join(map(contents, roots))}"
        )
    report_skipped(skipped)
    return Listing(PathList.joined(parts), counts, sorted({name for name, _ in counts}))


def list_images(folder: Path) -> tuple[list[str], Counter[str]]:
    """Sorted images below ``folder``, and what was passed over, counted by ending."""
    skipped: Counter[str] = Counter()
    found = _images(str(folder), skipped, _chain(folder.absolute().parent))
    return sorted(found, key=_portable), skipped


def seen_from(roots: Sequence[Path], paths: Iterable[str]) -> Iterator[str]:
    """Paths relative to the root that holds them, with ``/`` on every system."""
    starts = [str(root) + os.sep for root in roots]
    for path in paths:
        start = next((start for start in starts if path.startswith(start)), "")
        yield path[len(start) :].replace(os.sep, "/")


def split_folders(root: Path, *, need_train: bool = True) -> dict[str, Path]:
    """``{"train": ..., "val": ..., "test": ...}`` as far as ``root`` holds them.

    Empty where there is no train folder, or one of pictures beside folders of other names: then
    the folders are classes.

    Args:
        root: The folder.
        need_train: Whether val or test alone will not do.

    Raises:
        ValueError: If two folders could be one split, or there are val and test alone.
    """
    folders = [entry for entry in _entries(root) if entry.is_dir()]
    found: dict[str, Path] = {}
    for split, names in SPLIT_FOLDERS.items():
        there = sorted(entry.name for entry in folders if entry.name.lower() in names)
        if len(there) > 1:
            raise ValueError(
                f"{root} holds {there[0]}/ and {there[1]}/, both could be {split}; rename one"
            )
        if there:
            found[split] = root / there[0]
    alone = len(found) == len(folders)
    if "train" in found:
        # 'train' may be a vehicle, beside 'bus' and 'car'
        return found if alone or has_folders(found["train"]) else {}
    if found and alone and need_train:
        raise ValueError(
            f"{root} holds {', '.join(sorted(e.name for e in folders))} but no train/; add it"
        )
    return found if alone else {}


def has_folders(folder: Path) -> bool:
    """Whether a folder holds folders, clutter aside."""
    return any(entry.is_dir() for entry in _entries(folder))


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
        log.info("passed over, not pictures or not in a class folder: %s", said)


def check_folder(path: str | Path, argument: str) -> Path:
    """Return the folder, absolute: the working directory may change before the files are read.

    Raises:
        FileNotFoundError: If there is nothing of that name.
        NotADirectoryError: If it is a file.
        ValueError: If the name is empty, as an unset variable gives it.
    """
    if not str(path):
        raise ValueError(f"{argument} is an empty text; name a folder, '.' for the working one")
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder.absolute()
    if folder.exists():
        raise NotADirectoryError(f"{argument}={str(path)!r} is a file, a folder is needed")
    above = next(p for p in (*folder.absolute().parents, Path("/")) if p.is_dir())
    raise FileNotFoundError(
        f"{argument}={str(path)!r} does not exist; the nearest folder is {str(above)!r} and "
        f"{contents(above)}"
    )


def check_roots(roots: Sequence[str]) -> list[Path]:
    """Return the folders that are joined, absolute.

    Raises:
        FileNotFoundError: If one does not exist.
        ValueError: If one comes twice or lies in another: its pictures would be read twice, and lie
            in train and in val.
    """
    folders = [check_folder(root, "root") for root in roots]
    for i, folder in enumerate(folders):
        for other in folders[:i] + folders[i + 1 :]:
            if _identity(str(other)) in _chain(folder):
                raise ValueError(
                    f"root {str(folder)!r} is or lies in root {str(other)!r}, so its pictures "
                    "would be read twice; name one of them"
                )
    return folders


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return _shown(entries)


def _shown(entries: Iterable[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
    """Without hidden ones and clutter."""
    shown = [e for e in entries if e.name[0] != "." and e.name.lower() not in CLUTTER]
    # free for what is no link; a lost one would be a class or a picture less, or an error later
    lost = [e for e in shown if e.is_symlink() and not Path(e.path).exists()]
    for entry in lost:
        if _suffix(entry.name) in IMAGE_SUFFIXES | {""}:
            raise FileNotFoundError(
                f"link {entry.path!r} leads nowhere; remove it, or bring back what it points to"
            )
    return [e for e in shown if e not in lost] if lost else shown


# sorted as on Linux, or the split would be another one on Windows
_portable = None if os.sep == "/" else (lambda path: path.replace(os.sep, "/"))


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()  # noqa: PTH122 - 200,000 Paths cost 1 s


def _identity(folder: str) -> tuple[int, int]:
    status = Path(folder).stat()
    return status.st_dev, status.st_ino


def _chain(folder: Path) -> frozenset[tuple[int, int]]:
    return frozenset(_identity(str(above)) for above in (folder, *folder.parents))


def _pictures(folder: str, skipped: Counter[str]) -> PathBytes:
    """Pictures of a class, sorted."""
    above = _chain(Path(folder).parent)
    flat = None if _identity(folder) in above else flat_folder(folder, IMAGE_SUFFIXES)
    if flat is not None:
        return flat
    return encode_paths(sorted(_images(folder, skipped, above), key=_portable))


def _images(folder: str, skipped: Counter[str], above: frozenset[tuple[int, int]]) -> list[str]:
    identity = _identity(folder)
    if identity in above:
        raise ValueError(f"link {folder!r} leads back into a folder above it; remove it")
    names: list[str] = []
    others: list[os.DirEntry[str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            # nearly all are plain files of pictures: no clutter has such an ending, and they need
            # no further question
            if name[-4:] in USUAL_ENDINGS and entry.is_file(follow_symlinks=False):
                names.append(name)
            else:
                others.append(entry)
    names.sort()  # shorter than the paths, which the caller then finds sorted
    del names[bisect_left(names, ".") : bisect_left(names, "/")]  # the hidden ones
    start = os.path.join(folder, "")  # noqa: PTH118 - ends in a separator
    found = [start + name for name in names]
    for entry in _shown(others):
        if entry.is_dir():
            found += _images(entry.path, skipped, above | {identity})
            continue
        suffix = _suffix(entry.name)
        if suffix in IMAGE_SUFFIXES:
            found.append(entry.path)
        else:
            skipped[suffix or "no ending"] += 1
    return found


def matched(pattern: str, paths: Sequence[str]) -> npt.NDArray[np.object_]:
    """(N,) what a regular expression finds in each path: its first group, else all of its match.

    Raises:
        ValueError: If it is no regular expression, or finds nothing in a path; names the path.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"split_options: {pattern!r} is no regular expression on paths: {error}"
        ) from None
    found = np.empty(len(paths), object)
    for row, path in enumerate(paths):
        match = expression.search(path)
        if match is None:
            raise ValueError(
                f"split_options: {pattern!r} finds nothing in {path!r}; it is a regular expression "
                "on the path below the root, and must match each"
            )
        found[row] = match[1 if expression.groups else 0] or ""
    return found
