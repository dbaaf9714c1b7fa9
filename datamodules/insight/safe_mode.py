"""The most conservative settings: what still fails with them is in the data, not in the loader."""

from __future__ import annotations

import copy
from typing import Any

import lightning as L

from datamodules.adapters.dataset import WrappedDataset
from datamodules.core.datamodule import DataModule
from datamodules.images.dataset import ImageDataset

SAMPLES, BATCH = 100, 8


def make_safe(dm: L.LightningDataModule, *, batch_size: int = BATCH) -> str:
    """Set a datamodule to no workers, no pinning, fixed order, small batches, no augmentation.

    The datamodule is changed in place, before its loaders are built. Saved hyperparameters follow,
    so that a checkpoint of a safe run says what it was.

    Args:
        dm: One of this project's base; any other is refused, its loaders are its own.
        batch_size: Of every split.

    Returns:
        A line that says what was set and how to add it back.

    Raises:
        ValueError: If ``dm`` is no :class:`DataModule`.
    """
    if not isinstance(dm, DataModule):
        raise ValueError(
            f"safe mode sets a DataModule's own options, {type(dm).__name__} builds its loaders "
            "itself; give it num_workers=0, a batch size of 8 and no augmentation by hand"
        )
    settings = {
        "num_workers": 0,
        "batch_size": batch_size,
        "eval_batch_size": batch_size,
        "global_batch_size": None,
        "sampler": "sequential",
        "loader_options": {"pin_memory": False},
    }
    given = {name: dm.hparams.get(name) for name in settings}
    dm.hparams.update(settings)
    dm.sampler, dm.loader_options = "sequential", {"pin_memory": False}
    without_augmentation(dm)
    back = ", ".join(f"{n}={given[n]!r}" for n in settings if given[n] not in (settings[n], None))
    return (
        f"safe mode: no workers, no pinning, fixed order, batch_size={batch_size}, evaluation's "
        "transform in training too, no MixUp; scripts/bisect_data.py adds one setting back at a "
        f"time{f' (yours: {back})' if back else ''}"
    )


def without_augmentation(dm: DataModule) -> None:
    """Train samples get evaluation's transform, whatever the source."""
    make = dm.dataset

    def dataset(split: Any) -> Any:
        data = make(split)
        return plain_train(data, make("val")) if split == "train" else data

    if hasattr(dm, "_parts") and callable(dm._parts):  # a stream is transformed by its loader
        parts = dm._parts
        dm.__dict__["_parts"] = lambda split, **given: parts(
            "val" if split == "train" else split, **given
        )
    dm.__dict__["dataset"] = dataset
    dm.__dict__["_mix"] = lambda: None
    dm._datasets.pop("train", None)


def plain_train(train: Any, evaluated: Any) -> Any:
    """A copy of a train dataset with the transform of another split's; the same if it has none."""
    if evaluated is None or type(train) is not type(evaluated):
        return train
    data = copy.copy(train)
    if isinstance(data, WrappedDataset):
        data.parts = copy.copy(data.parts)
        data.parts.transform = evaluated.parts.transform
    elif hasattr(data, "transform") and hasattr(evaluated, "transform"):
        data.transform = evaluated.transform
    if isinstance(data, ImageDataset):  # the short ways are those of the transform
        data._fast, data.normalizer = evaluated._fast, evaluated.normalizer
    if getattr(data, "padding", 0) or getattr(data, "flip", False):  # PixelDataset
        pad = data.padding
        if pad:
            data.pixels = data.pixels[..., pad:-pad, pad:-pad]
        data.padding, data.flip = 0, False
    return data
