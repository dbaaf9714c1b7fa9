"""Where the images of a split come from: files, drafts of them, a pack, the cache in RAM."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from torch import Tensor

from datamodules.images.packs.image_pack import ImagePack
from datamodules.readers.folders import check_folder, contents
from datamodules.readers.path_list import PathList
from datamodules.seeding.sample_seeds import Indices

from .cached import CachedImages, warn_of_room
from .draft import DraftImages
from .listing import list_images, report_skipped, seen_from
from .packed import PackedImages
from .ram_cache import RamCache


class ImageSources:
    """The images of each split, before they are decoded.

    Args:
        paths: The files of each split.
        mode: ``"RGB"`` or ``"L"``.
        draft: Decode large JPEGs at a part of their size, for images of this size; None: at
            their own.

    Attributes:
        pack: What is read in the place of the files, or None.
    """

    def __init__(
        self, paths: Mapping[str, PathList], *, mode: Literal["RGB", "L"], draft: int | None = None
    ) -> None:
        self.paths, self.mode, self.draft = dict(paths), mode, draft
        self.pack: ImagePack | None = None
        self._rows: dict[str, Indices] = {}
        self._in_ram: dict[str, CachedImages] = {}
        self._is_room_said = False

    def open_pack(self, path: str | Path, roots: list[Path]) -> None:
        """Read a pack in the place of the files below one root.

        Raises:
            ValueError: If there are several roots, or the pack does not hold these files as they
                are.
        """
        if len(roots) > 1:
            raise ValueError("a pack goes with one root, got several")
        self.pack = ImagePack(path)
        for split, paths in self.paths.items():
            self._rows[split] = self.pack.rows_of(list(seen_from(roots, paths)), paths)

    def of(self, split: str, rows: Indices) -> Any:
        """Sources of some images of a split."""
        paths = self.paths[split]
        if len(rows) < len(paths):
            paths = paths.take(rows)
        if self.pack is not None:
            return PackedImages(self.pack, self._rows[split][rows], paths)
        return self.drafted(paths)

    def drafted(self, sources: Any) -> Any:
        """Files, to be decoded at a part of their size where that was asked for."""
        if self.draft is None or not isinstance(sources, PathList):
            return sources  # nothing to be decoded from a file
        return DraftImages(sources, self.draft, mode=self.mode)

    def cached(self, split: str, rows: Indices, cache: RamCache) -> CachedImages:
        """As :meth:`of`, each kept from its first use on; warns once where there is no room."""
        cache.add_part(split, len(self.paths[split]))
        found = CachedImages(self.of(split, rows), cache, split, rows, mode=self.mode)
        self._in_ram[split] = found
        if not self._is_room_said:
            self._is_room_said = warn_of_room(list(self._in_ram.values()), cache.limit)
        return found


def file_paths(sources: Sequence[Any] | Tensor) -> list[str]:
    """Return the files behind the sources of an image dataset; empty for packs and pixels."""
    if isinstance(sources, CachedImages):
        sources = sources.sources
    if isinstance(sources, DraftImages):
        sources = sources.names
    return list(sources) if all(isinstance(source, str) for source in sources) else []


def predict_sources(path: str | Path | Sequence[Any] | None) -> Sequence[Any]:
    """What a user gives as ``predict_path``: a folder, a file, or a list of paths or images.

    Raises:
        FileNotFoundError: If a folder does not exist.
        ValueError: If nothing was given, the folder holds no image, or a single array was given.
    """
    if path is None:
        raise ValueError("pass predict_path=, a folder, or a list of paths or images")
    if isinstance(path, str | Path):
        if Path(path).expanduser().is_file():
            return PathList([str(Path(path).expanduser())])
        folder = check_folder(path, "predict_path")
        found, skipped = list_images(folder)
        if not found:
            raise ValueError(f"predict_path={str(path)!r} holds no images; {contents(folder)}")
        report_skipped(skipped)
        return PathList(found)
    if isinstance(path, Image.Image):
        return [path]
    if isinstance(path, np.ndarray | Tensor) and path.ndim < 4:
        raise ValueError(
            f"predict_path is one array {tuple(path.shape)}; give a list of images: [array]"
        )
    items = [os.fspath(item) if isinstance(item, str | Path) else item for item in path]
    if not items:
        raise ValueError("predict_path is an empty list; give paths or images")
    return PathList(items) if all(isinstance(item, str) for item in items) else items
