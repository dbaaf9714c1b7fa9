"""Measure how long training steps wait for data, by the host's clock or the device's events."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import lightning as L
import torch

logger = logging.getLogger(__name__)
ADVISED = 0.1  # idle shares below this are not worth a line
FEW = 16_384  # places of a mask that are added up in 10 us (torch 2.14, one thread)


class Clock(Protocol):
    """Marks moments on the time line of what computes."""

    def mark(self) -> Any:
        """A moment; must not wait for the device."""

    def wait(self) -> None:
        """Wait until every moment marked so far has passed."""

    def seconds(self, start: Any, end: Any) -> float:
        """Time between two moments that have passed."""


class HostClock:
    """The time line of a CPU: what the host does is what computes."""

    def mark(self) -> float:
        """Now."""
        return time.perf_counter()

    def wait(self) -> None:
        """The host never runs ahead of itself."""

    def seconds(self, start: float, end: float) -> float:
        """Time between two moments."""
        return end - start


class DeviceClock:
    """The time line of a CUDA stream, by events.

    The host runs ahead of a device: with 20 ms to load and a device step of 30 ms it waits for
    data most of the time, and the device is never idle. Only the device's events tell.
    """

    def mark(self) -> torch.cuda.Event:
        """An event behind what is queued so far."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def wait(self) -> None:
        """Wait for what is queued; called once an epoch."""
        torch.cuda.synchronize()

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """Time between two events on the device."""
        return float(start.elapsed_time(end)) / 1000


class DataWaitMonitor(L.Callback):
    """Logs the share of each training epoch in which what computes stood idle for want of data.

    Logged once an epoch, on rank 0's own clock: ``train_data_wait`` (0 to 1) and
    ``train_samples_per_second``; of batches with an attention mask ``train_tokens_per_second``,
    padding left out, and ``train_padding`` (0 to 1). All stand in the progress bar.

    After the first epoch in which more than a tenth was idle, one line says so and what to do;
    where data keep up nothing is said. Validation is left out, and so is the first batch of an
    epoch, in which workers start. On the CPU, the time between two steps that other callbacks
    spend counts as waiting.

    Args:
        clock: What tells the time; None: the host's clock on a CPU, events on a CUDA device, and
            on any other accelerator the host's clock, with no advice, since it may run ahead.
        least_seconds: An epoch that loses less to waiting is not worth a line.

    Attributes:
        waits: Seconds idle before each step of the epoch but the first.
        steps: Seconds of each of these steps.
        share: Idle share of the last epoch, or None before the first has ended.
        verdict: The line of advice, or None.
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
        """Begin a new epoch's account."""
        self._marks, self._last, self._samples = [], None, 0
        self._padding = Padding()

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """The batch is there."""
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
        """The step is done, or queued."""
        assert self._clock is not None
        end = self._clock.mark()
        if self._last is not None:
            self._marks.append((self._last, self._start, end))
            self._samples += batch_length(batch)
            self._padding.count(batch)
        self._last = end

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The next step's wait would count the validation: leave that step out."""
        self._last = None

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Add up, log, and say once what is worth saying."""
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
            # rank 0's figure stands for all: an average would hide a rank that waits
            pl_module.log(f"train_{name}", value, prog_bar=True, rank_zero_only=True)
        worth = self.share > ADVISED and sum(self.waits) >= self.least_seconds
        if self.verdict is None and self._advises and worth:
            self.verdict = verdict(
                wait=sum(self.waits) / len(self.waits), step=sum(self.steps) / len(self.steps)
            )
            if trainer.is_global_zero:
                logger.info(self.verdict)


class Padding:
    """Counts the tokens and the padding of an epoch's batches, a few microseconds a step.

    Masks of up to ``FEW`` places are added up at every step, larger ones at every second, third
    and so on; sums stay on the device until they are asked for.

    Attributes:
        places: Tokens and padding so far.
    """

    def __init__(self) -> None:
        self.places, self._steps = 0, 0
        self._looked_at, self._sums = 0, list[torch.Tensor]()

    def count(self, batch: Any) -> None:
        """Add a batch; one without an attention mask counts nothing."""
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
        """Padding as a share of all places, 0 to 1, of the batches that were added up."""
        tokens = float(torch.stack(self._sums).sum()) if self._sums else 0.0
        return 1 - tokens / max(1, self._looked_at)


@runtime_checkable
class HasAttentionMask(Protocol):
    """Inputs of a text model."""

    attention_mask: Any


def attention_mask(batch: Any) -> torch.Tensor | None:
    """The attention mask (N, L) of a text batch in any of the usual forms, or None.

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
    """Say which side waits, from the seconds that one step waits and computes.

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
    """Samples of a batch of any structure: the length of its first tensor, or of a list.

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
