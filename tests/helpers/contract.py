"""One contract that every source passes: ``check_datamodule(make)``."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules import DataModule


def check_datamodule(
    make: Callable[..., DataModule],
    *,
    splits: tuple[str, ...] = ("train", "val", "test"),
    contexts: tuple[str, ...] = ("fork",),
) -> None:
    """Assert what holds for every datamodule.

    Args:
        make: Called as ``make(**options)``; must pass options on to the datamodule.
        splits: Splits that the data hold.
        contexts: Start methods of worker processes that are tried.
    """
    dm = make(batch_size=4)
    dm.setup("fit")
    first = {split: keys_of(dm, split) for split in splits}
    dm.setup("fit")
    assert {split: keys_of(dm, split) for split in splits} == first, "a second setup changed it"
    other = make(batch_size=4)
    torch.manual_seed(12345)
    other.setup("fit")
    assert other.split_fingerprint() == dm.split_fingerprint(), "the global seed moved the split"
    everything = [key for split in splits for key in first[split]]
    assert len(everything) == len(set(everything)), "splits overlap"

    for split in splits:
        loader = getattr(dm, f"{split}_dataloader")()
        batches = list(loader)
        assert len(batches) == len(loader)
        assert all(b.target.dtype in (torch.int64, torch.float32) for b in batches)
        assert not any(t.dtype == torch.float64 for b in batches for t in tensors(b))
        assert same(list(loader), batches) or split == "train"
    dtypes = {split: [t.dtype for t in tensors(dm.preview(split))] for split in splits}
    assert len({tuple(d) for d in dtypes.values()}) == 1, f"dtypes differ between splits: {dtypes}"

    check_order(make)
    if "val" in splits:
        plain = list(make(batch_size=4, num_workers=0).val_dataloader())
        for context in contexts:
            options = {"multiprocessing_context": context, "persistent_workers": False}
            loaded = make(batch_size=4, num_workers=2, loader_options=options).val_dataloader()
            assert same(list(loaded), plain), f"val differs between 0 workers and 2 by {context}"
    copy = pickle.loads(pickle.dumps(dm))
    assert {split: keys_of(copy, split) for split in splits} == first
    assert str(dm) != ""


def check_order(make: Callable[..., DataModule]) -> None:
    """Train order changes with the epoch and repeats with the seed; seed 0 is a seed."""
    orders = {}
    for seed in (0, 0, 1):
        loader = make(batch_size=4, seed=seed).train_dataloader()
        epochs = []
        for epoch in (0, 1):
            loader.sampler.set_epoch(epoch)
            epochs.append([keys.indices.tolist() for keys in loader.sampler])
        members = [sorted(i for batch in epoch for i in batch) for epoch in epochs]
        assert members[0] == members[1], "an epoch misses a sample"
        assert orders.setdefault(seed, epochs) == epochs, "the same seed gave another order"
        assert epochs[0] != epochs[1], "the order does not change with the epoch"
    assert orders[0] != orders[1], "the seed has no effect"


def keys_of(dm: DataModule, split: str) -> list[str]:
    """What tells the samples of a split apart."""
    dataset = getattr(dm, f"{split}_dataset")
    return [dataset.describe(i) for i in range(len(dataset))]


def tensors(batch: Any) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from tensors(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from tensors(value)


def same(a: Any, b: Any) -> bool:
    """Equal bit for bit, in structure too."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(a == b)
