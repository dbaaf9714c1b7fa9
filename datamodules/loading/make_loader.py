"""The only place that builds a loader: what its options may say, and what follows from them."""

from __future__ import annotations

import inspect
import pickle
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch.utils.data import DataLoader

from datamodules.batches.bad_samples import SkippedFiles
from datamodules.batches.mixup import Mix
from datamodules.batches.normalize import Normalizer
from datamodules.sampling.sharded_sampler import RowBatches, ShardedBatchSampler
from datamodules.settings.arguments import check_name, given_again
from datamodules.settings.cpu_count import default_workers

from .auto_workers import AutoWorkers
from .fetch import KeyedDataset
from .iterable import StreamBatches
from .loader import Loader
from .worker_faults import InSharedMemory, WorkerWatch

# What the plan decides; given as loader options they would be lost.
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


def check_loader_options(options: Mapping[str, Any] | None, num_workers: int | str | None) -> None:
    """Refuse loader options that cannot work, when the datamodule is built.

    Raises:
        ValueError: For an unknown option, one that the plan decides, or an impossible value.
    """
    whole = isinstance(num_workers, int) and not isinstance(num_workers, bool)
    if num_workers not in (None, "auto") and (not whole or int(num_workers) < 0):
        raise ValueError(
            f"num_workers must be a whole number, at least 0, or 'auto', got {num_workers!r}"
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
            raise ValueError("in_order=False would part predictions from their rows; leave it out")
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
    num_workers: int | AutoWorkers | None = None,
    worker_type: str = "auto",
    ranks: int = 1,
    options: Mapping[str, Any] | None = None,
    pin_memory: bool = False,
    persistent: bool = False,
) -> Loader:
    """Loader of one split.

    Args:
        dataset: Map-style; one with ``get_batch(indices, seeds)`` is asked for whole batches.
        sampler: The rank's part of the plan.
        batch_size: Only told to Lightning, which builds a predict loader's batch sampler anew.
        split: For ``"predict"`` the sampler is shown as Lightning records row indices from.
        with_rows: Make predict batches :class:`RowBatch`.
        normalizer: Applied to each batch in the consuming process; without worker processes a
            :class:`Normalizer` is applied to each image as it is made.
        mix: Draws MixUp or CutMix for each batch.
        skipped: Leave files that cannot be read out of the batches, and note them here.
        collate_fn: Samples to batch; None for a dataset that serves whole batches.
        num_workers: None: the cores this process may use, none for data in memory. What finds the
            number wants threads; where they cannot serve it is as None, and that is said.
        worker_type: ``"process"``, ``"thread"`` or ``"auto"``.
        ranks: Processes of the run on this machine, which share its cores.
        options: The user's own loader options; they win.
        pin_memory: Default where the options do not say.
        persistent: Keep the workers between epochs, where the options do not say.
    """
    chosen: dict[str, Any] = {
        "pin_memory": pin_memory,
        "persistent_workers": persistent,
        # else torch draws its base seed from the user's own stream
        "generator": torch.Generator().manual_seed(0),
        **{k: given_again(v, f"loader_options[{k!r}]") for k, v in (options or {}).items()},
    }
    chosen.pop("drop_last", None)  # the plan knows
    keyed = KeyedDataset(
        dataset,
        collate_fn=chosen.pop("collate_fn", collate_fn),
        with_rows=with_rows,
        skip=skipped is not None,
    )
    workers, threads = _workers(
        keyed, num_workers, split, worker_type, options or {}, ranks=ranks, steps=len(sampler)
    )
    if threads or hasattr(dataset, "get_batch") or not isinstance(num_workers, int):
        # Chosen on purpose. Lightning advises from the core count alone, and for data in memory
        # more workers are 17 to 20 times slower.
        warnings.filterwarnings("ignore", message=r"The '\w+' does not have many workers")
    ahead = chosen.get("prefetch_factor") or 2
    if not workers and type(normalizer) is Normalizer:  # of a subclass it is not known
        keyed.normalizer = normalizer
    watch = None
    if workers:
        if chosen.get("multiprocessing_context") is not None or _starts_afresh():
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
        **_for_workers(workers, chosen),
    )


def make_stream_loader(
    stream: StreamBatches,
    *,
    num_workers: int | None = None,
    normalizer: Callable[[Any], Any] | None = None,
    options: Mapping[str, Any] | None = None,
    pin_memory: bool = False,
) -> Loader:
    """Loader of an iterable dataset, which makes its own batches.

    Every worker reads the whole stream, so None means one worker.
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
    """Loader in order for ``overfit_batches``.

    Lightning puts a ``SequentialSampler`` of its own there, which only a plain loader takes.
    """
    keyed = KeyedDataset(dataset, collate_fn=collate_fn, skip=skipped is not None)
    return Loader(
        keyed, normalizer=normalizer, skipped=skipped, batch_size=batch_size, collate_fn=_as_is
    )


def _workers(
    keyed: KeyedDataset,
    asked: int | AutoWorkers | None,
    split: str,
    worker_type: str,
    options: Mapping[str, Any],
    *,
    ranks: int,
    steps: int,
) -> tuple[int, int | AutoWorkers]:
    """Number of processes and of threads that make the batches; one of the two is 0."""
    if isinstance(asked, int):
        count = asked
    elif hasattr(keyed.dataset, "get_batch"):
        count = 0
    else:
        count = min(default_workers(ranks), steps)
    if not count:
        return 0, 0
    why = _why_processes(keyed, split, worker_type, options)
    auto = asked if isinstance(asked, AutoWorkers) else None
    if why is None:
        return 0, auto or count
    if auto is not None:
        rank_zero_info(f'num_workers="auto": {count} processes for {split}, not threads: {why}')
    return count, 0


def _why_processes(
    keyed: KeyedDataset, split: str, worker_type: str, options: Mapping[str, Any]
) -> str | None:
    """What keeps a loader from threads, or None.

    Threads take less CPU time where they may serve: no batch is sent, no process started.

    Raises:
        ValueError: If threads were asked for and cannot serve.
    """
    if worker_type == "process":
        return 'worker_type="process"'
    why = keyed.unfit_for_threads()
    if worker_type != "thread":
        asked = [name for name in PROCESS_OPTIONS if options.get(name)]
        return f"{asked[0]} is for processes" if asked else why
    if why is not None:
        raise ValueError(f'worker_type="thread" cannot serve {split}: {why}; leave worker_type out')
    return None


def _for_workers(workers: int, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Options for so many processes, without what torch refuses where there are none."""
    refused = () if workers else WORKER_OPTIONS
    return {
        **{name: value for name, value in chosen.items() if name not in refused},
        "num_workers": workers,
        "collate_fn": InSharedMemory() if workers else _as_is,  # batches come joined
    }


def _starts_afresh() -> bool:
    # asking for the method would fix it: allow_none
    method = torch.multiprocessing.get_start_method(allow_none=True)
    return (method or torch.multiprocessing.get_all_start_methods()[0]) != "fork"


def _check_pickles(keyed: KeyedDataset, split: str) -> None:
    """Workers that are not forked get everything by pickle: say early what cannot travel."""
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
