"""Time the stages of a sample: read, decode, transform, collate, normalize, transfer."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric.utilities import move_data_to_device
from lightning_utilities.core.apply_func import apply_to_collection

from datamodules.batches.dataset_interface import DatasetInterface
from datamodules.core.accessors import collate_of
from datamodules.core.datamodule import DataModule
from datamodules.images.dataset import ImageDataset
from datamodules.seeding.random_state import kept_random_state

REMEDIES = {
    "read": "the disk is the limit; pack the files",
    "decode": "decoding is the limit; store smaller images; the extra 'fast' decodes faster",
    "transform": "the transform is the limit; drop or move steps, or add workers",
    "sample": "the dataset's own __getitem__ is the limit; add workers, or cache",
    "collate": "collating is the limit; return arrays of one size",
    "normalize": "normalization on the host is the limit; numba or an accelerator is faster",
    "gather": "gathering rows in memory is the limit; larger batches cost less per sample",
    "transfer": "the copy to the device is the limit; pin_memory lets it overlap with the step",
}


def time_stages(dm: DataModule, *, samples: int = 16) -> dict[str, float]:
    """Return the seconds per train sample of each stage, in this process.

    Args:
        dm: Prepared already.
        samples: Number of samples; files come from the system's cache if they were read before.

    Returns:
        ``read``, ``decode`` and ``transform`` for image files, ``gather`` for data in memory,
        ``sample`` for other datasets; then ``collate`` and ``normalize`` if they apply, and
        ``transfer``, the copy through pinned memory, if there is an accelerator.
    """
    data = dm.train_dataset
    count = min(samples, len(data))
    rows = [i * len(data) // count for i in range(count)]
    spent: dict[str, float] = {}
    with kept_random_state():
        if DatasetInterface(data).batches is not None:
            places = np.array(rows)
            data.get_batch(places, None)  # the first call warms up
            batch = _timed(spent, "gather", lambda: data.get_batch(places, None))
        else:
            is_files = isinstance(data, ImageDataset) and bool(data.files())
            if is_files:
                data.unnormalized(rows[0])  # finds out whether the transform takes tensors
                for row in rows:
                    _time_image(data, row, spent)
            made = [_timed(spent, "sample", partial(data.__getitem__, i)) for i in rows]
            if is_files:
                del spent["sample"]  # its stages are known
                made = [data.unnormalized(i) for i in rows]
            batch = _timed(spent, "collate", lambda: collate_of(dm, "train")(made))
        normalizer = dm.normalizer
        if normalizer is not None:
            normalizer(batch)  # the first call allocates memory
            _timed(spent, "normalize", lambda: normalizer(batch))
        if torch.accelerator.is_available():
            time_transfer(batch, spent)
    return {name: seconds / count for name, seconds in spent.items()}


def _time_image(data: ImageDataset, index: int, spent: dict[str, float]) -> None:
    path = Path(data.describe(index))
    _timed(spent, "read", path.read_bytes)
    began = time.perf_counter()
    path.read_bytes()
    again = time.perf_counter() - began  # decoding reads once more, from the cache
    stages = data.stages(index)
    _timed(spent, "decode", lambda: next(stages))
    _timed(spent, "transform", lambda: next(stages))
    spent["decode"] = max(0.0, spent["decode"] - again)


def time_transfer(batch: Any, spent: dict[str, float]) -> None:
    """Time the copy of a batch to the accelerator, through pinned memory as in a Trainer."""
    device = torch.accelerator.current_accelerator()
    assert device is not None

    def copy() -> None:
        pinned = apply_to_collection(batch, torch.Tensor, lambda tensor: tensor.pin_memory())
        move_data_to_device(pinned, device)
        torch.accelerator.synchronize()

    copy()  # the first call starts the device and allocates memory
    _timed(spent, "transfer", copy)


def _timed(spent: dict[str, float], name: str, step: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    made = step()
    spent[name] = spent.get(name, 0.0) + time.perf_counter() - began
    return made


def stage_sentence(stages: dict[str, float]) -> str:
    """Return the slowest stage and its remedy.

    Example:
        >>> stage_sentence({"read": 0.007, "decode": 0.002, "transform": 0.001})
        'read takes 70 % of a sample: the disk is the limit; pack the files'
    """
    name = max(stages, key=lambda stage: stages[stage])
    share = stages[name] / max(sum(stages.values()), 1e-12)
    return f"{name} takes {100 * share:.0f} % of a sample: {REMEDIES[name]}"
