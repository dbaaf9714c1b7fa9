"""Find the fastest loader settings by measuring, and choose the simplest of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import lightning as L

from datamodules.batches.dataset_interface import DatasetInterface
from datamodules.core.accessors import copy_of
from datamodules.core.datamodule import DataModule

from .batch_size_search import SizeTrial, search_batch_size, size_sentence, step_seconds
from .stage_timing import stage_sentence, time_stages
from .trials import Setting, Trial
from .worker_search import Search


@dataclass
class Tuning:
    """The result of :func:`tune`.

    Attributes:
        best: The setting to use.
        batch_size: The batch size it was measured with.
        trials: Every setting tried, in order.
        stages: Seconds per sample by stage.
        step_seconds: Duration of the module's training step; None without a module.
        sentences: What the measurements mean, one line each.
        sizes: Batch sizes tried, if they were searched.
        worker_type: The datamodule's own setting.
        of_best: With ``exhaustive``, the chosen setting's rate as a share of the best of all.
    """

    best: Setting
    batch_size: int
    trials: list[Trial]
    stages: dict[str, float]
    step_seconds: float | None
    sentences: list[str]
    sizes: list[SizeTrial] = field(default_factory=list)
    worker_type: str = "process"
    of_best: float | None = None

    @property
    def flags(self) -> str:
        """Options for ``fit.py``."""
        flags = f"--data.batch_size {self.batch_size} --data.num_workers {self.best.num_workers}"
        if self.best.num_workers and self.best.worker_type != self.worker_type:
            flags += f" --data.worker_type {self.best.worker_type}"
        if self.best.prefetch_factor not in (None, 2):  # 2 is torch's default
            flags += (
                f" --data.loader_options '{{\"prefetch_factor\": {self.best.prefetch_factor}}}'"
            )
        return flags

    def to_json(self) -> str:
        """Return everything as JSON."""
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
        found |= {"batch_sizes": [size._asdict() for size in self.sizes], "of_best": self.of_best}
        return json.dumps({**found, "sentences": self.sentences, "trials": trials}, indent=2)

    def plot(self, path: str | Path) -> None:
        """Draw samples per second by setting as a PNG file."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 1.6 + 0.32 * len(self.trials)), layout="constrained")
        axes = figure.add_subplot()
        names = [str(t.setting) for t in self.trials]
        bars = axes.barh(names, [t.rate for t in self.trials], color="0.75", edgecolor="0.3")
        bars[[t.setting for t in self.trials].index(self.best)].set(
            facecolor="tab:blue", hatch="//", edgecolor="w"
        )
        if self.step_seconds:
            axes.axvline(self.batch_size / self.step_seconds, color="k", ls="--", label="the model")
            axes.legend()
        axes.invert_yaxis()
        axes.set(xlabel="samples per second (hatched: chosen)")
        figure.savefig(path, dpi=120)


def tune(
    dm: DataModule,
    module: L.LightningModule | None = None,
    *,
    max_workers: int | None = None,
    seconds: float = 1.0,
    batch_sizes: bool = False,
    accelerator: str = "auto",
    exhaustive: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> Tuning:
    """Measure the train loader over worker counts, worker types and prefetching, and choose.

    Worker counts rise from 0 while more workers pay, up to the cores this process may use; threads
    are tried if the dataset allows them. The best settings are measured again in interleaved
    rounds. Of the medians within 5 % of the best, the one with the fewest workers is chosen. For
    data in memory only 0 workers are measured. The datamodule is not changed.

    Args:
        dm: A map-style source.
        module: Its training step is measured beside the loader.
        max_workers: Most workers to try; None: the cores this process may use.
        seconds: Duration of each measurement; there are about 5 for each setting.
        batch_sizes: Search for a batch size first, see
            :func:`~datamodules.insight.tuning.batch_size_search.search_batch_size`, and measure
            with it.
        accelerator: That of the Trainer for the module's step.
        exhaustive: Measure every setting in rounds, and compare the choice with the best of all.
        progress: Called with a line for each measurement.

    Raises:
        ValueError: If the train data are a stream, or ``batch_sizes`` is given without a module.
    """
    if batch_sizes and module is None:
        raise ValueError("the batch size depends on the module's step; pass a module")
    dm.prepare_data()
    if not hasattr(dm.train_dataset, "__len__"):
        raise ValueError("a stream is read whole by every worker; tune takes map-style datasets")
    size, sizes = int(dm.hparams["batch_size"]), list[SizeTrial]()
    if batch_sizes and module is not None:
        size, sizes = search_batch_size(dm, module, accelerator=accelerator, progress=progress)
    dm = copy_of(dm)
    dm.hparams["batch_size"] = size
    search = Search(dm, seconds, max_workers, progress)
    chosen = search.choose()
    of_best = search.compare_all(chosen) if exhaustive else None
    step = None
    if module is not None:
        step = step_seconds(copy_of(dm), copy.deepcopy(module), accelerator=accelerator)
    stages = time_stages(dm)
    sentences = [size_sentence(size, sizes)] if sizes else []
    sentences += explain(dm, chosen, size, stages, step)
    return Tuning(
        chosen.setting,
        size,
        [*search.trials.values()],
        stages,
        step,
        sentences,
        sizes,
        dm.hparams["worker_type"],
        of_best,
    )


def explain(
    dm: DataModule, chosen: Trial, size: int, stages: dict[str, float], step: float | None
) -> list[str]:
    """Return what the measurements mean, one line each."""
    count = chosen.setting.num_workers
    lines = [stage_sentence(stages)]
    if "transfer" not in stages:
        lines.append("transfer: none, as there is no accelerator")
    if DatasetInterface(dm.train_dataset).batches is not None:
        lines.append("the data are in memory and come in whole batches: 0 workers are best")
    if step is not None:
        load = size / chosen.rate
        side = "the model is" if step >= load else "the loader is"
        plural = " is" if count == 1 else "s are"
        enough = f", {count} worker{plural} enough" if step >= load else ""
        lines.append(
            f"the loader needs {load * 1000:.1f} ms, the step {step * 1000:.1f} ms: {side} the "
            f"bottleneck{enough}"
        )
    return lines
