"""Interleaved rounds of several ways to do one piece of work."""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

LEAST_SECONDS = 0.3  # shorter work is repeated within a round


class Variant(NamedTuple):
    """One way to do the work.

    Attributes:
        name: ``stock``, a way of this project, or a peer's name.
        run: Does it once and returns the number of samples; None: the peer is not installed.
    """

    name: str
    run: Callable[[], int] | None


def peer(name: str, package: str, run: Callable[[], int]) -> Variant:
    """A way of another package, listed as absent where that is not installed."""
    return Variant(name, run if find_spec(package) is not None else None)


def consume(batches: Iterable[Any], count: Callable[[Any], int] | None = None) -> int:
    """Take all batches and count their samples; the last part of a batch is the target.

    Workers are joined on the way, so that their CPU time is counted.
    """
    before = set(multiprocessing.active_children())
    samples, batch = 0, None
    for batch in batches:
        samples += len(batch[-1]) if count is None else count(batch)
    del batches, batch
    if set(multiprocessing.active_children()) - before:  # of a loader in a cycle
        gc.collect()
    return samples


def compare(
    work: str,
    variants: Sequence[Variant],
    *,
    rounds: int,
    workers: int = 0,
    limit: Variant | None = None,
    warm_up: bool = True,
) -> list[dict[str, Any]]:
    """Run the variants in turn, ``rounds`` times.

    Args:
        work: Name of the work.
        variants: The first is what the others are compared with.
        rounds: Timed runs of each.
        workers: Workers that the variants use, for the table.
        warm_up: Whether every variant runs once before it is timed.
        limit: The part of the work that cannot be left out, such as decoding alone.

    Returns:
        A row a variant: medians, the ratio to the first, ``spread`` ((most - least) / median of
        the CPU figures) and ``limit_share``, the part of the limit's speed that is reached. CPU
        time is that of the process and its children, on one thread.

    Raises:
        RuntimeError: If a variant gives nothing.
    """
    torch.set_num_threads(1)
    # what peers have imported is not looked through again, by consume nor in forked workers
    gc.collect()
    gc.freeze()
    every = [*variants, *([limit] if limit is not None else [])]
    figures: dict[str, list[tuple[float, float]]] = {v.name: [] for v in every}
    for number in range(0 if warm_up else 1, rounds + 1):
        for variant in every:
            if variant.run is None:
                continue
            cpu, wall = _cpu_seconds(), time.perf_counter()
            samples = variant.run()
            while number and samples and time.perf_counter() - wall < LEAST_SECONDS:
                samples += variant.run()
            cpu, wall = _cpu_seconds() - cpu, time.perf_counter() - wall
            if not samples:
                raise RuntimeError(
                    f"{variant.name} gave no batch, perhaps it drops the last one; take more "
                    "samples than a batch has"
                )
            if number:
                figures[variant.name].append((samples / max(cpu, 1e-9), samples / wall))
    gc.unfreeze()
    rows = [_row(work, v, figures[v.name], workers) for v in every]
    first = rows[0]
    best = rows[-1]["samples_per_cpu_second"] if limit is not None else None
    for row in rows:
        for unit, ratio in (("cpu_second", "ratio_cpu"), ("second", "ratio_wall")):
            value = row[f"samples_per_{unit}"]
            row[ratio] = None if value is None else value / first[f"samples_per_{unit}"]
        mine = row["samples_per_cpu_second"]
        row["limit_share"] = None if best is None or mine is None else mine / best
    return rows


def _row(
    work: str, variant: Variant, figures: Sequence[tuple[float, float]], workers: int
) -> dict[str, Any]:
    name = variant.name if variant.run is not None else f"{variant.name} (not installed)"
    cpu, wall = [f[0] for f in figures], [f[1] for f in figures]
    median = statistics.median(cpu) if cpu else None
    return {
        "work": work,
        "variant": name,
        "workers": workers,
        "samples_per_cpu_second": median,
        "samples_per_second": statistics.median(wall) if wall else None,
        "ratio_cpu": None,
        "ratio_wall": None,
        "spread": None if median is None else (max(cpu) - min(cpu)) / median,
        "limit_share": None,
    }


def _cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    if sys.platform == "win32":  # which does not count children
        return time.process_time()
    from resource import RUSAGE_CHILDREN, getrusage

    children = getrusage(RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
