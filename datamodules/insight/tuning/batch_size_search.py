"""The batch size that a module wants: the largest that fits, or the last that saves time."""

from __future__ import annotations

import copy
import gc
import statistics
import warnings
from collections.abc import Callable
from typing import NamedTuple

import lightning as L
import torch

from datamodules.core.datamodule import DataModule
from datamodules.insight.wait_monitor import DataWaitMonitor

PAYS = 0.95  # a doubled batch that takes more of the time a sample than this does not pay
SMALLEST, LARGEST = 8, 4096


class SizeTrial(NamedTuple):
    """A module's training step at one batch size.

    Attributes:
        batch_size: Samples.
        step_seconds: Median of a step; None where memory ended.
    """

    batch_size: int
    step_seconds: float | None

    @property
    def seconds_a_sample(self) -> float:
        """Of the step alone."""
        return float("inf") if self.step_seconds is None else self.step_seconds / self.batch_size


def search_batch_size(
    dm: DataModule,
    module: L.LightningModule,
    *,
    accelerator: str = "auto",
    smallest: int = SMALLEST,
    largest: int = LARGEST,
    progress: Callable[[str], None] = lambda line: None,
) -> tuple[int, list[SizeTrial]]:
    """Double the batch until memory ends; on a CPU until the time a sample stops falling.

    Args:
        dm: Keeps its own batch size.
        module: Is copied for each size.
        accelerator: As the Trainer's.
        smallest: Where to begin.
        largest: Where to end at the latest; no size leaves fewer than three batches an epoch.
        progress: Gets a line for each size.

    Returns:
        The size to use, and every size tried. On an accelerator it is the largest that fits; on a
        CPU the smallest that is within 5 % of the best time a sample.

    Raises:
        ValueError: If ``global_batch_size`` decides the size, or there are too few samples.
        RuntimeError: If not even ``smallest`` fits.
    """
    if dm.hparams["global_batch_size"] is not None:
        raise ValueError("global_batch_size decides the batch; leave it out to search for a size")
    most = min(largest, len(dm.train_dataset) // 3)
    if most < smallest:
        raise ValueError(
            f"{len(dm.train_dataset)} train samples are too few to search for a batch size; three "
            f"batches of {smallest} are needed"
        )
    tried: list[SizeTrial] = []
    given = dm.hparams["batch_size"]
    on_cpu = accelerator == "cpu" or (
        accelerator == "auto" and not torch.accelerator.is_available()
    )

    def fits(size: int) -> bool:
        dm.hparams["batch_size"] = size
        try:
            spent = step_seconds(dm, copy.deepcopy(module), accelerator=accelerator)
        except torch.OutOfMemoryError:
            tried.append(SizeTrial(size, None))
            progress(f"batches of {size}: memory ends")
            raise
        finally:
            dm.hparams["batch_size"] = given
            _free_memory()
        tried.append(SizeTrial(size, spent))
        progress(f"batches of {size}: a step of {spent * 1000:.1f} ms")
        if not on_cpu or len(tried) < 2:
            return True
        # twice, since one slow measurement is no turn
        last = [trial.seconds_a_sample for trial in tried[-3:]]
        return len(last) < 3 or min(last[1:]) < PAYS * last[0]

    best = largest_batch(fits, start=smallest, limit=most)
    if on_cpu:
        top = min(trial.seconds_a_sample for trial in tried)
        best = min(t.batch_size for t in tried if t.seconds_a_sample <= top / PAYS)
    return best, tried


def _free_memory() -> None:
    if torch.accelerator.is_available():
        gc.collect()  # what the last size's Trainer holds
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # does nothing before the device is in use


def largest_batch(fits: Callable[[int], bool | None], *, start: int, limit: int) -> int:
    """The largest batch size, by doubling from ``start``, that ``fits`` runs without memory error.

    Args:
        fits: Runs a step at a size; raises ``torch.OutOfMemoryError`` where memory ends, and
            returns False where a larger one need not be tried.
        start: The first size.
        limit: The most, such as the number of train samples.

    Raises:
        RuntimeError: If not even ``start`` fits.
    """
    best, size = 0, start
    while size <= limit:
        try:
            goes_on = fits(size)
        except torch.OutOfMemoryError:
            break
        best, size = size, 2 * size
        if goes_on is False:
            break
    if not best:
        raise RuntimeError(f"a batch of {start} does not fit the device; start lower")
    return best


def step_seconds(
    dm: DataModule, module: L.LightningModule, *, steps: int = 8, accelerator: str = "cpu"
) -> float:
    """Median seconds of a training step; trains a few steps, so give a spare module.

    Args:
        dm: Gives the batches.
        module: The model.
        steps: How many are run.
        accelerator: As the Trainer's; on a CUDA device its own events measure the step.

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
        raise ValueError("one batch an epoch is too few to measure a step; lower batch_size")
    return statistics.median(monitor.steps)
