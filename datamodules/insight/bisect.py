"""Restore one data setting at a time, and name the first that breaks or changes the batches."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from datamodules.batches.dataset_interface import DatasetInterface
from datamodules.core.accessors import copy_of, loader_of, set_augmentation
from datamodules.core.datamodule import DataModule
from datamodules.loading.iterable import StreamBatches
from datamodules.seeding.random_state import kept_random_state

from .batch_digests import Digests, alarm, difference, run_batches
from .safe_mode import SAMPLES, make_safe, set_mixing

STALL_SECONDS = 60.0
MOST_NAMED = 5  # failing samples
WORKER_OPTIONS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")
# settings that must not change a single bit of a batch
WITHOUT_EFFECT = ("1 worker", "worker_type", "num_workers", "the workers' options", "pin_memory")


@dataclass
class Step:
    """One run over the first samples.

    Attributes:
        name: The setting that was restored.
        status: ``"fine"``, ``"fails"``, ``"changes"`` for batches that it must not change, or
            ``"not set"``.
        detail: The error or the change in one line, or shapes and dtypes of the batches.
        traceback: The full error, including that of a worker.
    """

    name: str
    status: str
    detail: str = ""
    traceback: str = ""


@dataclass
class Bisection:
    """The result of :func:`bisect`.

    Attributes:
        steps: In the order of running; the first failure is the last.
        samples: Failing train samples, each with its error.
    """

    steps: list[Step]
    samples: list[str]

    @property
    def culprit(self) -> Step | None:
        """The first step that fails or changes the batches, or None."""
        return next((step for step in self.steps if step.status in ("fails", "changes")), None)


def bisect(
    dm: DataModule, *, limit: int = SAMPLES, timeout_seconds: float = STALL_SECONDS
) -> Bisection:
    """Run the train loader with everything off, then restore one setting after the other.

    Each runs twice: the same settings must give the same batches, and so must any number and type
    of workers. A setting that changes them uses random numbers that no seed reaches, or depends on
    its process.

    Off means: one sample per batch, no workers, no pinning, fixed order, the transform of
    evaluation, no MixUp, no loader options. The datamodule is not changed.

    Args:
        dm: Not yet run; its data are read here.
        limit: Samples of each run.
        timeout_seconds: A worker that returns no batch for so long has failed.
    """
    dm.prepare_data()
    try:
        _ = dm.train_dataset
    except Exception as error:
        return Bisection([_failed("reading the data", error)], [])
    safe, steps, expected = copy_of(dm), list[Step](), Digests()
    make_safe(safe, batch_size=1)
    for name, is_set, restore in _settings(dm, safe, timeout_seconds):
        if not is_set:
            steps.append(Step(name, "not set"))
            continue
        try:
            restore()
            detail, made = run_batches(safe, limit, timeout_seconds=timeout_seconds)
            by_workers = name.startswith(WITHOUT_EFFECT)
            if not by_workers:  # workers are compared with the batches of this process
                expected = made
                _, made = run_batches(safe, limit, timeout_seconds=timeout_seconds)
        except Exception as error:
            steps.append(_failed(name, error))
            return Bisection(steps, failing_samples(safe, limit, timeout_seconds=timeout_seconds))
        if (changed := difference(expected, made)) is not None:
            against = "without workers" if by_workers else "when run a second time"
            steps.append(Step(name, "changes", f"{changed} differ from those {against}"))
            break
        steps.append(Step(name, "fine", detail))
    return Bisection(steps, [])


def _settings(
    dm: DataModule, safe: DataModule, timeout_seconds: float
) -> Iterator[tuple[str, bool, Callable[[], None]]]:
    """Yield the name of each setting, whether the user has set it, and what restores it."""
    given, options = dm.hparams, dict(dm.loader_options)
    size, count = int(given["batch_size"]), given["num_workers"]
    mixing = {name: given[name] for name in ("mixup", "cutmix") if given.get(name)}
    pin, collate = bool(options.pop("pin_memory", False)), options.pop("collate_fn", None)
    for_workers = {n: options.pop(n) for n in WORKER_OPTIONS if n in options}
    in_memory = DatasetInterface(dm.train_dataset).batches is not None
    parallel = not in_memory if count is None else count > 0

    def hparams(**values: Any) -> Callable[[], None]:
        return lambda: safe.hparams.update(values)

    def loader(**values: Any) -> Callable[[], None]:
        return lambda: safe.loader_options.update(values)

    def sampler() -> None:
        safe.sampler, safe.hparams["sampler"] = dm.sampler, given["sampler"]

    def workers(number: int | None) -> Callable[[], None]:
        def restore() -> None:
            safe.hparams["num_workers"] = number
            safe.loader_options["timeout"] = timeout_seconds

        return restore

    yield "everything off, batches of 1", True, hparams()
    yield "train_transform", True, lambda: set_augmentation(safe, True)
    yield "batches of 2", size > 1, hparams(batch_size=2)
    yield "collate_fn", collate is not None, loader(collate_fn=collate)
    yield f"batch_size={size}", size > 2, hparams(batch_size=size)
    yield f"sampler={given['sampler']}", given["sampler"] != "sequential", sampler
    yield "MixUp or CutMix", bool(mixing), lambda: set_mixing(safe, **mixing)
    yield "other loader options", bool(options), loader(**options)
    safe.hparams["worker_type"] = "process"
    yield "1 worker", parallel, workers(1)
    threads = parallel and _uses_threads(dm)
    yield "worker_type=thread", threads, hparams(worker_type="thread")
    yield f"num_workers={count}", count != 1 and parallel, workers(count)
    yield "the workers' options", parallel and bool(for_workers), loader(**for_workers)
    yield "pin_memory", pin, loader(pin_memory=pin)


def _uses_threads(dm: DataModule) -> bool:
    with suppress(Exception):  # what fails here fails in a step that names it
        return bool(loader_of(dm, "train").threads)
    return False


def failing_samples(
    dm: DataModule, limit: int, *, timeout_seconds: float = STALL_SECONDS
) -> list[str]:
    """Return up to 5 train samples that cannot be made or collated, found by halving.

    Of samples that hang only the first is named. A stream is read in order.

    Args:
        dm: With the settings that fail.
        limit: Number of samples searched.
        timeout_seconds: After this time a sample hangs.
    """
    plain = copy_of(dm)  # fetches in this process, in order
    plain.hparams.update(num_workers=0, sampler="sequential", global_batch_size=None)
    plain.sampler, plain.loader_options = (
        "sequential",
        {name: dm.loader_options[name] for name in ("collate_fn",) if name in dm.loader_options},
    )
    data: Any = loader_of(plain, "train").dataset
    if isinstance(data, StreamBatches):
        return [*islice(_failing_in_order(data, limit), MOST_NAMED)]
    found: list[str] = []
    hangs = False

    def search(rows: list[int]) -> None:
        nonlocal hangs
        if hangs or len(found) >= MOST_NAMED or not rows:
            return
        try:
            with alarm(timeout_seconds):
                data.__getitems__(rows)
        except Exception as error:
            half, before = len(rows) // 2, len(found)
            if isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError):
                for row in rows if half else ():  # one by one, to wait for it only once
                    search([row])
                hangs = True
            elif half:
                search(rows[:half])
                search(rows[half:])
            if len(found) == before:  # each half alone is fine: they cannot be collated
                found.append(f"samples {rows[0]} to {rows[-1]}: {error}" if half else str(error))

    search(list(range(min(limit, len(data)))))
    return found


def _failing_in_order(stream: StreamBatches, limit: int) -> Iterator[str]:
    place = 0
    with kept_random_state():
        try:
            for sample in islice(stream.dataset, limit):
                try:
                    stream.transform(sample)
                except Exception as error:
                    yield f"sample {place} of the stream: {type(error).__name__}: {error}"
                place += 1
        except Exception as error:  # the stream itself ends here
            yield f"sample {place} of the stream: {type(error).__name__}: {error}"


def _failed(name: str, error: Exception) -> Step:
    line = (str(error).strip().splitlines() or [""])[-1]
    text = "".join(traceback.format_exception(error))
    return Step(name, "fails", f"{type(error).__name__}: {line}", text)
