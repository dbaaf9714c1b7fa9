"""Find the loader's settings by measuring: the simplest that is as fast as the best."""

from __future__ import annotations

import json
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import torch

from ..core.base import DataModule
from ..core.cores import usable_cores
from .monitor import DataWaitMonitor, batch_length
from .stages import stage_sentence, time_stages

NEAR = 0.95  # a setting within 5 % of the best is as good: the simplest of them is taken
ROUNDS = 5  # interleaved, so that another program's load falls on all settings alike


class Setting(NamedTuple):
    """What is chosen; simpler settings sort first."""

    num_workers: int
    prefetch_factor: int | None = None


@dataclass
class Trial:
    """Measurements of one setting.

    Attributes:
        rates: Samples a second, steady, one value a round.
        first_batch_seconds: From asking for the first batch, worker start included; a median.
        cpu_share: CPU time of this process and its workers, of all that it could have used.
        own_mib: Private memory of all workers, or None where the system does not say.
        shared_mib: The workers' memory that is not private.
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


@dataclass
class Tuning:
    """What :func:`tune` found.

    Attributes:
        best: The setting to use.
        batch_size: The batch size it was measured with.
        trials: Every setting tried, in the order of trying.
        stages: Seconds a sample, by stage.
        step_seconds: The module's training step, or None without a module.
        sentences: What it means, one line each.
    """

    best: Setting
    batch_size: int
    trials: list[Trial]
    stages: dict[str, float]
    step_seconds: float | None
    sentences: list[str]

    @property
    def flags(self) -> str:
        """Options for ``fit.py``."""
        flags = f"--data.batch_size {self.batch_size} --data.num_workers {self.best.num_workers}"
        if self.best.prefetch_factor not in (None, 2):  # 2 is torch's default
            flags += (
                f" --data.loader_options '{{\"prefetch_factor\": {self.best.prefetch_factor}}}'"
            )
        return flags

    def to_json(self) -> str:
        """Everything, for machines."""
        trials = [
            {
                **t.setting._asdict(),
                "samples_per_second": t.rate,
                "first_batch_seconds": t.first_batch_seconds,
                **{k: v for k, v in asdict(t).items() if k not in ("setting", "firsts")},
            }
            for t in self.trials
        ]
        found = {"best": self.best._asdict(), "batch_size": self.batch_size, "flags": self.flags}
        found |= {"stages": self.stages, "step_seconds": self.step_seconds}
        return json.dumps({**found, "sentences": self.sentences, "trials": trials}, indent=2)

    def plot(self, path: str | Path) -> None:
        """Draw samples a second by worker count as a PNG."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 3.5), layout="constrained")
        axes = figure.add_subplot()
        names = [
            f"{t.setting.num_workers} x {t.setting.prefetch_factor or '-'}" for t in self.trials
        ]
        bars = axes.bar(names, [t.rate for t in self.trials], color="0.7")
        bars[[t.setting for t in self.trials].index(self.best)].set(color="tab:blue", hatch="//")
        if self.step_seconds:
            axes.axhline(self.batch_size / self.step_seconds, color="k", ls="--", label="model")
            axes.legend()
        axes.set(xlabel="workers x prefetch (hatched: chosen)", ylabel="samples a second")
        figure.savefig(path, dpi=120)


def tune(
    dm: DataModule,
    module: L.LightningModule | None = None,
    *,
    max_workers: int | None = None,
    seconds: float = 1.0,
    progress: Callable[[str], None] = lambda line: None,
) -> Tuning:
    """Measure the train loader over worker counts and prefetching, and choose.

    Worker counts rise from 0 while more workers pay, and never beyond the cores this process may
    use. Those near the best are measured again in interleaved rounds; of the medians within 5 % of
    the best, the one with the fewest workers is chosen. Data in memory want no workers: there only
    0 is measured. No worker is left behind and the datamodule keeps its settings.

    Args:
        dm: A map-style source.
        module: Its training step is measured beside the loader, on the CPU.
        max_workers: The most to try; None: the cores this process may use.
        seconds: Of each measurement; there are some 5 for each setting.
        progress: Gets a line for each measurement.

    Raises:
        ValueError: If there is no train data, or they are a stream.
    """
    dm.prepare_data()
    data = dm.train_dataset
    if not hasattr(data, "__len__"):
        raise ValueError("a stream is read whole by every worker; tune takes map-style datasets")
    most = max(1, min(max_workers if max_workers is not None else 10**6, usable_cores()))
    if max_workers == 0:
        most = 0
    trials: dict[Setting, Trial] = {}

    def measure(setting: Setting) -> Trial:
        trial = trials.setdefault(setting, Trial(setting))
        measure_round(dm, trial, seconds)
        progress(f"{setting.num_workers} workers: {trial.rates[-1]:,.0f} samples/s")
        return trial

    best = measure(Setting(0))
    workers = 1
    while workers <= most and not hasattr(data, "get_batch"):
        trial = measure(Setting(workers, 2))
        if workers > 1 and trial.rate < best.rate * 1.02:
            break  # more workers have stopped paying
        best = max(best, trial, key=lambda t: t.rate)
        workers = most if workers < most < 2 * workers else 2 * workers
    if best.setting.num_workers:
        measure(Setting(best.setting.num_workers, 4))
    left = list(trials.values())
    for number in range(1, ROUNDS):
        top = max(t.rate for t in left)
        left = [t for t in left if t.rate >= top * (0.6 if number < 3 else 0.8)]
        for trial in left if len(left) > 1 or number < 3 else []:
            measure(trial.setting)
    top = max(t.rate for t in left)
    chosen = min((t for t in left if t.rate >= top * NEAR), key=lambda t: _simplicity(t.setting))
    stages = time_stages(dm)
    step = None if module is None else step_seconds(dm, module)
    size = int(dm.hparams["batch_size"])
    sentences = said(dm, chosen, size, stages, step)
    return Tuning(chosen.setting, size, list(trials.values()), stages, step, sentences)


def _simplicity(setting: Setting) -> tuple[int, int]:
    return setting.num_workers, setting.prefetch_factor or 0


def said(
    dm: DataModule, chosen: Trial, size: int, stages: dict[str, float], step: float | None
) -> list[str]:
    """What the figures mean."""
    count = chosen.setting.num_workers
    lines = [stage_sentence(stages)]
    if hasattr(dm.train_dataset, "get_batch"):
        lines.append("the data are in memory and served a batch at a time: 0 workers")
    if step is not None:
        load = size / chosen.rate
        side = "the model is" if step >= load else "the loader is"
        enough = f", {count} workers are enough" if step >= load else ""
        lines.append(
            f"the loader needs {load * 1000:.1f} ms, the step {step * 1000:.1f} ms: {side} the "
            f"bottleneck{enough}"
        )
    return lines


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
                if time.perf_counter() >= stop and len(marks) > 2 * workers + 1:
                    break
        trial.firsts.append(marks[0][0] - began)
        # what the workers had ready beforehand is no steady rate
        (t0, n0), (t1, n1) = marks[min(2 * workers, len(marks) - 2)], marks[-1]
        trial.rates.append((n1 - n0) / max(t1 - t0, 1e-9))
        iterator = getattr(loader, "_iterator", None)
        trial.own_mib, trial.shared_mib = _memory(
            [w.pid for w in getattr(iterator, "_workers", [])]
        )
        wall = time.perf_counter() - began
    trial.cpu_share = (_cpu_seconds() - cpu) / (wall * usable_cores())


@contextmanager
def _loader(dm: DataModule, setting: Setting) -> Iterator[Any]:
    options = dm.loader_options
    extra: dict[str, Any] = {"persistent_workers": True} if setting.num_workers else {}
    if setting.prefetch_factor:
        extra["prefetch_factor"] = setting.prefetch_factor
    dm.loader_options = {**options, **extra}
    try:
        loader = dm._loader("train", num_workers=setting.num_workers)
    finally:
        dm.loader_options = options
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


def step_seconds(dm: DataModule, module: L.LightningModule, *, steps: int = 8) -> float:
    """Median seconds of a training step on the CPU; trains a few steps, so give a spare module."""
    monitor = DataWaitMonitor()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = L.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=1,
            limit_train_batches=steps,
            limit_val_batches=0,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[monitor],
        )
        trainer.fit(module, datamodule=dm)
    if not monitor.steps:
        raise ValueError("one batch an epoch is too few to measure a step; lower batch_size")
    return statistics.median(monitor.steps)


def largest_batch(fits: Callable[[int], None], *, start: int, limit: int) -> int:
    """The largest batch size, by doubling from ``start``, that ``fits`` runs without memory error.

    Args:
        fits: Runs a step at a size; raises ``torch.OutOfMemoryError`` where memory ends.
        start: The first size.
        limit: The most, such as the number of train samples.

    Raises:
        RuntimeError: If not even ``start`` fits.
    """
    best, size = 0, start
    while size <= limit:
        try:
            fits(size)
        except torch.OutOfMemoryError:
            break
        best, size = size, 2 * size
    if not best:
        raise RuntimeError(f"a batch of {start} does not fit the device; start lower")
    return best
