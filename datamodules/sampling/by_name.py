"""Sampling strategies by name, and the plan of a train split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from datamodules.batches.dataset_interface import DatasetInterface

from .by_class import Pairs, Stratified
from .length_buckets import LengthBuckets
from .strategies import Balanced, Facts, Sampling, Sequential, Shuffle, Views, Weighted

SAMPLINGS: dict[str, Callable[[], Sampling]] = {
    "shuffle": Shuffle,
    "sequential": Sequential,
    "weighted": Weighted,
    "balanced": Balanced,
    "pairs": Pairs,
    "views": Views,
    "stratified": Stratified,
    "length_buckets": LengthBuckets,
}


def facts_of(
    dataset: DatasetInterface, *, batch_size: int, drop_last: bool, classes: bool
) -> Facts:
    """Return what a sampling strategy may know about a train dataset.

    Args:
        dataset: Its ``targets`` (n,) and ``lengths`` (n,) are used if it has them.
        batch_size: Samples per batch.
        drop_last: Leave out an incomplete last step.
        classes: Whether the targets are one class per sample.

    Example:
        >>> facts_of(DatasetInterface(range(5)), batch_size=2, drop_last=False, classes=True)
        Facts(n=5, batch_size=2, drop_last=False, labels=None, lengths=None)
    """
    labels, lengths = dataset.targets if classes else None, dataset.lengths
    single = labels is not None and np.ndim(labels) == 1
    return Facts(
        n=len(dataset.dataset),
        batch_size=batch_size,
        drop_last=drop_last,
        labels=np.asarray(labels, np.int64) if single else None,
        lengths=None if lengths is None else np.asarray(lengths, np.int64),
    )


def make_plan(sampler: Any, facts: Facts) -> Any:
    """Return the plan of a strategy's name or a :class:`Sampling`; a user's own plan as it is."""
    if isinstance(sampler, str):
        sampler = SAMPLINGS[sampler]()
    return sampler.plan(facts) if isinstance(sampler, Sampling) else sampler
