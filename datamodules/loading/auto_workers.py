"""How many worker threads a run needs, found from the time that its consumer waits."""

from __future__ import annotations

import math
from typing import NamedTuple

BATCHES, SECONDS = 8, 0.5  # a window holds at least so many and lasts at least so long
MUCH, LITTLE = 0.05, 0.01  # of the time: waiting above the first adds, below the second takes away
GAIN = 0.3  # of the time that more threads could save: if they save less, they are taken back
SHORTEST, LONGEST = 4, 128  # windows without a try after one that failed
PAUSE = 10  # a step so many times longer than the mean is a validation or a checkpoint


class Window(NamedTuple):
    """What a few batches told.

    Attributes:
        share: Part of the time that the consumer waited, 0 to 1.
        seconds: From batch to batch, on average.
    """

    share: float
    seconds: float


class AutoWorkers:
    """Adds worker threads while the consumer waits for batches, takes them away while it does not.

    No batch depends on the number of workers, so it may change at any time. Each change is a try:
    two windows of evidence before it, one that is left out while it takes effect, and two more for
    the verdict. A thread more is kept if batches come faster, whatever the share of waiting says
    (on the host one waits for a busy accelerator, too); a thread less, if nobody waits for it. A
    try that failed is undone, and the next comes later each time, so that the number settles. The
    same is done in tf.data under the name AUTOTUNE.

    Args:
        most: The most threads, at least 1: the cores that this process may use.
        split: What they load, for messages.

    Attributes:
        workers: Threads that are wanted now.

    Raises:
        ValueError: If ``most`` is less than 1.

    Example:
        >>> auto = AutoWorkers(4)
        >>> auto.workers
        2
        >>> for _ in range(16):
        ...     auto.observe(waited=0.09, worked=0.01)
        >>> auto.workers
        3
    """

    def __init__(self, most: int, split: str = "train") -> None:
        if most < 1:
            raise ValueError(f"most must be at least 1 thread, got {most}")
        self.most, self.split = most, split
        self._said: int | None = None
        self.workers = (most + 1) // 2  # between too few at first and too many
        self._waited = self._worked = 0.0
        self._count = 0
        self._usual = math.inf  # seconds from batch to batch
        self._evidence: list[Window] = []
        self._settling = False
        self._before: tuple[int, float] | None = None  # workers and seconds, while a try runs
        self._last_step = 0  # of the last try that was kept: its direction
        self._hold, self._rest = 0, SHORTEST

    @property
    def settled(self) -> bool:
        """Whether a try failed lately, so that the number is held."""
        return self._hold > 0 and self._before is None

    def news(self) -> str | None:
        """How many threads load the split, if that was not said yet."""
        if self.workers == self._said:
            return None
        self._said = self.workers
        return f'num_workers="auto": {self.workers} of {self.most} threads load {self.split}'

    def observe(self, waited: float, worked: float) -> None:
        """Take note of one batch; may change ``workers``.

        Args:
            waited: Seconds that the consumer waited for the batch.
            worked: Seconds it spent since it got the batch before.
        """
        if worked > PAUSE * self._usual:
            worked = self._usual
        self._waited, self._worked, self._count = (
            self._waited + waited, self._worked + worked, self._count + 1
        )  # fmt: skip
        total = self._waited + self._worked
        if self._count < BATCHES or total < SECONDS:
            return
        window = Window(self._waited / total, total / self._count)
        self._usual = window.seconds
        self._waited, self._worked, self._count = 0.0, 0.0, 0
        self._hold = max(0, self._hold - 1)
        if self._settling:
            self._settling = False
            return
        self._evidence = [*self._evidence[-1:], window]
        if len(self._evidence) == 2:
            self._decide(*self._evidence)

    def _decide(self, first: Window, second: Window) -> None:
        seconds = (first.seconds + second.seconds) / 2
        if self._before is not None:
            before, then = self._before
            self._before, step = None, self.workers - before
            idle = min(first.share, second.share) <= MUCH  # one window may be a hiccup
            faster = seconds < then * (1 - GAIN * step / self.workers)
            if not (faster if step > 0 else idle):
                self._change(before)
                self._put_off()
                return
            if step * self._last_step < 0:  # there and back: kept, but not to go on so for ever
                self._put_off()
            self._last_step = step
        if self._hold:
            return
        if min(first.share, second.share) > MUCH and self.workers < self.most:
            self._before = (self.workers, seconds)
            self._change(min(self.most, self.workers + max(1, self.workers // 4)))
        elif max(first.share, second.share) < LITTLE and self.workers > 1:
            self._before = (self.workers, seconds)
            self._change(self.workers - 1)

    def _change(self, workers: int) -> None:
        self.workers, self._evidence, self._settling = workers, [], True

    def _put_off(self) -> None:
        self._hold, self._rest = self._rest, min(LONGEST, 2 * self._rest)
