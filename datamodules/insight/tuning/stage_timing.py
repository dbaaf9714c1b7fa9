"""Where a sample's time goes: read, decode, transform, collate, finish, transfer."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric.utilities import move_data_to_device
from torch.utils.data._utils.pin_memory import pin_memory

from datamodules.core.datamodule import DataModule
from datamodules.core.inside import collate_of
from datamodules.images.dataset import ImageDataset
from datamodules.seeding.random_state import kept_random_state

REMEDIES = {
    "read": "the disk is the limit; pack the files",
    "decode": "decoding is the limit; store smaller images; the extra 'fast' decodes faster",
    "transform": "the transform is the limit; drop or move steps, or add workers",
    "sample": "the dataset's own __getitem__ is the limit; add workers, or cache",
    "collate": "joining samples is the limit; return arrays of one size",
    "normalize": "the last step on the host is the limit; numba or an accelerator does it faster",
    "gather": "taking rows out of memory is the limit; larger batches cost less a sample",
    "transfer": "the copy to the device is the limit; pin_memory lets it overlap with the step",
}


def time_stages(dm: DataModule, *, samples: int = 16) -> dict[str, float]:
    """Seconds a train sample spends in each stage, in this process.

    Args:
        dm: Prepared already.
        samples: How many are timed; a file read before comes from the system's cache.

    Returns:
        ``read``, ``decode`` and ``transform`` for image files, ``gather`` for data in memory,
        ``sample`` for another dataset; then ``collate`` and ``finish`` as far as they exist, and
        ``transfer``, the copy through pinned memory, where there is an accelerator.
    """
    data = dm.train_dataset
    count = min(samples, len(data))
    rows = [i * len(data) // count for i in range(count)]
    spent: dict[str, float] = {}
    with kept_random_state():
        if hasattr(data, "get_batch"):
            places = np.array(rows)
            data.get_batch(places, None)  # the first pays for what the later ones find ready
            batch = _timed(spent, "gather", lambda: data.get_batch(places, None))
            made = []
        elif isinstance(data, ImageDataset) and all(isinstance(data.sources[i], str) for i in rows):
            data.unnormalized(rows[0])  # finds out what the transform takes
            made = [_image(data, i, spent) for i in rows]
        else:
            made = [_timed(spent, "sample", partial(data.__getitem__, i)) for i in rows]
        if not hasattr(data, "get_batch"):
            collate = collate_of(dm, "train")
            batch = _timed(spent, "collate", lambda: collate(made))
        if dm.normalizer is not None:
            normalizer = dm.normalizer
            normalizer(batch)  # the first takes fresh memory
            _timed(spent, "normalize", lambda: normalizer(batch))
        if torch.accelerator.is_available():
            time_transfer(batch, spent)
    return {name: seconds / count for name, seconds in spent.items()}


def _image(data: ImageDataset, index: int, spent: dict[str, float]) -> Any:
    path: Any = data.sources[index]
    _timed(spent, "read", Path(path).read_bytes)
    began = time.perf_counter()
    Path(path).read_bytes()
    again = time.perf_counter() - began  # decoding reads once more, from the cache
    fast = data._fast
    if fast is not None and fast.head is not None:
        boxes = _timed(spent, "decode", partial(data._boxes, index))
        row = _timed(spent, "transform", lambda: fast.from_boxes(boxes))
    else:
        image = _timed(spent, "decode", partial(data._whole, index))
        change = data.transform if fast is None else fast.from_image
        row = _timed(spent, "transform", lambda: change(image))
    spent["decode"] = max(0.0, spent["decode"] - again)
    if data.targets is None:
        return row
    target = data.targets[index]
    return row, target if target.ndim else int(target)


def time_transfer(batch: Any, spent: dict[str, float]) -> None:
    """Time the copy of a batch to the accelerator, through pinned memory as a Trainer's loader."""
    device = torch.accelerator.current_accelerator()
    assert device is not None

    def copied() -> None:
        move_data_to_device(pin_memory(batch), device)  # type: ignore[no-untyped-call]
        torch.accelerator.synchronize()

    copied()  # the first starts the device and takes the memory
    _timed(spent, "transfer", copied)


def _timed(spent: dict[str, float], name: str, step: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    made = step()
    spent[name] = spent.get(name, 0.0) + time.perf_counter() - began
    return made


def stage_sentence(stages: dict[str, float]) -> str:
    """Name the stage that takes most and what answers it.

    Example:
        >>> stage_sentence({"read": 0.007, "decode": 0.002, "transform": 0.001})
        'read takes 70 % of a sample: the disk is the limit; pack the files'
    """
    name = max(stages, key=lambda stage: stages[stage])
    share = stages[name] / max(sum(stages.values()), 1e-12)
    return f"{name} takes {100 * share:.0f} % of a sample: {REMEDIES[name]}"
