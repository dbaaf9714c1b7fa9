"""Where a sample's time goes: read, decode, transform, collate, finish."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ..core.base import DataModule
from ..core.decode import decode_image
from ..core.pictures import PictureDataset
from ..core.seeding import kept_random_state

REMEDIES = {
    "read": "the disk is the limit; pack the files",
    "decode": "decoding is the limit; store smaller pictures, or install simplejpeg",
    "transform": "the transform is the limit; drop or move steps, or add workers",
    "sample": "the dataset's own __getitem__ is the limit; add workers, or cache",
    "collate": "joining samples is the limit; return arrays of one size",
    "finish": "the last step on the host is the limit; it moves to an accelerator by itself",
}


def time_stages(dm: DataModule, *, samples: int = 16) -> dict[str, float]:
    """Seconds a train sample spends in each stage, in this process.

    Args:
        dm: Prepared already.
        samples: How many are timed; a file read before comes from the system's cache.

    Returns:
        ``read``, ``decode`` and ``transform`` for picture files, ``sample`` for another dataset
        or for data in memory; then ``collate`` and ``finish`` as far as they exist.
    """
    data = dm.train_dataset
    count = min(samples, len(data))
    rows = [i * len(data) // count for i in range(count)]
    spent: dict[str, float] = {}
    with kept_random_state():
        if isinstance(data, PictureDataset) and all(isinstance(data.sources[i], str) for i in rows):
            made = [_picture(data, i, spent) for i in rows]
        else:
            made = [_timed(spent, "sample", partial(data.__getitem__, i)) for i in rows]
        if not hasattr(data, "get_batch"):
            collate = dm.loader_options.get("collate_fn") or dm.default_collate("train")
            batch = _timed(spent, "collate", lambda: collate(made))
            if dm.finish is not None:
                finish = dm.finish
                finish(batch)  # the first takes fresh memory
                _timed(spent, "finish", lambda: finish(batch))
    return {name: seconds / count for name, seconds in spent.items()}


def _picture(data: PictureDataset, index: int, spent: dict[str, float]) -> Any:
    path: Any = data.sources[index]
    _timed(spent, "read", Path(path).read_bytes)
    began = time.perf_counter()
    Path(path).read_bytes()
    again = time.perf_counter() - began  # decoding reads once more, from the cache
    picture = _timed(spent, "decode", lambda: decode_image(path, mode=data.mode, name=path))
    spent["decode"] = max(0.0, spent["decode"] - again)
    row = _timed(spent, "transform", lambda: data.transform(picture))
    if data.targets is None:
        return row
    target = data.targets[index]
    return row, target if target.ndim else int(target)


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
