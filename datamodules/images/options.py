"""Rarely used options of image datamodules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

from datamodules.settings.arguments import check_name

from .ram_cache import check_cache


class ImageOptions(TypedDict, total=False):
    """Options of ``image_options``.

    Args:
        mean: Mean of each channel, on the scale 0 to 1. Default: ImageNet's.
        std: Standard deviation of each channel. Default: ImageNet's.
        normalize: ``"train"`` computes mean and std from the train images under the evaluation
            transform (at most 4,096 images) and saves them in the checkpoint.
        draft: Decode large JPEGs at 1/2, 1/4 or 1/8 of their size, as long as the shorter side
            has at least twice ``image_size`` pixels. Faster for photos from cameras; changes
            pixels (by 0.2 of 255 on average for a photo of 2000 x 1500). Default: False.
        cache: ``"ram"`` keeps each decoded image of train, val and test in memory, shared by all
            workers, before random transforms. Files that change during a run are not read again.
        cache_bytes: Size limit of the cache in bytes; images beyond it are decoded each time, with
            a warning. Default: half of the free memory.
        pack: Path of a pack of ``root`` that ``scripts/pack_images.py`` wrote. Split and labels
            are the same, and with a slice pack the pixels too. Refused if a file is missing from
            it or has changed.
        fast_transforms: Draw a transform's random crop before decoding and resize with torch:
            about twice as fast, with the same random numbers and pixels that differ from Pillow's
            resizing by less than 0.05 of 255 on average. False calls every transform unchanged.
            Default: True.

    Example:
        >>> from datamodules import ImageFolderDataModule
        >>> dm = ImageFolderDataModule("photos", image_options={"cache": "ram", "draft": True})
    """

    mean: list[float] | None
    std: list[float] | None
    normalize: Literal["train"] | None
    draft: bool
    cache: Literal["ram"] | None
    cache_bytes: int | None
    pack: str | Path | None
    fast_transforms: bool


IMAGE_OPTIONS = tuple(ImageOptions.__annotations__)


def with_defaults(
    options: ImageOptions | Mapping[str, Any] | None, known: Collection[str] = IMAGE_OPTIONS
) -> ImageOptions:
    """Check ``image_options`` and add the defaults of those that are missing.

    Args:
        options: As given by the user.
        known: Names of the options that the source takes.

    Raises:
        ValueError: If an option is unknown, or its value is impossible.

    Example:
        >>> with_defaults({"draft": True})["fast_transforms"]
        True
    """
    given: dict[str, Any] = dict(options or {})
    for name in given:
        check_name(name, known, "image option")
    full = ImageOptions(
        mean=given.get("mean"),
        std=given.get("std"),
        normalize=given.get("normalize"),
        draft=given.get("draft", False),
        cache=given.get("cache"),
        cache_bytes=given.get("cache_bytes"),
        pack=given.get("pack"),
        fast_transforms=given.get("fast_transforms", True),
    )
    check_cache(full["cache"], full["cache_bytes"])
    for name in ("draft", "fast_transforms"):
        if not isinstance(given.get(name, True), bool):
            raise ValueError(f"{name} must be True or False, got {given[name]!r}")
    if full["draft"] and full["pack"] is not None:
        raise ValueError("a pack is decoded at the size it was made for; leave draft out")
    return full
