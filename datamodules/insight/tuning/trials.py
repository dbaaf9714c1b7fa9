"""Measure one loader setting: samples per second, first batch, CPU time, memory of workers."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from datamodules.batches.dataset_interface import DatasetInterface
from datamodules.core.accessors import copy_of, loader_of
from datamodules.core.datamodule import DataModule
from datamodules.insight.wait_monitor import batch_length
from datamodules.loading.loader import Loader
from datamodules.settings.cpu_count import usable_cores

WorkerType = Literal["process", "thread"]


class Setting(NamedTuple):
    """How batches are made.

    Attributes:
        num_workers: 0 makes them in the process that trains.
        prefetch_factor: Batches that each worker makes ahead; None without workers.
        worker_type: Processes or threads.
    """

    num_workers: int
    prefetch_factor: int | None = None
    worker_type: WorkerType = "process"

    def __str__(self) -> str:
        if not self.num_workers:
            return "0 workers"
        plural = "es" if self.worker_type == "process" else "s"
        workers = f"{self.worker_type}{plural if self.num_workers > 1 else ''}"
        return f"{self.num_workers} {workers}, prefetch {self.prefetch_factor}"

    @property
    def effort(self) -> tuple[int, int, bool]:
        """Sort key, simplest first; of equal counts processes, as any dataset runs in them."""
        return self.num_workers, self.prefetch_factor or 0, self.worker_type == "thread"


@dataclass
class Trial:
    """Measurements of one setting.

    Attributes:
        rates: Samples per second once workers run, one value for each round.
        firsts: Seconds until the first batch, including the start of workers.
        cpu_share: CPU time of this process and its workers, as a share of all cores.
        own_mib: Private memory of all worker processes, or None if the system does not tell;
            0 for threads and no workers.
        shared_mib: Their shared memory, counted for each worker.
    """

    setting: Setting
    rates: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    cpu_share: float = 0.0
    own_mib: float | None = None
    shared_mib: float | None = None

    @property
    def rate(self) -> float:
        """Median samples per second."""
        return statistics.median(self.rates)

    @property
    def first_batch_seconds(self) -> float:
        """Median time to the first batch."""
        return statistics.median(self.firsts)


def kinds_of_workers(dm: DataModule) -> list[WorkerType]:
    """Return the worker types that can make this datamodule's train batches."""
    if DatasetInterface(dm.train_dataset).batches is not None:
        return []
    try:
        make_loader(dm, Setting(1, 2, "thread"))
    except ValueError:
        return ["process"]
    return ["process", "thread"]


def make_loader(dm: DataModule, setting: Setting) -> Loader:
    """Return a train loader with a setting; the datamodule is not changed."""
    dm = copy_of(dm)
    dm.hparams.update(num_workers=setting.num_workers, worker_type=setting.worker_type)
    if setting.num_workers:
        dm.loader_options.update(prefetch_factor=setting.prefetch_factor, persistent_workers=True)
    return loader_of(dm, "train")


def measure_round(dm: DataModule, trial: Trial, seconds: float) -> None:
    """Measure one setting once, with a loader and workers of its own."""
    workers = trial.setting.num_workers
    others = {process.pid for process in multiprocessing.active_children()}
    with closing(make_loader(dm, trial.setting)) as loader:
        cpu, began = _cpu_seconds(), time.perf_counter()
        stop, samples, marks = 0.0, 0, []
        while not stop or time.perf_counter() < stop:
            for batch in loader:
                samples += batch_length(batch)
                marks.append((time.perf_counter(), samples))
                stop = stop or marks[0][0] + seconds
                if time.perf_counter() >= stop and len(marks) > 4 * workers + 1:
                    break
        trial.firsts.append(marks[0][0] - began)
        trial.rates.append(steady_rate(marks, workers))
        started = {process.pid for process in multiprocessing.active_children()} - others
        trial.own_mib, trial.shared_mib = _memory(started)
        wall = time.perf_counter() - began
    trial.cpu_share = (_cpu_seconds() - cpu) / (wall * usable_cores())


def steady_rate(marks: Sequence[tuple[float, int]], workers: int) -> float:
    """Return the samples per second once the workers have started.

    Workers return their batches in bursts of one each, so whole bursts are counted.

    Args:
        marks: Time and samples so far at each batch, at least two.
        workers: Number of workers.

    Example:
        >>> marks = [(0, 4), (5, 8), (5, 12), (6, 16), (6, 20), (7, 24), (7, 28)]
        >>> steady_rate(marks, 2)
        8.0
    """
    first = min(2 * workers, len(marks) - 2)
    bursts = (len(marks) - 1 - first) // max(1, workers)
    last = first + bursts * max(1, workers) if bursts else len(marks) - 1
    (t0, n0), (t1, n1) = marks[first], marks[last]
    return (n1 - n0) / max(t1 - t0, 1e-9)


def _cpu_seconds() -> float:
    spent = os.times()  # of children only those that have ended: read before and after
    return spent.user + spent.system + spent.children_user + spent.children_system


def _memory(pids: set[int | None]) -> tuple[float | None, float | None]:
    """Return private and other resident MiB of processes, or None if there is no /proc."""
    own = shared = 0.0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        except OSError:
            return None, None
        kib = {name: float(value.split()[0]) for name, value in (x.split(":", 1) for x in lines)}
        private = kib["Private_Clean"] + kib["Private_Dirty"]
        own, shared = own + private / 1024, shared + (kib["Rss"] - private) / 1024
    return own, shared
