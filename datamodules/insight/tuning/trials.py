"""One measurement of one loader setting: samples a second, the first batch, CPU, memory."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from datamodules.core.datamodule import DataModule
from datamodules.core.inside import collate_of
from datamodules.insight.wait_monitor import batch_length
from datamodules.loading.fetch import KeyedDataset
from datamodules.settings.cpu_count import usable_cores

WorkerType = Literal["process", "thread"]


class Setting(NamedTuple):
    """How batches are made.

    Attributes:
        num_workers: 0 makes them in the process that trains.
        prefetch_factor: Batches that each worker makes ahead; None without workers.
        worker_type: What the workers are.
    """

    num_workers: int
    prefetch_factor: int | None = None
    worker_type: WorkerType = "process"

    def __str__(self) -> str:
        if not self.num_workers:
            return "0 workers"
        plural = "es" if self.worker_type == "process" else "s"
        kind = f"{self.worker_type}{plural if self.num_workers > 1 else ''}"
        return f"{self.num_workers} {kind}, prefetch {self.prefetch_factor}"

    @property
    def effort(self) -> tuple[int, int, bool]:
        """Sorts simpler settings first; of equal counts processes, which any dataset can take."""
        return self.num_workers, self.prefetch_factor or 0, self.worker_type == "thread"


@dataclass
class Trial:
    """Measurements of one setting.

    Attributes:
        rates: Samples a second, steady, one value a round.
        firsts: Seconds from asking for the first batch, worker start included.
        cpu_share: CPU time of this process and its workers, of all that it could have used.
        own_mib: Private memory of all worker processes together, or None where the system does
            not say; threads and 0 workers have none beside this process's.
        shared_mib: What of their memory is shared, each worker's counted.
    """

    setting: Setting
    rates: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    cpu_share: float = 0.0
    own_mib: float | None = None
    shared_mib: float | None = None

    @property
    def rate(self) -> float:
        """Median samples a second."""
        return statistics.median(self.rates)

    @property
    def first_batch_seconds(self) -> float:
        """Median time to the first batch."""
        return statistics.median(self.firsts)


def kinds_of_workers(dm: DataModule) -> list[WorkerType]:
    """What can make this datamodule's train batches beside the process that trains."""
    data = dm.train_dataset
    if hasattr(data, "get_batch"):
        return []
    collate = collate_of(dm, "train")
    fit = KeyedDataset(data, collate_fn=collate).unfit_for_threads() is None
    return ["process", "thread"] if fit else ["process"]


def measure_round(dm: DataModule, trial: Trial, seconds: float) -> None:
    """One measurement of one setting, in a loader of its own; its workers are ended."""
    workers = trial.setting.num_workers
    with _loader(dm, trial.setting) as loader:
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
        iterator = getattr(loader, "_iterator", None)
        trial.own_mib, trial.shared_mib = _memory(
            [w.pid for w in getattr(iterator, "_workers", [])]
        )
        wall = time.perf_counter() - began
    trial.cpu_share = (_cpu_seconds() - cpu) / (wall * usable_cores())


def steady_rate(marks: Sequence[tuple[float, int]], workers: int) -> float:
    """Samples a second once the workers have started.

    Workers hand their batches over in bursts of one each, so that whole bursts are counted.

    Args:
        marks: Time and samples so far at each batch, two at least.
        workers: Their number.

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


@contextmanager
def _loader(dm: DataModule, setting: Setting) -> Iterator[Any]:
    options, kind = dm.loader_options, dm.hparams["worker_type"]
    extra: dict[str, Any] = {"persistent_workers": True} if setting.num_workers else {}
    if setting.prefetch_factor:
        extra["prefetch_factor"] = setting.prefetch_factor
    dm.loader_options = {**options, **extra}
    dm.hparams["worker_type"] = setting.worker_type
    try:
        loader = dm._loader("train", num_workers=setting.num_workers)
    finally:
        dm.loader_options, dm.hparams["worker_type"] = options, kind
    try:
        yield loader
    finally:
        end_workers(loader)


def end_workers(loader: Any) -> None:
    """End a loader's persistent workers now; others end with their iterator."""
    iterator: Any = getattr(loader, "_iterator", None)
    if hasattr(iterator, "_shutdown_workers"):
        iterator._shutdown_workers()


def _cpu_seconds() -> float:
    spent = os.times()  # of children only those that have ended: read before and after
    return spent.user + spent.system + spent.children_user + spent.children_system


def _memory(pids: list[int]) -> tuple[float | None, float | None]:
    """Private and other resident MiB of processes, or None where there is no /proc."""
    own = shared = 0.0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        except OSError:
            return None, None
        kib = {name: float(rest.split()[0]) for name, rest in (x.split(":", 1) for x in lines)}
        private = kib["Private_Clean"] + kib["Private_Dirty"]
        own, shared = own + private / 1024, shared + (kib["Rss"] - private) / 1024
    return own, shared
