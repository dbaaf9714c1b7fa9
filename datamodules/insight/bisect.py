"""Add one setting back at a time to the most conservative, and name the first that breaks."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset

from datamodules.batches.dataset_interface import DatasetInterface
from datamodules.core.datamodule import DataModule
from datamodules.core.inside import collate_of, worker_type_of
from datamodules.loading.fetch import KeyedDataset
from datamodules.loading.make_loader import PROCESS_OPTIONS
from datamodules.seeding.random_state import kept_random_state

from .batch_digests import Digests, alarm, difference, run_over
from .safe_mode import SAMPLES, make_safe

STALL_SECONDS = 60.0
# settings that must not change a single bit of a batch
WITHOUT_EFFECT = ("1 worker", "worker_type", "num_workers", "the workers' options", "pin_memory")


@dataclass
class Step:
    """One run over the first samples.

    Attributes:
        name: The setting that was added back.
        status: ``"fine"``, ``"fails"``, ``"changes"`` the batches where it should not, or
            ``"not set"`` where the user has not set it.
        detail: The error or the change in one line, or what the batches are.
        traceback: The error in full, a worker's own included.
    """

    name: str
    status: str
    detail: str = ""
    traceback: str = ""


@dataclass
class Bisection:
    """What :func:`bisect` found.

    Attributes:
        steps: In the order of running; after the first failure none is run.
        samples: Failing train samples, each with its error, where the data themselves break.
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
    """Run the train loader with everything off, then with one setting after the other back on.

    Each is run twice: the same settings give the same batches, and so do any number and kind of
    workers. A setting that changes them draws from a generator that no seed reaches, or depends on
    the process it runs in.

    Off means: one sample a batch, no workers, no pinning, fixed order, evaluation's transform, no
    MixUp, no loader options of the user's. The datamodule is not changed.

    Args:
        dm: Not yet run; its data are read here.
        limit: Samples of each run.
        timeout_seconds: A worker that gives no batch for so long is a failure.
    """
    dm.prepare_data()
    steps: list[Step] = []
    try:
        _ = dm.train_dataset
    except Exception as error:
        return Bisection([_failed("reading the data", error)], [])
    safe = copy.copy(dm)
    safe.__dict__["_hparams"] = copy.copy(dm.hparams)  # else both would share them
    safe._datasets = dict(dm._datasets)
    make_safe(safe, batch_size=1)
    expected = Digests()
    for name, wanted, add in _settings(dm, safe, timeout_seconds):
        if not wanted:
            steps.append(Step(name, "not set"))
            continue
        try:
            add()
            detail, made = run_over(safe, limit, timeout_seconds=timeout_seconds)
            by_workers = name.startswith(WITHOUT_EFFECT)
            if not by_workers:  # workers are held against what this process made
                expected = made
                _, made = run_over(safe, limit, timeout_seconds=timeout_seconds)
        except Exception as error:
            steps.append(_failed(name, error))
            break
        if (changed := difference(expected, made)) is not None:
            against = "without workers" if by_workers else "when run a second time"
            steps.append(Step(name, "changes", f"{changed} differ from those {against}"))
            break
        steps.append(Step(name, "fine", detail))
    found = Bisection(steps, [])
    if found.culprit is not None and found.culprit.status == "fails":
        found.samples = failing_samples(safe, limit, timeout_seconds=timeout_seconds)
    return found


def _settings(
    dm: DataModule, safe: DataModule, timeout_seconds: float
) -> Iterator[tuple[str, bool, Callable[[], None]]]:
    """Name of each setting, whether the user set it, and what adds it back."""
    hparams, given = safe.hparams, dm.hparams

    def augment() -> None:
        safe.__dict__.pop("dataset", None)
        if callable(safe.__dict__.get("_parts")):
            del safe.__dict__["_parts"]
        safe._datasets.pop("train", None)

    def options(**more: Any) -> Callable[[], None]:
        return lambda: safe.loader_options.update(more)

    def sampler() -> None:
        safe.sampler, hparams["sampler"] = dm.sampler, given["sampler"]

    def workers(number: int | str | None) -> Callable[[], None]:
        def add() -> None:
            hparams["num_workers"] = number
            safe.loader_options["timeout"] = timeout_seconds

        return add

    size = int(given["batch_size"])
    count = given["num_workers"]
    in_memory = DatasetInterface(dm.train_dataset).batches is not None
    parallel = not in_memory if count is None else count > 0
    user = dict(dm.loader_options)
    pin = bool(user.pop("pin_memory", False))
    collate = user.pop("collate_fn", None)
    with_workers = {"prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context"}
    plain = {name: value for name, value in user.items() if name not in with_workers}
    late = {name: value for name, value in user.items() if name in with_workers}
    yield "everything off, batches of 1", True, lambda: None
    yield "train_transform", True, augment
    yield "batches of 2", size > 1, lambda: hparams.update(batch_size=2)
    yield "collate_fn", collate is not None, options(collate_fn=collate)
    yield f"batch_size={size}", size > 2, lambda: hparams.update(batch_size=size)
    yield f"sampler={given['sampler']}", given["sampler"] != "sequential", sampler
    yield "MixUp or CutMix", dm._mix() is not None, lambda: safe.__dict__.pop("_mix", None)
    yield "other loader options", bool(plain), options(**plain)
    hparams["worker_type"] = "process"
    threads = parallel and (given["worker_type"] == "thread" or _chooses_threads(dm))
    yield "1 worker", parallel, workers(1)
    yield "worker_type=thread", threads, lambda: hparams.update(worker_type="thread")
    said = "auto" if count is None else count
    yield f"num_workers={said}", parallel and count != 1, workers(count)
    yield "the workers' options", parallel and bool(late), options(**late)
    yield "pin_memory", pin, options(pin_memory=pin)


def _chooses_threads(dm: DataModule) -> bool:
    """Whether ``worker_type="auto"`` means threads."""
    data = dm.train_dataset
    known = DatasetInterface(data).thread_unsafe_step() is None
    asked = any(dm.loader_options.get(name) for name in PROCESS_OPTIONS)
    return worker_type_of(dm) == "auto" and known and not asked


def failing_samples(
    dm: DataModule, limit: int, *, most: int = 5, timeout_seconds: float = STALL_SECONDS
) -> list[str]:
    """Name the train samples that cannot be made, or do not join, by halving; of a stream in turn.

    Args:
        dm: With the settings that fail.
        limit: Of the first samples.
        most: Names no more than these, and one that hangs.
        timeout_seconds: When a sample hangs.
    """
    data = dm.train_dataset
    if isinstance(data, IterableDataset):
        return [*islice(_failing_in_turn(dm, data, limit), most)]
    collate = collate_of(dm, "train")
    in_memory = DatasetInterface(data).batches is not None
    keyed = KeyedDataset(data, collate_fn=None if in_memory else collate)
    found: list[str] = []
    hangs = False

    def search(rows: list[int]) -> None:
        nonlocal hangs
        if hangs or len(found) >= most or not rows:
            return
        try:
            with alarm(timeout_seconds):
                keyed.__getitems__(rows)
        except Exception as error:
            half, before = len(rows) // 2, len(found)
            if isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError):
                for row in rows if half else ():  # in turn, so that it is waited for only once
                    search([row])
                hangs = True
            elif half:
                search(rows[:half])
                search(rows[half:])
            if len(found) == before:  # alone each half is fine: they do not join
                found.append(f"samples {rows[0]} to {rows[-1]}: {error}" if half else str(error))

    search(list(range(min(limit, len(data)))))
    return found


def _failing_in_turn(dm: Any, data: IterableDataset[Any], limit: int) -> Iterator[str]:
    transform, place = dm._parts("train"), 0
    with kept_random_state():
        try:
            for sample in islice(data, limit):
                try:
                    transform(sample)
                except Exception as error:
                    yield f"sample {place} of the stream: {type(error).__name__}: {error}"
                place += 1
        except Exception as error:  # the stream itself ends here
            yield f"sample {place} of the stream: {type(error).__name__}: {error}"


def _failed(name: str, error: Exception) -> Step:
    text = str(error).strip().splitlines() or [""]
    detail = f"{type(error).__name__}: {text[-1]}"
    return Step(name, "fails", detail, "".join(traceback.format_exception(error)))
