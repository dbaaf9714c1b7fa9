"""Search for a batch size: the largest that fits, or the smallest that is as fast per sample."""

from __future__ import annotations

import copy
import gc
import statistics
import warnings
from collections.abc import Callable
from typing import NamedTuple

import lightning as L
import torch

from datamodules.core.accessors import copy_of
from datamodules.core.datamodule import DataModule
from datamodules.insight.wait_monitor import DataWaitMonitor

PAYS = 0.95  # a doubled batch must take less of the time per sample than this
SMALLEST, LARGEST = 8, 4096


class SizeTrial(NamedTuple):
    """The training step at one batch size.

    Attributes:
        batch_size: Samples.
        step_seconds: Median time of a step; None if it ran out of memory.
    """

    batch_size: int
    step_seconds: float | None

    @property
    def seconds_a_sample(self) -> float:
        """Step time per sample."""
        return float("inf") if self.step_seconds is None else self.step_seconds / self.batch_size


def search_batch_size(
    dm: DataModule,
    module: L.LightningModule,
    *,
    accelerator: str = "auto",
    progress: Callable[[str], None] = lambda line: None,
) -> tuple[int, list[SizeTrial]]:
    """Double the batch size from 8 until memory runs out, on a CPU until it no longer pays.

    Args:
        dm: Not changed.
        module: Copied for each size.
        accelerator: That of the Trainer.
        progress: Called with a line for each size.

    Returns:
        The best size, and every size tried. On an accelerator the best is the largest that fits;
        on a CPU the smallest within 5 % of the best time per sample.

    Raises:
        ValueError: If ``global_batch_size`` decides the size, or there are too few samples.
        RuntimeError: If the smallest size does not fit.
    """
    if dm.hparams["global_batch_size"] is not None:
        raise ValueError("global_batch_size decides the batch; leave it out to search for a size")
    largest = min(LARGEST, len(dm.train_dataset) // 3)
    if largest < SMALLEST:
        raise ValueError(
            f"{len(dm.train_dataset)} train samples are too few to search for a batch size; three "
            f"batches of {SMALLEST} are needed"
        )
    on_cpu = accelerator == "cpu" or (
        accelerator == "auto" and not torch.accelerator.is_available()
    )
    tried: list[SizeTrial] = []
    size = SMALLEST
    while size <= largest:
        trial = SizeTrial(size, _step_seconds_or_none(dm, module, size, accelerator))
        tried.append(trial)
        if trial.step_seconds is None:
            progress(f"batches of {size}: out of memory")
            break
        progress(f"batches of {size}: a step of {trial.step_seconds * 1000:.1f} ms")
        # two in a row, as one slow measurement proves nothing
        last = [t.seconds_a_sample for t in tried[-3:]]
        if on_cpu and len(last) == 3 and min(last[1:]) >= PAYS * last[0]:
            break
        size *= 2
    fits = [trial for trial in tried if trial.step_seconds is not None]
    if not fits:
        raise RuntimeError(f"a batch of {SMALLEST} does not fit the device; use a smaller model")
    if not on_cpu:
        return fits[-1].batch_size, tried
    best = min(trial.seconds_a_sample for trial in fits)
    return min(t.batch_size for t in fits if t.seconds_a_sample <= best / PAYS), tried


def _step_seconds_or_none(
    dm: DataModule, module: L.LightningModule, size: int, accelerator: str
) -> float | None:
    sized = copy_of(dm)
    sized.hparams["batch_size"] = size
    try:
        return step_seconds(sized, copy.deepcopy(module), accelerator=accelerator)
    except torch.OutOfMemoryError:
        return None
    finally:
        if torch.accelerator.is_available():
            gc.collect()  # the last Trainer's tensors
            if torch.cuda.is_available():
                torch.cuda.empty_cache()  # does nothing before the device is in use


def step_seconds(
    dm: DataModule, module: L.LightningModule, *, steps: int = 8, accelerator: str = "cpu"
) -> float:
    """Return the median seconds of a training step.

    Args:
        dm: Gives the batches.
        module: The model; it is trained for a few steps.
        steps: Number of steps.
        accelerator: That of the Trainer; on CUDA the step is measured by events.

    Raises:
        ValueError: If an epoch has one batch only.
    """
    monitor = DataWaitMonitor()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = L.Trainer(
            accelerator=accelerator,
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
        raise ValueError("one batch per epoch is too few to measure a step; lower batch_size")
    return statistics.median(monitor.steps)


def size_sentence(size: int, sizes: list[SizeTrial]) -> str:
    """Return why a batch size is best.

    Example:
        >>> size_sentence(16, [SizeTrial(8, 0.008), SizeTrial(16, 0.012), SizeTrial(32, 0.024)])
        'batches of 16: 0.75 ms of the step per sample; the largest tried, 32, takes 0.75 ms'
        >>> size_sentence(8, [SizeTrial(8, 0.008), SizeTrial(16, None)])
        'batches of 8: 1.00 ms of the step per sample; 16 is out of memory'
    """
    spent = {trial.batch_size: trial.seconds_a_sample * 1000 for trial in sizes}
    text, last = f"batches of {size}: {spent[size]:.2f} ms of the step per sample", sizes[-1]
    if last.step_seconds is None:
        return f"{text}; {last.batch_size} is out of memory"
    return f"{text}; the largest tried, {last.batch_size}, takes {spent[last.batch_size]:.2f} ms"
