"""Time and memory of planning one epoch on one rank of eight, in a new process per sampler."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

from .tables import Result

KINDS = (
    *("shuffle", "sequential", "weighted", "weighted, none twice", "balanced"),
    *("stratified", "p_by_k", "pairs", "views", "length_buckets"),
)


def add_options(parser: argparse._ArgumentGroup) -> None:
    """Add sizes of the epoch."""
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)


def measure(options: argparse.Namespace) -> Result:
    """Plan an epoch and take its first batch."""
    rows = []
    for kind in options.kinds:
        # a new process: peak memory never falls
        with get_context("spawn").Pool(1) as pool:
            seconds, mib = pool.apply(
                plan_epoch,
                (kind, options.samples, options.ranks, options.classes, options.batch_size),
            )
        rows.append({"kind": kind, "seconds": seconds, "MiB above the data": mib})
    return Result(f"Planning {options.samples:,} samples on 1 of {options.ranks} ranks", rows)


def plan_epoch(
    kind: str, samples: int, ranks: int, classes: int, batch_size: int
) -> tuple[float, float | None]:
    """Return the seconds until the first batch and the growth of the process in MiB.

    Labels, weights and lengths exist before. The growth is None if the platform does not report it.
    """
    import numpy as np
    import torch

    from datamodules.sampling.by_class import Pairs, PByK, Stratified
    from datamodules.sampling.length_buckets import LengthBuckets
    from datamodules.sampling.sharded_sampler import ShardedBatchSampler
    from datamodules.sampling.strategies import (
        Balanced,
        Facts,
        Sampling,
        Sequential,
        Shuffle,
        Views,
        Weighted,
    )

    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    labels = random.integers(0, classes, samples)
    weights: Any = random.random(samples) if kind.startswith("weighted") else None
    lengths = random.integers(1, 512, samples) if kind == "length_buckets" else None
    make: dict[str, Callable[[], Sampling]] = {
        "shuffle": Shuffle,
        "sequential": Sequential,
        "weighted": lambda: Weighted(weights),
        "weighted, none twice": lambda: Weighted(weights, replacement=False),
        "balanced": Balanced,
        "stratified": Stratified,
        "p_by_k": lambda: PByK(32, batch_size // 32),
        "pairs": Pairs,
        "views": Views,
        "length_buckets": LengthBuckets,
    }
    sampling = make[kind]()
    before = peak_mib()
    start = time.perf_counter()
    plan = sampling.plan(Facts(samples, batch_size, labels=labels, lengths=lengths))
    next(iter(ShardedBatchSampler(plan, samples, num_replicas=ranks, rank=0, seed=0)))
    seconds = time.perf_counter() - start
    after = peak_mib()
    return seconds, None if before is None or after is None else after - before


def peak_mib() -> float | None:
    """Return the peak resident memory of this process in MiB; None on Windows."""
    if sys.platform == "win32":
        return None
    from resource import RUSAGE_SELF, getrusage

    unit = 2**20 if sys.platform == "darwin" else 2**10
    return getrusage(RUSAGE_SELF).ru_maxrss / unit
