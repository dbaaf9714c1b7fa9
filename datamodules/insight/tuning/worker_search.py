"""Search over worker counts, worker types and prefetching, in interleaved rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from datamodules.core.datamodule import DataModule
from datamodules.settings.cpu_count import usable_cores

from .trials import Setting, Trial, WorkerType, kinds_of_workers, measure_round

NEAR = 0.95  # settings within 5 % of the best count as equal: the simplest is chosen
PAYS = 1.02  # gain below which more workers do not pay
ROUNDS, MOST_ROUNDS = 5, 12  # interleaved; more if the machine is busy
SURE = 0.03  # standard error at which the rounds end
PREFETCH = (2, 4)  # torch's default, and one for a few slow samples


class Search:
    """Trials of one datamodule's train loader.

    Args:
        dm: Prepared already.
        seconds: Duration of each measurement.
        max_workers: Most workers to try; None: the number of cores.
        progress: Called with a line for each measurement.
    """

    def __init__(
        self,
        dm: DataModule,
        seconds: float,
        max_workers: int | None,
        progress: Callable[[str], None],
    ) -> None:
        self.dm, self.seconds, self.progress = dm, seconds, progress
        self.most = min(usable_cores(), usable_cores() if max_workers is None else max_workers)
        self.kinds: list[WorkerType] = kinds_of_workers(dm) if self.most else []
        self.trials: dict[Setting, Trial] = {}

    def measure(self, setting: Setting) -> Trial:
        """Measure a setting once more."""
        trial = self.trials.setdefault(setting, Trial(setting))
        measure_round(self.dm, trial, self.seconds)
        self.progress(f"{setting}: {trial.rates[-1]:,.0f} samples/s")
        return trial

    def choose(self) -> Trial:
        """Try settings, measure the best ones in rounds, and return the simplest of the best."""
        self.measure(Setting(0))
        for kind in self.kinds:
            best = self._climb(kind)
            if best is not None and best.num_workers:
                self.measure(best._replace(prefetch_factor=PREFETCH[-1]))
        ranked = sorted(self.trials.values(), key=lambda t: -t.rate)
        # a single measurement may be far off: at least three settings go to the rounds
        left = [t for k, t in enumerate(ranked) if k < 3 or t.rate >= 0.6 * ranked[0].rate]
        for number in range(1, MOST_ROUNDS):
            for trial in left:
                self.measure(trial.setting)
            if number > 1:
                shares = compared(left, number)
                left = [t for t, share in zip(left, shares, strict=True) if share >= 0.8]
            if number > 1 and len(left) == 1:
                return left[0]
            if number >= ROUNDS - 1 and scatter(left, number) <= SURE:
                break
        shares = compared(left, number)
        near = [t for t, share in zip(left, shares, strict=True) if share >= NEAR]
        return min(near, key=lambda t: t.setting.effort)

    def _climb(self, kind: WorkerType) -> Setting | None:
        """Double the worker count while it pays, then try counts near the best."""
        rates = {0: self.trials[Setting(0)].rate}
        count, idle = 1, 0
        while count <= self.most and idle < 2:
            rates[count] = self.measure(Setting(count, PREFETCH[0], kind)).rate
            fewer = max(rate for n, rate in rates.items() if n < count)
            # twice in a row, as once may be chance
            idle = idle + 1 if count > 1 and rates[count] < PAYS * fewer else 0
            count = self.most if count < self.most < 2 * count else 2 * count
        best = max(rates, key=lambda n: rates[n])
        counts = sorted(rates)
        place = counts.index(best)
        around = {(best + near) // 2 for near in counts[max(0, place - 1) : place + 2]}
        for between in sorted(around - rates.keys()):
            rates[between] = self.measure(Setting(between, PREFETCH[0], kind)).rate
        best = max(rates, key=lambda n: rates[n])
        return Setting(best, PREFETCH[0], kind) if best else None

    def compare_all(self, chosen: Trial) -> float:
        """Measure every setting in interleaved rounds.

        Returns:
            The chosen setting's rate as a share of the best one's.
        """
        every = [Setting(0)]
        every += [
            Setting(count, ahead, kind)
            for kind in self.kinds
            for count in range(1, self.most + 1)
            for ahead in PREFETCH
        ]
        for _ in range(ROUNDS):
            for setting in every:
                self.measure(setting)
        trials = [self.trials[setting] for setting in every]
        shares = compared(trials, ROUNDS)
        return shares[trials.index(chosen)]


def compared(trials: list[Trial], rounds: int) -> list[float]:
    """Return the rate of each trial as a share of the best one's, over the last rounds.

    Each rate is compared within its round: a machine that was slow for a while was slow for all.

    Args:
        trials: Each with at least ``rounds`` rates, measured in turn.
        rounds: Number of rounds.

    Example:
        >>> compared([Trial(Setting(0), [10, 2]), Trial(Setting(1), [20, 4])], 2)
        [0.5, 1.0]
    """
    shares = [statistics.median(rates) for rates in _by_round(trials, rounds)]
    return [share / max(shares) for share in shares]


def scatter(trials: list[Trial], rounds: int) -> float:
    """Return the largest standard error of the medians that :func:`compared` uses.

    Args:
        trials: As in :func:`compared`.
        rounds: Number of rounds.

    Example:
        >>> scatter([Trial(Setting(0), [10, 2]), Trial(Setting(1), [20, 4])], 2)
        0.0
    """
    errors: list[float] = []
    for rates in _by_round(trials, rounds):
        middle = statistics.median(rates)
        off = statistics.median(abs(rate - middle) for rate in rates)
        errors.append(1.86 * off / middle / rounds**0.5)  # 1.4826 by 1.2533, of normal errors
    return max(errors, default=0.0)


def _by_round(trials: list[Trial], rounds: int) -> list[list[float]]:
    """Return each trial's last rates as shares of the mean of their round."""
    last = [trial.rates[-rounds:] for trial in trials]
    means = [statistics.fmean(rates) for rates in zip(*last, strict=True)]
    return [[rate / mean for rate, mean in zip(rates, means, strict=True)] for rates in last]
