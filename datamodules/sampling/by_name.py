"""Kinds of sampling by their short names, and the plan of a train split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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


def facts_of(dataset: Any, *, batch_size: int, drop_last: bool, classes: bool) -> Facts:
    """What a kind of sampling may know of a train dataset.

    Args:
        dataset: With ``targets`` (n,) and ``lengths`` (n,) as far as it has them.
        batch_size: Rows of a batch.
        drop_last: Leave an incomplete last step out.
        classes: Whether the targets are one class a sample.
    """
    labels = getattr(dataset, "targets", None) if classes else None
    single = labels is not None and np.ndim(labels) == 1
    lengths = getattr(dataset, "lengths", None)
    lengths = lengths() if callable(lengths) else lengths
    return Facts(
        n=len(dataset),
        batch_size=batch_size,
        drop_last=drop_last,
        labels=np.asarray(labels, np.int64) if single else None,
        lengths=None if lengths is None else np.asarray(lengths, np.int64),
    )


def make_plan(sampler: Any, facts: Facts) -> Any:
    """Plan of a short name, a :class:`Sampling`, or a user's own plan as it is."""
    if isinstance(sampler, str):
        sampler = SAMPLINGS[sampler]()
    return sampler.plan(facts) if isinstance(sampler, Sampling) else sampler
