"""Find the loader's settings by measuring: the simplest that is as fast as the best."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import lightning as L

from datamodules.core.datamodule import DataModule

from .batch_size_search import SizeTrial, search_batch_size, step_seconds
from .stage_timing import stage_sentence, time_stages
from .trials import Setting, Trial
from .worker_search import Search


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
        sizes: Batch sizes tried, where they were searched.
        worker_type: The datamodule's own, which needs no flag.
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
        found |= {"batch_sizes": [size._asdict() for size in self.sizes], "of_best": self.of_best}
        return json.dumps({**found, "sentences": self.sentences, "trials": trials}, indent=2)

    def plot(self, path: str | Path) -> None:
        """Draw samples a second by setting as a PNG."""
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
        axes.set(xlabel="samples a second (hatched: chosen)")
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
    """Measure the train loader over worker counts, kinds and prefetching, and choose.

    Worker counts rise from 0 while more workers pay, and never beyond the cores this process may
    use; of what threads can serve, threads are tried too. Those near the best are measured again
    in interleaved rounds; of the medians within 5 % of the best, the one with the fewest workers
    is chosen. Data in memory want no workers: there only 0 is measured. No worker is left behind
    and the datamodule keeps its settings.

    Args:
        dm: A map-style source.
        module: Its training step is measured beside the loader.
        max_workers: The most to try; None: the cores this process may use.
        seconds: Of each measurement; there are some 5 for each setting.
        batch_sizes: Search for a batch size first, see
            :func:`~datamodules.insight.tuning.batch_size_search.search_batch_size`, and measure
            with it.
        accelerator: What the module's step runs on, as the Trainer's.
        exhaustive: Measure every setting as often as the best, and say how near the choice comes.
        progress: Gets a line for each measurement.

    Raises:
        ValueError: If there is no train data, or they are a stream; if batch sizes are to be
            searched without a module.
    """
    if batch_sizes and module is None:
        raise ValueError("a batch size is judged by the module's step; pass a module")
    dm.prepare_data()
    if not hasattr(dm.train_dataset, "__len__"):
        raise ValueError("a stream is read whole by every worker; tune takes map-style datasets")
    given = dm.hparams["batch_size"]
    size, sizes = int(given), list[SizeTrial]()
    if batch_sizes and module is not None:
        size, sizes = search_batch_size(dm, module, accelerator=accelerator, progress=progress)
    dm.hparams["batch_size"] = size
    try:
        search = Search(dm, seconds, max_workers, progress)
        chosen = search.choose()
        of_best = search.compare_all(chosen) if exhaustive else None
        step = None
        if module is not None:
            step = step_seconds(dm, copy.deepcopy(module), accelerator=accelerator)
        stages = time_stages(dm)
        sentences = said(dm, chosen, size, stages, step)
    finally:
        dm.hparams["batch_size"] = given
    if sizes:
        sentences.insert(0, size_sentence(size, sizes))
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


def size_sentence(size: int, sizes: list[SizeTrial]) -> str:
    """Why a batch size was taken.

    Example:
        >>> size_sentence(16, [SizeTrial(8, 0.008), SizeTrial(16, 0.012), SizeTrial(32, 0.024)])
        'batches of 16: 0.75 ms of the step a sample; the largest tried, 32, takes 0.75 ms'
        >>> size_sentence(8, [SizeTrial(8, 0.008), SizeTrial(16, None)])
        'batches of 8: 1.00 ms of the step a sample; at 16 memory ends'
    """
    known = {trial.batch_size: trial for trial in sizes}
    said = f"batches of {size}: {known[size].seconds_a_sample * 1000:.2f} ms of the step a sample"
    last = sizes[-1]
    if last.step_seconds is None:
        return f"{said}; at {last.batch_size} memory ends"
    each = last.seconds_a_sample * 1000
    return f"{said}; the largest tried, {last.batch_size}, takes {each:.2f} ms"


def said(
    dm: DataModule, chosen: Trial, size: int, stages: dict[str, float], step: float | None
) -> list[str]:
    """What the figures mean."""
    count = chosen.setting.num_workers
    lines = [stage_sentence(stages)]
    if "transfer" not in stages:
        lines.append("transfer: none, since there is no accelerator")
    if hasattr(dm.train_dataset, "get_batch"):
        lines.append("the data are in memory and served a batch at a time: 0 workers")
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
