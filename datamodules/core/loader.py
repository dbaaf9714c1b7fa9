"""The only place that builds a DataLoader: workers, seeding, pinning, resuming."""

from __future__ import annotations

import inspect
import math
import os
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info
from torch.utils.data.distributed import DistributedSampler

from .batch import RowBatch
from .samplers import Keys, RowBatches, ShardedBatchSampler
from .seeding import kept_random_state, seed_all
from .settings import check_name
from .splits import fingerprint

# What the plan decides; given as loader options they would be lost.
PLANNED = {
    "dataset": "pass it to the datamodule",
    "batch_size": "use batch_size=",
    "shuffle": "use sampler=",
    "sampler": "use sampler=",
    "batch_sampler": "use sampler=",
}
WORKER_OPTIONS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")
LOADER_OPTIONS = tuple(p for p in inspect.signature(DataLoader).parameters if p not in PLANNED)


class SampleError(RuntimeError):
    """A sample could not be made; the message names it and the cause."""


class KeyedDataset(Dataset[Any]):
    """A map-style dataset asked by :class:`Keys`: each sample draws from a stream of its own.

    A dataset with ``get_batch(indices, seeds)`` serves the whole batch in one go. Any other is
    asked item by item, after torch's, NumPy's and Python's generators were seeded for the sample.
    ``with_rows`` adds the index to each sample of a predict loader.
    """

    def __init__(self, dataset: Any, *, with_rows: bool = False) -> None:
        self.dataset, self.with_rows = dataset, with_rows

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, keys: Keys | Sequence[int]) -> Any:
        """Samples of one batch, or the batch itself."""
        indices, seeds = keys if isinstance(keys, Keys) else (keys, None)
        if hasattr(self.dataset, "get_batch"):
            rows = torch.as_tensor(indices)
            batch = self.dataset.get_batch(rows.numpy(), seeds)
            return RowBatch(batch, rows) if self.with_rows else batch
        if seeds is None:
            samples = [self._sample(int(index)) for index in indices]
            return list(zip(samples, indices, strict=True)) if self.with_rows else samples
        if get_worker_info() is not None:
            return self._seeded(indices, seeds)
        with kept_random_state():
            return self._seeded(indices, seeds)

    def _seeded(self, indices: Iterable[int], seeds: Iterable[int]) -> list[Any]:
        samples = []
        for index, seed in zip(indices, seeds, strict=True):
            seed_all(int(seed))
            samples.append(self._sample(int(index)))
        return samples

    def _sample(self, index: int) -> Any:
        try:
            return self.dataset[index]
        except Exception as error:
            name = self.dataset.describe(index) if hasattr(self.dataset, "describe") else ""
            raise SampleError(
                f"sample {index}{f' ({name})' if name else ''}: {type(error).__name__}: {error}"
            ) from error


class Loader(DataLoader[Any]):
    """``DataLoader`` over a :class:`ShardedBatchSampler` that yields finished batches.

    Lightning finds a distributed sampler in ``loader.sampler`` and leaves it alone. Outside a
    Trainer it is an ordinary loader: on one process, or with an initialised ``torch.distributed``
    (Fabric, torchrun), where each rank gets its own part.

    Args:
        dataset: Asked by :class:`Keys`.
        finish: Applied to each batch in the consuming process; None leaves batches as they are.
        **kwargs: ``DataLoader``'s own arguments.
    """

    def __init__(
        self, dataset: Any, *, finish: Callable[[Any], Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(dataset, **kwargs)
        self.finish = finish
        self._seen, self._resume = 0, None
        # Lightning wraps the batch sampler of a predict loader and copies its attributes
        for candidate in (self.batch_sampler, getattr(self.batch_sampler, "sampler", None)):
            if isinstance(candidate, DistributedSampler):
                # seen by "already distributed?" and by set_epoch; torch draws from batch_sampler
                self.__dict__["sampler"] = candidate
                break

    _seen: int
    _resume: tuple[int, int] | None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        # A generator: nothing starts before the first next(), that is after Lightning's
        # set_epoch; on a resumed fit it calls iter() earlier.
        sampler = self.sampler
        epoch, first = self._resume or (None, 0)
        self._resume = None
        # a place in another epoch: that epoch had ended, this one starts afresh
        self._seen = first if epoch == getattr(sampler, "epoch", None) else 0
        if isinstance(sampler, ShardedBatchSampler):
            sampler.first = self._seen
        box: list[Any] = []
        for batch in super().__iter__():
            self._seen += 1
            box.append(batch if self.finish is None else self.finish(batch))
            del batch
            yield box.pop()  # the frame keeps no batch: what the consumer drops is free again

    def state_dict(self) -> dict[str, Any]:
        """The place in the epoch, the same on every rank, as plain types."""
        sampler = self.sampler
        state: dict[str, Any] = {"epoch": getattr(sampler, "epoch", 0), "batches": self._seen}
        if isinstance(sampler, ShardedBatchSampler):
            batches = sampler.planned()
            state["steps"], state["num_replicas"] = len(sampler), sampler.num_replicas
            state["plan"] = fingerprint([sampler.seed], batches.indices, batches.offsets)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on at a place that :meth:`state_dict` gave.

        Raises:
            RuntimeError: If the place means other batches now: another number of processes, other
                data, another batch size or seed.
        """
        sampler = self.sampler
        inside = 0 < state["batches"] < state.get("steps", math.inf)
        if isinstance(sampler, ShardedBatchSampler) and inside:
            then, now = state.get("num_replicas", 1), sampler.num_replicas
            if then != now:
                raise RuntimeError(
                    f"the checkpoint lies in the middle of an epoch that {then} processes ran, "
                    f"this run has {now}; resume with {then}, or from an end-of-epoch checkpoint"
                )
            before, sampler.epoch = sampler.epoch, state["epoch"]
            planned = self.state_dict()["plan"]
            sampler.epoch = before
            if planned != state.get("plan", planned):
                raise RuntimeError(
                    "the checkpoint lies in the middle of an epoch whose batches are planned "
                    "differently now; resume with the same data, split_seed, seed, batch_size and "
                    "sampler, or from an end-of-epoch checkpoint"
                )
        self._resume = (state["epoch"], state["batches"])
        self._seen = state["batches"]


def check_loader_options(options: Mapping[str, Any] | None, num_workers: int | None) -> None:
    """Refuse loader options that cannot work, when the datamodule is built.

    Raises:
        ValueError: For an unknown option, one that the plan decides, or an impossible value.
    """
    if num_workers is not None and num_workers < 0:
        raise ValueError(f"num_workers must be at least 0, got {num_workers}")
    for name, value in (options or {}).items():
        if name in PLANNED or name == "num_workers":
            remedy = PLANNED.get(name, "use num_workers=")
            raise ValueError(f"loader_options={{{name!r}: ...}} has no effect; {remedy}")
        check_name(name, LOADER_OPTIONS, "loader option")
        if name == "prefetch_factor" and value is not None and value < 1:
            raise ValueError(f"prefetch_factor must be at least 1, got {value}")


def make_loader(
    dataset: Any,
    sampler: ShardedBatchSampler,
    *,
    batch_size: int,
    predict: bool = False,
    with_rows: bool = False,
    finish: Callable[[Any], Any] | None = None,
    collate_fn: Callable[[Any], Any] | None = None,
    num_workers: int | None = None,
    options: Mapping[str, Any] | None = None,
    pin_memory: bool = False,
    persistent: bool = False,
) -> Loader:
    """Loader of one split.

    Args:
        dataset: Map-style; one with ``get_batch(indices, seeds)`` is asked for whole batches.
        sampler: The rank's part of the plan.
        batch_size: Only told to Lightning, which builds a predict loader's batch sampler anew.
        predict: Show the sampler in the form in which Lightning records row indices.
        with_rows: Make predict batches :class:`RowBatch`.
        finish: Applied to each batch in the consuming process.
        collate_fn: Samples to batch; None for a dataset that serves whole batches.
        num_workers: None: the cores this process may use, none for data in memory.
        options: The user's own loader options; they win.
        pin_memory: Default where the options do not say.
        persistent: Keep the workers between epochs, where the options do not say.
    """
    in_memory = hasattr(dataset, "get_batch")
    workers = num_workers
    if workers is None:
        workers = 0 if in_memory else min(default_workers(), len(sampler))
        # Chosen on purpose. Lightning advises from the core count alone, and for data in memory
        # more workers are 17 to 20 times slower.
        warnings.filterwarnings("ignore", message=r"The '\w+' does not have many workers")
    chosen: dict[str, Any] = {
        "num_workers": workers,
        "pin_memory": pin_memory,
        "persistent_workers": persistent,
        "collate_fn": _as_is if in_memory else RowCollate(collate_fn) if with_rows else collate_fn,
        # else torch draws its base seed from the user's own stream
        "generator": torch.Generator().manual_seed(0),
        **(options or {}),
    }
    chosen.pop("drop_last", None)  # the plan knows
    if workers == 0:
        for name in WORKER_OPTIONS:
            chosen.pop(name, None)
    elif chosen.get("multiprocessing_context") is not None or _starts_afresh():
        _check_pickles(dataset, chosen)
    batch_sampler: Any = RowBatches(sampler, batch_size, False) if predict else sampler
    keyed = KeyedDataset(dataset, with_rows=with_rows)
    return Loader(keyed, finish=finish, batch_sampler=batch_sampler, **chosen)


def make_plain_loader(
    dataset: Any,
    *,
    batch_size: int,
    finish: Callable[[Any], Any] | None,
    collate_fn: Callable[[Any], Any] | None,
) -> Loader:
    """Loader in order for ``overfit_batches``.

    Lightning puts a ``SequentialSampler`` of its own there, which only a plain loader takes.
    """
    join = _as_is if hasattr(dataset, "get_batch") else collate_fn
    return Loader(KeyedDataset(dataset), finish=finish, batch_size=batch_size, collate_fn=join)


def _starts_afresh() -> bool:
    return torch.multiprocessing.get_start_method() != "fork"


def _check_pickles(dataset: Any, options: Mapping[str, Any]) -> None:
    """Workers that are not forked get everything by pickle: say early what cannot travel."""
    parts = {"collate_fn": options.get("collate_fn"), **vars(dataset), "dataset": dataset}
    for name, part in parts.items():
        try:
            pickle.dumps(part)
        except Exception as error:
            raise ValueError(
                f"{name.lstrip('_')} cannot be sent to worker processes "
                f"({type(error).__name__}: {error}); define it at module level, or num_workers=0"
            ) from error


class RowCollate:
    """Joins ``(inputs, row)`` pairs to a :class:`RowBatch`; a class, so that it pickles."""

    def __init__(self, collate_fn: Callable[[Any], Any] | None) -> None:
        self.collate_fn = collate_fn or default_collate

    def __call__(self, samples: Sequence[tuple[Any, int]]) -> RowBatch:
        """Collate the inputs and keep the rows beside them."""
        inputs, rows = zip(*samples, strict=True)
        return RowBatch(self.collate_fn(list(inputs)), torch.tensor(rows))


def _as_is(batch: Any) -> Any:
    return batch


def default_workers() -> int:
    """Cores this process may use, shared with the other ranks on this machine."""
    cores = usable_cores()
    bound = "SLURM_CPUS_PER_TASK" in os.environ  # Slurm gives each rank cores of its own
    return max(1, cores // max(1, 1 if bound else int(os.environ.get("LOCAL_WORLD_SIZE", 1))))


def usable_cores() -> int:
    """Cores by affinity and by the control group's quota; at least 1."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        cores = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass
    return max(1, cores)
