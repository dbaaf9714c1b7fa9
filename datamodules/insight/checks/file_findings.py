"""Check image files: damaged, empty, misnamed, and not listed by their reader."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from datamodules.adapters.dataset_attributes import DatasetAttributes
from datamodules.image_folder import ImageFolderDataModule
from datamodules.images.decode.decode import decode_pixels
from datamodules.images.decode.pillow_state import quiet
from datamodules.insight.datamodule_view import DataModuleView
from datamodules.insight.findings import Finding
from datamodules.insight.split_view import SplitView, digest, innermost
from datamodules.readers.folders import CLUTTER, IMAGE_SUFFIXES
from datamodules.settings.cpu_count import usable_cores

MOST_NAMED = 20  # findings of one kind; the section "Files" lists all
MOST_PROBED = 1_000  # unlisted files that are opened
THUMB = 16
ENDINGS = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".gif": "GIF", ".bmp": "BMP"}
ENDINGS |= {".webp": "WEBP", ".tif": "TIFF", ".tiff": "TIFF", ".ppm": "PPM", ".pgm": "PPM"}
# what torchvision 0.29's ImageFolder lists
STOCK = {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"}


class FileSeen(NamedTuple):
    """What decoding one image file told.

    Attributes:
        error: What is wrong with it, or an empty text.
        kind: Its format by content, such as ``PNG``.
        pixels: Digest of its RGB pixels and size.
        thumb: (16, 16) uint8, its means of grey; None where it cannot be decoded.
        shape: Height and width.
    """

    error: str
    kind: str = ""
    pixels: bytes = b""
    thumb: np.ndarray[Any, Any] | None = None
    shape: tuple[int, int] = (0, 0)


def check_files(paths: Iterable[str], *, progress: bool = False) -> dict[str, FileSeen]:
    """Decode files in threads, one for each core.

    Args:
        paths: Each is decoded once.
        progress: Show a bar on the terminal.
    """
    from rich.console import Console
    from rich.progress import track

    todo = list(dict.fromkeys(paths))
    console = Console(stderr=True)
    with ThreadPoolExecutor(usable_cores()) as pool:
        results = track(
            pool.map(check_file, todo),
            "reading files",
            total=len(todo),
            console=console,
            transient=True,
            disable=not (progress and console.is_terminal),
        )
        return dict(zip(todo, results, strict=True))


def check_file(path: str) -> FileSeen:
    """Decode one file."""
    try:
        if not Path(path).stat().st_size:
            return FileSeen(f"{path} is empty, 0 bytes")
        pixels = decode_pixels(path, mode="RGB", name=path)
        with quiet(), Image.open(path) as image:
            kind = image.format or ""
        grey = Image.fromarray(pixels).convert("L").resize((THUMB, THUMB), Image.Resampling.BOX)
    except Exception as error:
        said = str(error)
        return FileSeen(said if path in said else f"{path}: {said or type(error).__name__}")
    content = digest(repr(pixels.shape).encode() + np.ascontiguousarray(pixels).tobytes())
    height, width = pixels.shape[:2]
    return FileSeen(
        "", "JPEG" if kind == "MPO" else kind, content, np.asarray(grey), (height, width)
    )


def file_findings(
    seen: Mapping[str, SplitView], files: Mapping[str, FileSeen], facts: list[str]
) -> Iterator[Finding]:
    """Say what :func:`check_files` told; ``facts`` takes every name."""
    for split, one in seen.items():
        paths = one.paths
        if not paths:
            continue
        facts.append(f"{split}: all {len(paths):,} files were read")
        errors = [files[path].error for path in paths if files[path].error]
        empty = [e for e in errors if e.endswith(", 0 bytes")]
        damaged = [e for e in errors if not e.endswith(", 0 bytes")]
        yield from _each("empty-file", split, empty, facts)
        yield from _each("damaged-file", split, damaged, facts)
        odd = [f"{p} ({files[p].kind})" for p in paths if _misnamed(p, files[p].kind)]
        if odd:
            facts += [f"{split} misnamed: {said}" for said in odd]
            are = "file is not what its" if len(odd) == 1 else "files are not what their"
            said = f"{split}: {len(odd)} {are} ending says, such as {odd[0]}"
            yield Finding("note", "misnamed", said, "rename them for other programs' sake")
        other = [p for p in paths if Path(p).suffix.lower() not in STOCK]
        if other and DatasetAttributes(innermost(one.dataset)).root is None:
            said = (
                f"{split}: {len(other)} of {len(paths):,} files, such as {other[0]}, are read here "
                "and passed over by torchvision's ImageFolder"
            )
            facts += [f"{split} read here alone: {path}" for path in other]
            yield Finding("note", "stock-skips", said, "convert them if others are to read them")


def _each(code: str, split: str, errors: Sequence[str], facts: list[str]) -> Iterator[Finding]:
    facts += [f"{split} {code.partition('-')[0]}: {said}" for said in errors]
    for said in errors[:MOST_NAMED]:
        what, _, remedy = said.rpartition("; ")  # a reader's own remedy is the better one
        remedy = remedy if what else "replace or remove it"
        yield Finding("error", code, f"{split}: {what or said}", remedy)
    if len(errors) > MOST_NAMED:
        said = f"{split}: {len(errors) - MOST_NAMED} more, of {len(errors)} such files"
        yield Finding("error", code, said, "replace or remove them; the section Files names all")


def _misnamed(path: str, kind: str) -> bool:
    return bool(kind) and ENDINGS.get(Path(path).suffix.lower(), kind) != kind


def skipped_findings(dm: Any, seen: Mapping[str, SplitView], facts: list[str]) -> Iterator[Finding]:
    """Files that batches lack: those that could not be read, and those that were never listed."""
    if bad := DataModuleView(dm).bad_files:
        facts += [f"skipped: {reason}" for reason in bad.values()]
        said = f"{len(bad)} files cannot be read and are left out of their batches: "
        said += "; ".join([*bad.values()][:3]) + "; ..." * (len(bad) > 3)
        yield Finding("warning", "skipped-files", said, "fix or remove them")
    for reader, root, listed in _readers(dm, seen):
        lost = list(passed_over(root, listed))
        if not lost:
            continue
        facts += [f"passed over: {said}" for said in lost]
        plural = "s" if len(lost) > 1 else ""
        said = f"{reader} passed over {len(lost)} image{plural} in {root}, such as {lost[0]}"
        remedy = "give them an ending of their kind, inside a class folder, or convert them"
        yield Finding("warning", "skipped-files", said, remedy)


def _readers(dm: Any, seen: Mapping[str, SplitView]) -> Iterator[tuple[str, Path, set[str] | None]]:
    """Who listed which folder, and what of it; None: all that has an image's ending."""
    if isinstance(dm, ImageFolderDataModule) and dm.hparams["table"] is None:
        given = [dm.hparams[name] for name in ("root", "val_path", "test_path")]
        for root in (r for part in given for r in (part if isinstance(part, list) else [part])):
            if root is not None:
                yield type(dm).__name__, Path(root).expanduser(), None
    done: dict[Path, set[str]] = {}
    for one in seen.values():
        attributes = DatasetAttributes(innermost(one.dataset))
        if (root := attributes.root) is not None:
            done.setdefault(root, set()).update(attributes.image_files())
    yield from (("its ImageFolder", root, listed) for root, listed in done.items())


def passed_over(root: Path, listed: set[str] | None) -> Iterator[str]:
    """Images below ``root`` that a reader did not list, hidden files and clutter aside.

    Args:
        root: The folder.
        listed: Paths that it did; None: every file with an image's ending inside a class folder.
    """
    probed = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(n for n in folders if n[0] != "." and n.lower() not in CLUTTER)
        for name in sorted(names):
            path = Path(folder, name)
            if name[0] == "." or name.lower() in CLUTTER:
                continue
            known = path.suffix.lower() in IMAGE_SUFFIXES and Path(folder) != root
            if (str(path) in listed) if listed is not None else known:
                continue
            probed += 1
            if probed <= MOST_PROBED and (kind := _kind(path)):
                yield f"{path} ({kind})"


def _kind(path: Path) -> str:
    try:
        with quiet(), Image.open(path) as image:
            return image.format or ""
    except Exception:  # no image, or one that nobody reads
        return ""
