"""Build the loaders of all splits from checked options."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader

from datamodules.batches.bad_samples import SkippedFiles
from datamodules.batches.mixup import Mix
from datamodules.batches.normalize import Normalizer
from datamodules.sampling.sharded_sampler import RowBatches, ShardedBatchSampler
from datamodules.settings.arguments import check_name, given_again
from datamodules.settings.cpu_count import default_workers

from .fetch import KeyedDataset
from .iterable import StreamBatches
from .loader import Loader
from .worker_faults import InSharedMemory, WorkerWatch

# Arguments of DataLoader that the sampling plan decides, and what to use instead.
PLANNED = {
    "dataset": "pass it to the datamodule",
    "batch_size": "use batch_size=",
    "shuffle": "use sampler=",
    "sampler": "use sampler=",
    "batch_sampler": "use sampler=",
}
WORKER_OPTIONS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")
PROCESS_OPTIONS = ("multiprocessing_context", "worker_init_fn", "persistent_workers", "timeout")
LOADER_OPTIONS = tuple(p for p in inspect.signature(DataLoader).parameters if p not in PLANNED)


class DeliberateWorkers(int):
    """A number of worker processes below 2 that was chosen on purpose.

    Lightning advises more workers for any loader with ``num_workers < 2``, but for data in memory
    more workers are 17 to 20 times slower, and worker threads are not counted. The comparison is
    the one thing that reaches the check for this loader alone: a warning filter would silence the
    advice for other people's loaders, too.

    Delete it when a loader can opt out of Lightning's advice
    (https://github.com/Lightning-AI/pytorch-lightning/issues/10182).
    """

    def __lt__(self, other: object) -> bool:
        return False


def check_loader_options(options: Mapping[str, Any] | None, num_workers: int | None) -> None:
    """Refuse loader options that cannot work, before any data are read.

    Raises:
        ValueError: For an unknown option, one that the plan decides, or an impossible value.
    """
    whole = isinstance(num_workers, int) and not isinstance(num_workers, bool)
    if num_workers is not None and (not whole or num_workers < 0):
        raise ValueError(
            f"num_workers must be a whole number, at least 0, or None for the default, got "
            f"{num_workers!r}"
        )
    if options is not None and not isinstance(options, Mapping):
        raise ValueError(
            f"loader_options must be a dict of DataLoader's arguments, got {options!r}"
        )
    for name, value in (options or {}).items():
        if name in PLANNED or name == "num_workers":
            remedy = PLANNED.get(name, "use num_workers=")
            raise ValueError(f"loader_options={{{name!r}: ...}} has no effect; {remedy}")
        check_name(name, LOADER_OPTIONS, "loader option")
        if name == "in_order" and not value:
            raise ValueError("in_order=False would mix up the rows of predictions; leave it out")
        if name == "prefetch_factor" and not (
            value is None or (isinstance(value, int) and value >= 1)
        ):
            raise ValueError(f"prefetch_factor must be at least 1, got {value!r}")


def make_loader(
    dataset: Any,
    sampler: ShardedBatchSampler,
    *,
    batch_size: int,
    split: str = "train",
    with_rows: bool = False,
    normalizer: Callable[[Any], Any] | None = None,
    mix: Mix | None = None,
    skipped: SkippedFiles | None = None,
    collate_fn: Callable[[Any], Any] | None = None,
    num_workers: int | None = None,
    worker_type: str = "auto",
    ranks: int = 1,
    options: Mapping[str, Any] | None = None,
    pin_memory: bool = False,
    persistent: bool = False,
) -> Loader:
    """Build the loader of one split.

    Args:
        dataset: Map-style, see :mod:`datamodules.batches.dataset_interface`.
        sampler: Batches of this rank.
        batch_size: Shown to Lightning, which rebuilds the batch sampler of a predict loader.
        split: Name of the split; Lightning records the row indices of ``"predict"``.
        with_rows: Make predict batches :class:`RowBatch`.
        normalizer: Applied to each batch in the consuming process; without worker processes a
            :class:`Normalizer` is applied to each image when it is made.
        mix: Applies MixUp or CutMix to each batch.
        skipped: Leave out files that cannot be read, and record them here.
        collate_fn: Samples to batch; None for a dataset that returns whole batches.
        num_workers: None: the cores this process may use, or 0 for data in memory.
        worker_type: ``"process"``, ``"thread"`` or ``"auto"``.
        ranks: Processes of the run on this machine, which share its cores.
        options: The user's own arguments of ``DataLoader``; they take precedence.
        pin_memory: Default of the option of that name.
        persistent: Default of the option ``persistent_workers``.
    """
    chosen: dict[str, Any] = {
        "pin_memory": pin_memory,
        "persistent_workers": persistent,
        # without one torch takes its base seed from the user's default generator
        "generator": torch.Generator().manual_seed(0),
        **{k: given_again(v, f"loader_options[{k!r}]") for k, v in (options or {}).items()},
    }
    chosen.pop("drop_last", None)  # part of the plan
    keyed = KeyedDataset(
        dataset,
        collate_fn=chosen.pop("collate_fn", collate_fn),
        with_rows=with_rows,
        skip=skipped is not None,
    )
    workers, threads = _workers(
        keyed, num_workers, split, worker_type, options or {}, ranks=ranks, steps=len(sampler)
    )
    deliberate = bool(threads) or keyed.interface.batches is not None or num_workers is None
    ahead = chosen.get("prefetch_factor") or 2
    if not workers and type(normalizer) is Normalizer:  # a subclass may work on whole batches
        keyed.normalizer = normalizer
    watch = None
    if workers:
        if chosen.get("multiprocessing_context") is not None or _default_method_pickles():
            _check_pickles(keyed, split)
        watch = WorkerWatch(
            keyed,
            split=split,
            rows=batch_size,
            workers=workers,
            ahead=ahead,
            timeout=chosen.get("timeout") or 0,
        )
    return Loader(
        keyed,
        batch_sampler=RowBatches(sampler, batch_size, False) if split == "predict" else sampler,
        normalizer=normalizer,
        mix=mix,
        skipped=skipped,
        threads=threads,
        ahead=ahead,
        watch=watch,
        **_for_workers(DeliberateWorkers(workers) if deliberate else workers, chosen),
    )


def make_stream_loader(
    stream: StreamBatches,
    *,
    num_workers: int | None = None,
    normalizer: Callable[[Any], Any] | None = None,
    options: Mapping[str, Any] | None = None,
    pin_memory: bool = False,
) -> Loader:
    """Build the loader of an iterable dataset, which makes its own batches.

    Every worker reads the whole stream, so ``num_workers=None`` means one worker.
    """
    chosen: dict[str, Any] = {
        "pin_memory": pin_memory,
        "generator": torch.Generator().manual_seed(0),
        **(options or {}),
        # the epoch reaches a worker when it starts
        "persistent_workers": False,
    }
    workers = 1 if num_workers is None else num_workers
    return Loader(stream, normalizer=normalizer, batch_size=None, **_for_workers(workers, chosen))


def make_plain_loader(
    dataset: Any,
    *,
    batch_size: int,
    normalizer: Callable[[Any], Any] | None,
    collate_fn: Callable[[Any], Any] | None,
    skipped: SkippedFiles | None = None,
) -> Loader:
    """Build a loader that reads in order, for ``overfit_batches``.

    Lightning replaces its sampler by a ``SequentialSampler``, which only a plain loader accepts.
    """
    keyed = KeyedDataset(dataset, collate_fn=collate_fn, skip=skipped is not None)
    return Loader(
        keyed, normalizer=normalizer, skipped=skipped, batch_size=batch_size, collate_fn=_as_is
    )


def _workers(
    keyed: KeyedDataset,
    num_workers: int | None,
    split: str,
    worker_type: str,
    options: Mapping[str, Any],
    *,
    ranks: int,
    steps: int,
) -> tuple[int, int]:
    """Return the number of worker processes and of worker threads; one of the two is 0."""
    if num_workers is not None:
        count = num_workers
    elif keyed.interface.batches is not None:
        count = 0
    else:
        count = min(default_workers(ranks), steps)
    if count and _can_use_threads(keyed, split, worker_type, options):
        return 0, count
    return count, 0


def _can_use_threads(
    keyed: KeyedDataset, split: str, worker_type: str, options: Mapping[str, Any]
) -> bool:
    """Return whether worker threads make the batches; they take less CPU time than processes.

    Raises:
        ValueError: If the user chose threads for a dataset that cannot be read in threads.
    """
    if worker_type == "process" or (
        worker_type != "thread" and any(options.get(name) for name in PROCESS_OPTIONS)
    ):
        return False
    why = keyed.unfit_for_threads()
    if why is not None and worker_type == "thread":
        raise ValueError(
            f'worker_type="thread" cannot be used for {split}: {why}; leave worker_type out'
        )
    return why is None


def _for_workers(workers: int, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for this number of processes, without those that torch refuses for 0."""
    refused = () if workers else WORKER_OPTIONS
    return {
        **{name: value for name, value in chosen.items() if name not in refused},
        "num_workers": workers,
        "collate_fn": InSharedMemory() if workers else _as_is,  # batches are collated already
    }


def _default_method_pickles() -> bool:
    """Return whether worker processes are not forked by default, so that they get pickles."""
    # without allow_none the call would set the method for the whole program
    method = torch.multiprocessing.get_start_method(allow_none=True)
    return (method or torch.multiprocessing.get_all_start_methods()[0]) != "fork"


def _check_pickles(keyed: KeyedDataset, split: str) -> None:
    """Refuse what cannot be pickled before a worker process starts; name the argument.

    Raises:
        ValueError: If the collate function, or an attribute of the dataset, cannot be pickled.
    """
    parts = {"collate_fn": keyed.collate_fn, **vars(keyed.dataset), "dataset": keyed.dataset}
    for name, part in parts.items():
        try:
            pickle.dumps(part)
        except Exception as error:
            if name == "transform":
                name = "train_transform" if split == "train" else "eval_transform"
            raise ValueError(
                f"{name.lstrip('_')} cannot be sent to worker processes "
                f"({type(error).__name__}: {error}); define it at module level, or num_workers=0"
            ) from error


def _as_is(batch: Any) -> Any:
    return batch
