"""List class folders, with splits in train/, val/ and test/ or in folders of their own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from datamodules.readers.folders import has_folders, split_folders
from datamodules.readers.path_list import PathList

from .listing import Listing, list_classes


class ClassFolders(NamedTuple):
    """N images in class folders.

    Attributes:
        paths: N paths.
        labels: (N,) int64 indices into ``names``.
        names: Class names, sorted.
        splits: Rows of each split that has folders; empty if the images are not split yet.
    """

    paths: PathList
    labels: npt.NDArray[np.int64]
    names: list[str]
    splits: dict[str, range]


def read_class_folders(
    roots: Sequence[Path], own: Mapping[str, Path] | None = None, *, need_train: bool = True
) -> ClassFolders:
    """List the images below ``roots``.

    Args:
        roots: Each has class folders, or ``train/`` (and ``val/``, ``test/``) with class folders.
        own: Class folders of ``val`` and ``test`` outside the roots, which are then train data.
        need_train: Whether a root with ``test/`` alone is refused.

    Raises:
        ValueError: If only some of the roots have ``train/``.
    """
    layouts = [split_folders(root, need_train=need_train) for root in roots]
    if any(layouts) and not all(layouts):
        bare = next(str(r) for r, layout in zip(roots, layouts, strict=True) if not layout)
        raise ValueError(f"{bare} has no train/ while another root has; give all one layout")
    if own:
        layouts = [layout or {"train": root} for root, layout in zip(roots, layouts, strict=True)]
    if not any(layouts):
        listing = list_classes(roots)
        return ClassFolders(listing.paths, _labels([listing], listing.classes), listing.classes, {})
    listings: list[Listing] = []
    names: set[str] = set()
    splits = {"train": range(0)}
    for split in ("train", "val", "test"):
        folders = [layout[split] for layout in layouts if split in layout]
        if own and split in own:
            folders = [own[split]]
        elif split == "test" and folders and not any(has_folders(f) for f in folders):
            warnings.warn(
                f"{folders[0]} holds no class folders, so it is not the test split; to predict "
                "its images pass it as predict_path",
                stacklevel=2,
            )
            continue
        if folders:
            listing = list_classes(folders)
            first = sum(len(other.paths) for other in listings)
            splits[split] = range(first, first + len(listing.paths))
            listings.append(listing)
            # an empty folder is a class of train, but not of val
            names |= {name for name, count in listing.folders if count or split == "train"}
    paths = PathList.joined([listing.paths.encoded() for listing in listings])
    return ClassFolders(paths, _labels(listings, sorted(names)), sorted(names), splits)


def _labels(listings: Sequence[Listing], names: Sequence[str]) -> npt.NDArray[np.int64]:
    """(N,) int64 class of each path, as its index in ``names``."""
    index = {name: k for k, name in enumerate(names)}
    folders = [folder for listing in listings for folder in listing.folders]
    classes = np.array([index.get(name, 0) for name, _ in folders], np.int64)  # 0: an empty folder
    return np.repeat(classes, [count for _, count in folders])
