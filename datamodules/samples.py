"""Real data that ship inside installed packages: the first run needs no network and no account."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .image_folder import ImageFolderDataModule


def digits(**options: Any) -> ImageFolderDataModule:
    """Handwritten digits (Alpaydin and Kaynak 1998), 1,797 pictures of 8 x 8 in 10 classes.

    scikit-learn's copy, written once as PNG class folders. Takes the arguments of
    :class:`~datamodules.image_folder.ImageFolderDataModule`.
    """
    root = written_once("digits", _write_digits)
    chosen = {"mode": "L", "image_size": 8, "flip": False, "batch_size": 64, **options}
    return ImageFolderDataModule(root, **chosen)


def cache_folder() -> Path:
    """``$DATAMODULES_CACHE``, else a folder in the platform's place for caches."""
    if chosen := os.environ.get("DATAMODULES_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(base).expanduser() / "lightning-datamodules"


def written_once(name: str, write: Callable[[Path], None]) -> Path:
    """Folder ``name`` of the cache, written under another name and switched in when whole."""
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
    whole = half / name  # mkdtemp's own folder is for its user alone
    try:
        whole.mkdir()
        write(whole)
        whole.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another process was faster, with the same content
            raise
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return folder


def _write_digits(folder: Path) -> None:
    from PIL import Image
    from sklearn.datasets import load_digits

    data = load_digits()
    for row, (picture, label) in enumerate(zip(data.images, data.target, strict=True)):
        target = folder / str(label) / f"{row:04d}.png"
        target.parent.mkdir(exist_ok=True)
        Image.fromarray((picture * (255 / 16)).round().astype("uint8")).save(target)
