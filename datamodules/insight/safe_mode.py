"""The most conservative data settings: what still fails with them is a fault of the data."""

from __future__ import annotations

import lightning as L

from datamodules.core.accessors import set_augmentation
from datamodules.core.datamodule import DataModule

SAMPLES, BATCH = 100, 8


def make_safe(dm: L.LightningDataModule, *, batch_size: int = BATCH) -> str:
    """Set a datamodule to no workers, no pinning, fixed order, small batches, no augmentation.

    The datamodule is changed in place, before its loaders are built. Its hyperparameters are
    changed too, so that a checkpoint of a safe run records them.

    Args:
        dm: A `DataModule`.
        batch_size: Batch size of every split.

    Returns:
        A line with the new settings and how to restore the old ones.

    Raises:
        ValueError: If ``dm`` is not a `DataModule`.
    """
    if not isinstance(dm, DataModule):
        raise ValueError(
            f"safe mode sets the options of a DataModule, but {type(dm).__name__} builds its "
            "loaders itself; set num_workers=0, a batch size of 8 and no augmentation there"
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
    old = ", ".join(f"{n}={given[n]!r}" for n in settings if given[n] not in (settings[n], None))
    return (
        f"safe mode: no workers, no pinning, fixed order, batch_size={batch_size}, the evaluation "
        "transform in training too, no MixUp; scripts/bisect_data.py restores one setting at a "
        f"time{f' (yours: {old})' if old else ''}"
    )


def without_augmentation(dm: DataModule) -> None:
    """Give train samples the transform of evaluation, and no MixUp or CutMix."""
    set_augmentation(dm, False)
    set_mixing(dm, mixup=0.0, cutmix=0.0)


def set_mixing(dm: DataModule, **alphas: float) -> None:
    """Set the alpha of MixUp and CutMix, of sources that have them."""
    dm.hparams.update({name: alpha for name, alpha in alphas.items() if name in dm.hparams})
