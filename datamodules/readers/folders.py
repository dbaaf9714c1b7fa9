"""Find split folders, skip clutter, and describe folders in error messages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

IMAGE_SUFFIXES: frozenset[str] = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".gif", ".bmp", ".ico", ".qoi"}
    | {".webp", ".avif", ".avifs", ".tif", ".tiff", ".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx"}
    | {".ppm", ".pgm", ".pbm", ".pnm", ".pfm"}
)
"""Lower-case suffixes of image files, for listing a folder; a file is read by its content."""

CLUTTER = frozenset({"__macosx", "thumbs.db", "desktop.ini", "@eadir"})  # the last: Synology's
SPLIT_FOLDERS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}


def split_folders(root: Path, *, need_train: bool = True) -> dict[str, Path]:
    """Return the split folders of ``root`` by split.

    Empty if the folders are classes: there is no train folder, or it contains images directly
    and other folders are beside it.

    Args:
        root: The folder.
        need_train: Whether val or test without train is an error.

    Raises:
        ValueError: If two folders could be the same split, or val or test has no train.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     for name in ("train", "valid"):
        ...         (Path(root) / name).mkdir()
        ...     [(split, folder.name) for split, folder in split_folders(Path(root)).items()]
        [('train', 'train'), ('val', 'valid')]
    """
    folders = [entry for entry in visible_entries(root) if entry.is_dir()]
    found: dict[str, Path] = {}
    for split, names in SPLIT_FOLDERS.items():
        matches = sorted(entry.name for entry in folders if entry.name.lower() in names)
        if len(matches) > 1:
            raise ValueError(
                f"{root} has {matches[0]}/ and {matches[1]}/, both could be {split}; rename one"
            )
        if matches:
            found[split] = root / matches[0]
    only_splits = len(found) == len(folders)
    if "train" in found:
        # 'train' may be a class, beside 'bus' and 'car'
        return found if only_splits or has_folders(found["train"]) else {}
    if found and only_splits and need_train:
        raise ValueError(
            f"{root} has {', '.join(sorted(e.name for e in folders))} but no train/; add it"
        )
    return found if only_splits else {}


def has_folders(folder: Path) -> bool:
    """Return whether a folder contains folders other than clutter."""
    return any(entry.is_dir() for entry in visible_entries(folder))


def contents(folder: Path) -> str:
    """Describe a folder for messages: 'it contains 2 folders (a, b) and 1 file (notes.txt)'."""
    entries = sorted(os.scandir(folder), key=lambda e: e.name)
    parts = []
    for kind, names in (
        ("folder", [e.name for e in entries if e.is_dir()]),
        ("file", [e.name for e in entries if not e.is_dir()]),
    ):
        if names:
            more = ", ..." if len(names) > 4 else ""
            plural = "s" if len(names) > 1 else ""
            parts.append(f"{len(names)} {kind}{plural} ({', '.join(names[:4])}{more})")
    return f"it contains {' and '.join(parts)}" if parts else "it is empty"


def check_folder(path: str | Path, argument: str) -> Path:
    """Return the absolute path of a folder: the working directory may change later.

    Raises:
        FileNotFoundError: If it does not exist.
        NotADirectoryError: If it is a file.
        ValueError: If ``path`` is empty, as an unset shell variable is.
    """
    if not str(path):
        raise ValueError(f"{argument} is an empty string; pass a folder, such as '.'")
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder.absolute()
    if folder.exists():
        raise NotADirectoryError(f"{argument}={str(path)!r} is a file; pass a folder")
    above = next(p for p in (*folder.absolute().parents, Path("/")) if p.is_dir())
    raise FileNotFoundError(
        f"{argument}={str(path)!r} does not exist; the nearest folder is {str(above)!r} and "
        f"{contents(above)}"
    )


def check_roots(roots: Sequence[str]) -> list[Path]:
    """Return the absolute paths of folders whose images are joined.

    Raises:
        FileNotFoundError: If one does not exist.
        ValueError: If one is given twice or is inside another: its images would be read twice, and
            be in train and in val.
    """
    folders = [check_folder(root, "root") for root in roots]
    for i, folder in enumerate(folders):
        for other in folders[:i] + folders[i + 1 :]:
            if folder_identity(str(other)) in folder_chain(folder):
                raise ValueError(
                    f"root {str(folder)!r} is the same as or inside root {str(other)!r}, so its "
                    "images would be read twice; name one of them"
                )
    return folders


def visible_entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, without hidden ones and clutter."""
    with os.scandir(folder) as entries:
        return without_clutter(entries)


def without_clutter(entries: Iterable[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
    """Drop hidden entries and clutter; a broken link to an image or folder is an error."""
    shown = [e for e in entries if e.name[0] != "." and e.name.lower() not in CLUTTER]
    # a broken link would be a missing class or image, or an error later
    broken = [e for e in shown if e.is_symlink() and not Path(e.path).exists()]
    for entry in broken:
        if suffix_of(entry.name) in IMAGE_SUFFIXES | {""}:
            raise FileNotFoundError(
                f"link {entry.path!r} is broken; remove it, or restore its target"
            )
    return [e for e in shown if e not in broken] if broken else shown


def suffix_of(name: str) -> str:
    """Return the suffix of a file name in lower case, with its dot."""
    return os.path.splitext(name)[1].lower()  # noqa: PTH122 - 200,000 Paths cost 1 s


def folder_identity(folder: str) -> tuple[int, int]:
    """Return device and inode, which are the same under any name of a folder."""
    status = Path(folder).stat()
    return status.st_dev, status.st_ino


def folder_chain(folder: Path) -> frozenset[tuple[int, int]]:
    """Return the identities of a folder and of all folders above it."""
    return frozenset(folder_identity(str(above)) for above in (folder, *folder.parents))
