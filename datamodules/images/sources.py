"""Sources of the images of a split: files, drafts of files, a pack, or the RAM cache."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from datamodules.images.decode.decode import decode_image
from datamodules.images.packs.image_pack import ImagePack
from datamodules.readers.folders import check_folder, contents
from datamodules.readers.path_list import PathList
from datamodules.seeding.sample_seeds import Indices

from .cached import CachedImages, warn_of_room
from .listing import list_images, report_skipped, seen_from
from .ram_cache import RamCache
from .regions import Boxes

DRAFT_SIDES = 2  # a draft keeps this multiple of the image size on its shorter side


class ImageSources:
    """The images of each split, before they are decoded.

    Args:
        paths: The files of each split.
        mode: ``"RGB"`` or ``"L"``.
        draft: Image size for which large JPEGs are decoded at a part of their size; None: decode
            them at full size.

    Attributes:
        pack: The pack that replaces the files, or None.

    Example:
        >>> sources = ImageSources({"train": PathList(["a.png", "b.png"])}, mode="RGB")
        >>> list(sources.of("train", np.array([1])))
        ['b.png']
    """

    def __init__(
        self, paths: Mapping[str, PathList], *, mode: Literal["RGB", "L"], draft: int | None = None
    ) -> None:
        self.paths, self.mode, self.draft = dict(paths), mode, draft
        self.pack: ImagePack | None = None
        self._rows: dict[str, Indices] = {}
        self._cached: dict[str, CachedImages] = {}
        self._has_warned = False

    def open_pack(self, path: str | Path, roots: list[Path]) -> None:
        """Read a pack in place of the files below one root.

        Raises:
            ValueError: If there are several roots, or the pack was made from other files.
        """
        if len(roots) > 1:
            raise ValueError(f"a pack needs one root, got {len(roots)}; pass one root, or no pack")
        self.pack = ImagePack(path)
        for split, paths in self.paths.items():
            self._rows[split] = self.pack.rows_of(list(seen_from(roots, paths)), paths)

    def of(self, split: str, rows: Indices) -> Any:
        """Return the sources of some images of a split."""
        paths = self.paths[split]
        if len(rows) < len(paths):
            paths = paths.take(rows)
        if self.pack is not None:
            return PackedImages(self.pack, self._rows[split][rows], paths)
        return self.drafted(paths)

    def drafted(self, sources: Any) -> Any:
        """Return files as drafts if ``draft`` is set, and other sources unchanged."""
        if self.draft is None or not isinstance(sources, PathList):
            return sources
        return DraftImages(sources, self.draft, mode=self.mode)

    def cached(self, split: str, rows: Indices, cache: RamCache) -> CachedImages:
        """Return :meth:`of` with a RAM cache; warn once if the cache is too small."""
        cache.add_part(split, len(self.paths[split]))
        images = CachedImages(self.of(split, rows), cache, split, rows, mode=self.mode)
        self._cached[split] = images
        if not self._has_warned:
            self._has_warned = warn_of_room(list(self._cached.values()), cache.limit)
        return images


class PackedImages(Sequence[Any]):
    """M images of a pack as sources of an image dataset.

    Args:
        pack: The pack.
        rows: (M,) int64, rows in the pack.
        names: M paths of the packed files, for messages.
    """

    def __init__(self, pack: ImagePack, rows: Indices, names: Sequence[str]) -> None:
        self.pack, self.names = pack, names
        self.rows = torch.from_numpy(rows)  # workers get a tensor without a copy

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:  # type: ignore[override]
        return self.pack.content(int(self.rows[index]))

    def boxes(self, index: int, *, mode: Literal["RGB", "L"]) -> Boxes:
        """Return an image that is read by boxes; see :meth:`ImagePack.image`."""
        return self.pack.image(int(self.rows[index]), mode=mode, name=lambda: self.names[index])


class DraftImages(Sequence[Any]):
    """Files as sources of an image dataset; large JPEGs are decoded at 1/2, 1/4 or 1/8 size.

    Decoding a part of the frequencies of a JPEG gives a smaller image for less work, but not the
    pixels of decoding and resizing: 0.2 of 255 apart on average. Other formats and small images
    are decoded at full size.

    Args:
        paths: N paths.
        image_size: Side of the model's input; an image keeps at least twice that on its shorter
            side.
        mode: ``"RGB"`` or ``"L"``.
    """

    def __init__(self, paths: Sequence[str], image_size: int, *, mode: Literal["RGB", "L"]) -> None:
        self.names, self.least_side, self.mode = paths, DRAFT_SIDES * image_size, mode

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Any:  # type: ignore[override]
        """Return (H, W, C) uint8, C = 3 or 1."""
        image = decode_image(self.names[index], mode=self.mode, least_side=self.least_side)
        return np.atleast_3d(np.asarray(image))


def file_paths(sources: Sequence[Any] | Tensor) -> list[str]:
    """Return the files behind the sources of an image dataset; empty for packs and pixels."""
    if isinstance(sources, CachedImages):
        sources = sources.sources
    if isinstance(sources, DraftImages):
        sources = sources.names
    return list(sources) if all(isinstance(source, str) for source in sources) else []


def predict_sources(path: str | Path | Sequence[Any] | None) -> Sequence[Any]:
    """Return the sources of ``predict_path``: a folder, a file, or a list of paths or images.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ValueError: If it is None or an empty list, a folder without images, or a single array.
    """
    if path is None:
        raise ValueError("pass predict_path=, a folder, or a list of paths or images")
    if isinstance(path, str | Path):
        if Path(path).expanduser().is_file():
            return PathList([str(Path(path).expanduser())])
        folder = check_folder(path, "predict_path")
        paths, skipped = list_images(folder)
        if not paths:
            raise ValueError(f"predict_path={str(path)!r} has no images; {contents(folder)}")
        report_skipped(skipped)
        return PathList(paths)
    if isinstance(path, Image.Image):
        return [path]
    if isinstance(path, np.ndarray | Tensor) and path.ndim < 4:
        raise ValueError(
            f"predict_path is one array {tuple(path.shape)}; pass a list of images: [array]"
        )
    items = [os.fspath(item) if isinstance(item, str | Path) else item for item in path]
    if not items:
        raise ValueError("predict_path is an empty list; pass paths or images")
    return PathList(items) if all(isinstance(item, str) for item in items) else items
