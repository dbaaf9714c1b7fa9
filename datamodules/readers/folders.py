"""Folders: split folders, clutter, and errors that say what a folder holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

IMAGE_SUFFIXES: frozenset[str] = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".gif", ".bmp", ".ico", ".qoi"}
    | {".webp", ".avif", ".avifs", ".tif", ".tiff", ".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx"}
    | {".ppm", ".pgm", ".pbm", ".pnm", ".pfm"}
)
"""Lower-case endings of the formats read here, for listing a folder; reading goes by content."""

CLUTTER = frozenset({"__macosx", "thumbs.db", "desktop.ini", "@eadir"})  # the last: Synology's
SPLIT_FOLDERS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}


def split_folders(root: Path, *, need_train: bool = True) -> dict[str, Path]:
    """``{"train": ..., "val": ..., "test": ...}`` as far as ``root`` holds them.

    Empty where there is no train folder, or one of images beside folders of other names: then
    the folders are classes.

    Args:
        root: The folder.
        need_train: Whether val or test alone will not do.

    Raises:
        ValueError: If two folders could be one split, or there are val and test alone.
    """
    folders = [entry for entry in visible_entries(root) if entry.is_dir()]
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
    return any(entry.is_dir() for entry in visible_entries(folder))


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
        ValueError: If one comes twice or lies in another: its images would be read twice, and lie
            in train and in val.
    """
    folders = [check_folder(root, "root") for root in roots]
    for i, folder in enumerate(folders):
        for other in folders[:i] + folders[i + 1 :]:
            if folder_identity(str(other)) in folder_chain(folder):
                raise ValueError(
                    f"root {str(folder)!r} is or lies in root {str(other)!r}, so its images "
                    "would be read twice; name one of them"
                )
    return folders


def visible_entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """Entries of a folder, without hidden ones and clutter."""
    with os.scandir(folder) as entries:
        return without_clutter(entries)


def without_clutter(entries: Iterable[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
    """Entries without hidden ones and clutter; a broken link to an image or folder is an error."""
    shown = [e for e in entries if e.name[0] != "." and e.name.lower() not in CLUTTER]
    # free for what is no link; a lost one would be a class or an image less, or an error later
    lost = [e for e in shown if e.is_symlink() and not Path(e.path).exists()]
    for entry in lost:
        if suffix_of(entry.name) in IMAGE_SUFFIXES | {""}:
            raise FileNotFoundError(
                f"link {entry.path!r} leads nowhere; remove it, or bring back what it points to"
            )
    return [e for e in shown if e not in lost] if lost else shown


def suffix_of(name: str) -> str:
    """Lower-case ending of a file name, with its dot."""
    return os.path.splitext(name)[1].lower()  # noqa: PTH122 - 200,000 Paths cost 1 s


def folder_identity(folder: str) -> tuple[int, int]:
    """Device and inode: the same folder under any name."""
    status = Path(folder).stat()
    return status.st_dev, status.st_ino


def folder_chain(folder: Path) -> frozenset[tuple[int, int]]:
    """Identities of a folder and of every folder above it."""
    return frozenset(folder_identity(str(above)) for above in (folder, *folder.parents))
