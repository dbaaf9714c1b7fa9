"""Add one setting back at a time to the most conservative ones, and name the first that breaks."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..core.base import DataModule
from ..core.keyed import KeyedDataset
from .safe import SAMPLES, make_safe
from .trials import end_workers

STALL_SECONDS = 60.0


@dataclass
class Step:
    """One run over the first samples.

    Attributes:
        name: The setting that was added back.
        status: ``"fine"``, ``"fails"``, or ``"not set"`` where the user has not set it.
        detail: The error in one line, or what the batches are.
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
        """The first step that fails, or None."""
        return next((step for step in self.steps if step.status == "fails"), None)


def bisect(
    dm: DataModule, *, limit: int = SAMPLES, timeout_seconds: float = STALL_SECONDS
) -> Bisection:
    """Run the train loader with everything off, then with one setting after the other back on.

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
    safe.__dict__["_hparams"] = type(dm.hparams)(dm.hparams)  # else both would share them
    safe._datasets = dict(dm._datasets)
    make_safe(safe, batch_size=1)
    for name, wanted, add in _settings(dm, safe, timeout_seconds):
        if not wanted:
            steps.append(Step(name, "not set"))
            continue
        try:
            add()
            detail = run_over(safe, limit)
        except Exception as error:
            steps.append(_failed(name, error))
            break
        steps.append(Step(name, "fine", detail))
    found = Bisection(steps, [])
    if found.culprit is not None:
        found.samples = failing_samples(safe, limit)
    return found


def _settings(
    dm: DataModule, safe: DataModule, timeout_seconds: float
) -> Iterator[tuple[str, bool, Callable[[], None]]]:
    """Name of each setting, whether the user set it, and what adds it back."""
    hparams, given = safe.hparams, dm.hparams

    def augment() -> None:
        safe.__dict__.pop("dataset", None)
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
    in_memory = hasattr(dm.train_dataset, "get_batch")
    parallel = not in_memory if count in (None, "auto") else count > 0
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
    yield "MixUp or CutMix", dm.mix() is not None, lambda: safe.__dict__.pop("mix", None)
    yield "other loader options", bool(plain), options(**plain)
    yield "1 worker", parallel, workers(1)
    said = "auto" if count is None else count
    yield f"num_workers={said}", parallel and count != 1, workers(count)
    yield "the workers' options", parallel and bool(late), options(**late)
    yield "pin_memory", pin, options(pin_memory=pin)


def run_over(dm: DataModule, limit: int) -> str:
    """Take batches until ``limit`` samples were asked for; says what the first one is."""
    loader = dm._loader("train")
    said, asked = "", 0
    try:
        for batch in loader:
            said = said or shape_text(batch)
            asked += int(dm.hparams["batch_size"])
            del batch
            if asked >= limit:
                break
    finally:
        end_workers(loader)
    return said


def failing_samples(dm: DataModule, limit: int, *, most: int = 5) -> list[str]:
    """Name the train samples that cannot be made, or do not join, by halving.

    Args:
        dm: With the settings that fail.
        limit: Of the first samples.
        most: Names no more than these.
    """
    data = dm.train_dataset
    collate = dm.loader_options.get("collate_fn") or dm.default_collate("train")
    keyed = KeyedDataset(data, collate_fn=None if hasattr(data, "get_batch") else collate)
    found: list[str] = []

    def search(rows: list[int]) -> None:
        if len(found) >= most or not rows:
            return
        try:
            keyed.__getitems__(rows)
        except Exception as error:
            half = len(rows) // 2
            before = len(found)
            if half:
                search(rows[:half])
                search(rows[half:])
            if len(found) == before:  # alone each half is fine: they do not join
                found.append(f"samples {rows[0]} to {rows[-1]}: {error}" if half else str(error))

    search(list(range(min(limit, len(data)))))
    return found


def shape_text(batch: Any) -> str:
    """Shapes and dtypes of a batch in one line.

    Example:
        >>> shape_text((torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)))
        '(2, 3) float32, (2,) int64'
    """
    if isinstance(batch, torch.Tensor):
        return f"{tuple(batch.shape)} {str(batch.dtype).removeprefix('torch.')}"
    if isinstance(batch, dict):
        return ", ".join(f"{name} {shape_text(value)}" for name, value in batch.items())
    if isinstance(batch, list | tuple):
        return ", ".join(map(shape_text, batch[:4]))
    return type(batch).__name__


def _failed(name: str, error: Exception) -> Step:
    text = str(error).strip().splitlines() or [""]
    detail = f"{type(error).__name__}: {text[-1]}"
    return Step(name, "fails", detail, "".join(traceback.format_exception(error)))
