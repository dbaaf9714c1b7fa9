"""Measure how long training steps wait for data, by the host's clock or the device's events."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import lightning as L
import torch

logger = logging.getLogger(__name__)
ADVISED = 0.1  # no advice below this idle share
FEW = 16_384  # positions of a mask that are summed in 10 us (torch 2.14, one thread)


class Clock(Protocol):
    """Measures time on the processor that computes the training step."""

    def mark(self) -> Any:
        """Return the current moment, without waiting for the device."""

    def wait(self) -> None:
        """Wait until all marked moments have passed."""

    def seconds(self, start: Any, end: Any) -> float:
        """Return the seconds between two moments that have passed."""


class HostClock:
    """The host's clock, for training on a CPU."""

    def mark(self) -> float:
        """Return the current time."""
        return time.perf_counter()

    def wait(self) -> None:
        """Do nothing: the host is never ahead of itself."""

    def seconds(self, start: float, end: float) -> float:
        """Return the seconds between two moments."""
        return end - start


class DeviceClock:
    """Events of a CUDA stream.

    The host runs ahead of the device: with 20 ms of loading and a device step of 30 ms the host
    waits for data most of the time, but the device is never idle. Only device events show this.
    """

    def mark(self) -> torch.cuda.Event:
        """Record an event after the queued work."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def wait(self) -> None:
        """Wait for the queued work; called once per epoch."""
        torch.cuda.synchronize()

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Return the seconds between two events on the device."""
        return float(start.elapsed_time(end)) / 1000


class DataWaitMonitor(L.Callback):
    """A callback that logs the share of each training epoch spent waiting for data.

    It logs once per epoch, measured on rank 0: ``train_data_wait`` (0 to 1) and
    ``train_samples_per_second``; for batches with an attention mask also
    ``train_tokens_per_second`` (without padding) and ``train_padding`` (0 to 1). All are shown in
    the progress bar.

    After the first epoch that waits more than a tenth of its time, it logs one line of advice.
    Validation is not measured, nor is the first batch of an epoch, when workers start. On the CPU,
    time that other callbacks take between two steps counts as waiting.

    Args:
        clock: None: the host's clock on a CPU, events on a CUDA device, and on any other
            accelerator the host's clock without advice, since the host may run ahead.
        least_seconds: No advice for an epoch that waits less than this.

    Attributes:
        waits: Idle seconds before each step of the epoch except the first.
        steps: Seconds of each of these steps.
        share: Idle share of the last epoch, or None before the first has ended.
        verdict: The line of advice, or None.

    Example:
        >>> trainer = L.Trainer(callbacks=[DataWaitMonitor()], logger=False)
    """

    def __init__(self, clock: Clock | None = None, *, least_seconds: float = 1.0) -> None:
        self.least_seconds = least_seconds
        self._given, self._clock = clock, clock
        self._advises = True
        self.waits: list[float] = []
        self.steps: list[float] = []
        self.share: float | None = None
        self.verdict: str | None = None
        self._marks: list[tuple[Any, Any, Any]] = []  # end of the last step, start, end
        self._last: Any = None
        self._start: Any = None
        self._samples = 0
        self._padding = Padding()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Choose the clock by the device."""
        kind = trainer.strategy.root_device.type
        if self._given is None:
            self._clock = DeviceClock() if kind == "cuda" else HostClock()
            self._advises = kind in ("cpu", "cuda")

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Reset the measurements."""
        self._marks, self._last, self._samples = [], None, 0
        self._padding = Padding()

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Mark the start of the step."""
        assert self._clock is not None
        self._start = self._clock.mark()

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Mark the end of the step."""
        assert self._clock is not None
        end = self._clock.mark()
        if self._last is not None:
            self._marks.append((self._last, self._start, end))
            self._samples += batch_length(batch)
            self._padding.count(batch)
        self._last = end

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Skip the next step, whose wait would include the validation."""
        self._last = None

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log the shares of the epoch, and the advice once."""
        assert self._clock is not None
        if not self._marks:
            return
        self._clock.wait()
        self.waits = [max(0.0, self._clock.seconds(a, b)) for a, b, _ in self._marks]
        self.steps = [self._clock.seconds(b, c) for _, b, c in self._marks]
        total = max(sum(self.waits) + sum(self.steps), 1e-9)
        self.share = sum(self.waits) / total
        figures = {"data_wait": self.share, "samples_per_second": self._samples / total}
        if self._padding.places:
            padding = self._padding.share()
            figures["tokens_per_second"] = self._padding.places * (1 - padding) / total
            figures["padding"] = padding
        for name, value in figures.items():
            # rank 0's figure: an average would hide a rank that waits
            pl_module.log(f"train_{name}", value, prog_bar=True, rank_zero_only=True)
        worth = self.share > ADVISED and sum(self.waits) >= self.least_seconds
        if self.verdict is None and self._advises and worth:
            self.verdict = verdict(
                wait=sum(self.waits) / len(self.waits), step=sum(self.steps) / len(self.steps)
            )
            if trainer.is_global_zero:
                logger.info(self.verdict)


class Padding:
    """Counts tokens and padding of an epoch's batches, in a few microseconds per step.

    Masks of up to ``FEW`` positions are summed at every step, larger ones at every second, third
    and so on; the sums stay on the device until :meth:`share` is called.

    Attributes:
        places: Number of tokens and padding positions so far.
    """

    def __init__(self) -> None:
        self.places, self._steps = 0, 0
        self._looked_at, self._sums = 0, list[torch.Tensor]()

    def count(self, batch: Any) -> None:
        """Add a batch; a batch without an attention mask is ignored."""
        mask = attention_mask(batch)
        if mask is None:
            return
        places = mask.numel()
        self.places += places
        if self._steps % max(1, places // FEW) == 0:
            self._looked_at += places
            self._sums.append(mask.sum())
        self._steps += 1

    def share(self) -> float:
        """Return padding as a share of all positions, 0 to 1, of the batches that were summed."""
        tokens = float(torch.stack(self._sums).sum()) if self._sums else 0.0
        return 1 - tokens / max(1, self._looked_at)


@runtime_checkable
class HasAttentionMask(Protocol):
    """Inputs of a text model."""

    attention_mask: Any


def attention_mask(batch: Any) -> torch.Tensor | None:
    """Return the attention mask (N, L) of a text batch in any of the usual forms, or None.

    Example:
        >>> attention_mask(({"attention_mask": torch.ones(2, 5)}, torch.zeros(2))).shape
        torch.Size([2, 5])
    """
    if isinstance(batch, tuple | list) and not isinstance(batch, HasAttentionMask):
        batch = batch[0] if batch else None
    mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
    mask = batch.attention_mask if isinstance(batch, HasAttentionMask) else mask
    return mask if isinstance(mask, torch.Tensor) else None


def verdict(*, wait: float, step: float) -> str:
    """Return which side is the bottleneck, from the seconds one step waits and computes.

    Example:
        >>> verdict(wait=0.012, step=0.004)  # doctest: +NORMALIZE_WHITESPACE
        'data: each step waits 12.0 ms for its batch and computes 4.0 ms, so 75 % of the time is
        idle: the loader is the bottleneck; run scripts/tune_loader.py'
        >>> verdict(wait=0.001, step=0.03).partition("ms: ")[2]
        'the model is the bottleneck'
    """
    said = (
        f"data: each step waits {wait * 1000:.1f} ms for its batch and computes "
        f"{step * 1000:.1f} ms"
    )
    share = wait / max(wait + step, 1e-9)
    if share <= ADVISED:
        return f"{said}: the model is the bottleneck"
    return (
        f"{said}, so {share:.0%} of the time is idle: the loader is the bottleneck; "
        "run scripts/tune_loader.py"
    ).replace("%", " %")


def batch_length(batch: Any) -> int:
    """Return the number of samples of a batch: the length of its first tensor, or of a list.

    Example:
        >>> batch_length(({"ids": torch.zeros(3, 7)}, torch.zeros(3)))
        3
    """
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.ndim else 1
    if isinstance(batch, dict):
        return max((batch_length(value) for value in batch.values()), default=0)
    if isinstance(batch, list | tuple):
        return batch_length(batch[0]) if batch else 0
    return 0
