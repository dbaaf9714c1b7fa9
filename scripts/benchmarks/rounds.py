"""Interleaved rounds of several ways to do one piece of work."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

MIN_SECONDS = 0.3  # shorter work is repeated within a round
HELP = {"samples": "made samples", "epoch_samples": "samples of the training epochs"}


def add_sizes(parser: argparse._ArgumentGroup, *, rounds: int = 5, **defaults: int) -> None:
    """Add an integer option for each size, and ``--rounds``."""
    for name, default in {**defaults, "rounds": rounds}.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=int, default=default, help=HELP.get(name))


class Variant(NamedTuple):
    """One way to do the work.

    Attributes:
        name: ``stock``, ``plain`` (this project), or another library.
        run: Does it once and returns the number of samples; None: the library is not installed.
    """

    name: str
    run: Callable[[], int] | None


def peer(name: str, package: str, run: Callable[[], int]) -> Variant:
    """Make a variant of another library, listed as absent if that is not installed."""
    return Variant(name, run if find_spec(package) is not None else None)


def consume(batches: Iterable[Any], count: Callable[[Any], int] | None = None) -> int:
    """Iterate over all batches and count their samples; a batch ends with its target.

    Workers have ended afterwards, so that their CPU time is counted.
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
    """Run the variants in turn, ``rounds`` times, on one thread.

    Args:
        work: Name of the work.
        variants: The others are compared with the first.
        rounds: Timed runs of each.
        workers: Number of workers, for the table.
        limit: The part of the work that every variant needs, such as decoding.
        warm_up: Whether every variant runs once before it is timed.

    Returns:
        A row per variant: medians, the ratio to the first, ``spread`` ((max - min) / median of
        the CPU figures) and ``limit_share``, the fraction of the limit's speed. CPU time is that
        of the process and its children.

    Raises:
        RuntimeError: If a variant yields no batch.
    """
    torch.set_num_threads(1)
    # imported modules are not collected again, by consume or in forked workers
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
            while number and samples and time.perf_counter() - wall < MIN_SECONDS:
                samples += variant.run()
            cpu, wall = _cpu_seconds() - cpu, time.perf_counter() - wall
            if not samples:
                raise RuntimeError(
                    f"{variant.name} yielded no batch, perhaps it drops the last one; use more "
                    "samples than the batch size"
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
    absent = variant.run is None
    cpu, wall = [f[0] for f in figures], [f[1] for f in figures]
    return {
        "work": work,
        "variant": variant.name + " (not installed)" * absent,
        "workers": workers,
        "samples_per_cpu_second": None if absent else statistics.median(cpu),
        "samples_per_second": None if absent else statistics.median(wall),
        "ratio_cpu": None,
        "ratio_wall": None,
        "spread": None if absent else (max(cpu) - min(cpu)) / statistics.median(cpu),
        "limit_share": None,
    }


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    if sys.platform == "win32":  # which does not count children
        return time.process_time()
    from resource import RUSAGE_CHILDREN, getrusage

    children = getrusage(RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
