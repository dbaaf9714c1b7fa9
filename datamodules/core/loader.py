"""The only place that builds a DataLoader: workers, seeding, pinning, resuming."""

from __future__ import annotations

import inspect
import math
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.distributed import DistributedSampler

from .auto_workers import AutoWorkers
from .cores import default_workers
from .keyed import KeyedDataset
from .mix import Mix, mixed
from .samplers import RowBatches, ShardedBatchSampler
from .settings import check_name, given_again
from .skipped import SkippedFiles
from .splits import fingerprint
from .streams import StreamBatches, StreamPlace
from .threads import made_by_threads
from .worker_faults import InSharedMemory, WorkerWatch, end_workers, ending

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


class Loader(DataLoader[Any]):
    """``DataLoader`` over a :class:`ShardedBatchSampler` that yields finished batches.

    Lightning finds a distributed sampler in ``loader.sampler`` and leaves it alone. Outside a
    Trainer it is an ordinary loader: on one process, or with an initialised ``torch.distributed``
    (Fabric, torchrun), where each rank gets its own part.

    Args:
        dataset: Asked by :class:`Keys`.
        finish: Applied to each batch in the consuming process; None leaves batches as they are.
        mix: Draws MixUp or CutMix for each batch.
        skipped: Takes note of files that were left out.
        threads: Worker threads, in place of worker processes; or what finds their number.
        ahead: Batches that each thread makes ahead.
        watch: Speaks for worker processes that hang or find no memory.
        **kwargs: ``DataLoader``'s own arguments.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        finish: Callable[[Any], Any] | None = None,
        mix: Mix | None = None,
        skipped: SkippedFiles | None = None,
        threads: int | AutoWorkers = 0,
        ahead: int = 2,
        watch: WorkerWatch | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dataset, **kwargs)
        self.threads, self.ahead, self.watch = threads, ahead, watch
        self.finish, self.mix, self.skipped = finish, mix, skipped
        self._seen, self._resume = 0, None
        # Lightning wraps the batch sampler of a predict loader and copies its attributes
        if isinstance(dataset, StreamBatches):
            self.__dict__["sampler"] = StreamPlace(dataset)
        for candidate in (self.batch_sampler, getattr(self.batch_sampler, "sampler", None)):
            if isinstance(candidate, DistributedSampler):
                # seen by "already distributed?" and by set_epoch; torch draws from batch_sampler
                self.__dict__["sampler"] = candidate
                break

    _seen: int
    _resume: tuple[int, int] | None

    @property
    def workers(self) -> int:
        """Threads or processes that make batches, with ``num_workers="auto"`` at this moment."""
        if isinstance(self.threads, AutoWorkers):
            return self.threads.workers
        return self.threads or self.num_workers

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        # A generator: nothing starts before the first next(), that is after Lightning's
        # set_epoch; on a resumed fit it calls iter() earlier.
        sampler = self.sampler
        epoch, first = self._resume or (None, 0)
        self._resume = None
        # a place in another epoch: that epoch had ended, this one starts afresh
        self._seen = first if epoch == getattr(sampler, "epoch", None) else 0
        if isinstance(sampler, ShardedBatchSampler | StreamPlace):
            sampler.start(self._seen)
        try:
            yield from self._finished(self._fetched())
        except Exception:
            end_workers(self._iterator)  # those that stay between epochs
            self._iterator = None
            raise

    def _finished(self, fetched: Iterator[Any]) -> Iterator[Any]:
        sampler = self.sampler
        box: list[Any] = []
        for batch in fetched:
            if self.skipped is not None:
                batch = self.skipped.take(batch)
                if self._seen + 1 == len(self):  # nobody need ask for what comes after the last
                    self.skipped.say()
            if self.mix is not None and isinstance(sampler, ShardedBatchSampler):
                batch = self.mix.drawn(batch, sampler.step_seed(self._seen))
            self._seen += 1
            box.append(batch if self.finish is None else mixed(self.finish(batch)))
            del batch
            yield box.pop()  # the frame keeps no batch: what the consumer drops is free again
        if isinstance(self.threads, AutoWorkers) and (news := self.threads.news()):
            rank_zero_info(news)

    def _fetched(self) -> Iterator[Any]:
        data, keys = self.dataset, self.batch_sampler
        if self.num_workers or not isinstance(data, KeyedDataset) or keys is None:
            if self.watch is not None:
                self.watch.check_memory()
            batches: Any = super().__iter__()
            if self.num_workers:
                batches = ending(batches, always=not self.persistent_workers)
            return batches if self.watch is None else self.watch.over(batches)
        made: Iterator[Any]
        if self.threads:
            made = made_by_threads(data.__getitems__, keys, self.threads, ahead=self.ahead)
        else:  # torch's own iterator does the same and takes 8 us a batch for its bookkeeping
            made = map(self.collate_fn, map(data.__getitems__, keys))
        pins = self.pin_memory and torch.accelerator.is_available()
        return map(pin_memory, made) if pins else made

    def state_dict(self) -> dict[str, Any]:
        """The place in the epoch, the same on every rank, as plain types."""
        sampler = self.sampler
        state: dict[str, Any] = {"epoch": getattr(sampler, "epoch", 0), "batches": self._seen}
        state["num_replicas"] = getattr(sampler, "num_replicas", 1)
        if isinstance(sampler, ShardedBatchSampler):
            batches = sampler.planned()
            state["steps"] = len(sampler)
            state["plan"] = fingerprint([sampler.seed], batches.indices, batches.offsets)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on at a place that :meth:`state_dict` gave.

        Raises:
            RuntimeError: If the place means other batches now: another number of processes, other
                data, another batch size or seed.
        """
        sampler = self.sampler
        then, now = state.get("num_replicas", 1), getattr(sampler, "num_replicas", 1)
        inside = lies_inside(state)
        if inside and then != now:
            raise RuntimeError(
                f"the checkpoint lies in the middle of an epoch that {then} processes ran, "
                f"this run has {now}; resume with {then}, or from an end-of-epoch checkpoint"
            )
        if isinstance(sampler, ShardedBatchSampler) and inside:
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


def lies_inside(place: Mapping[str, Any]) -> bool:
    """Whether a place of :meth:`Loader.state_dict` has batches of its epoch on either side."""
    return bool(0 < place["batches"] < place.get("steps", math.inf))


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
    finish: Callable[[Any], Any] | None = None,
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
        finish: Applied to each batch in the consuming process.
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
    in_memory = hasattr(dataset, "get_batch")
    auto = num_workers if isinstance(num_workers, AutoWorkers) and not in_memory else None
    if isinstance(num_workers, AutoWorkers):
        num_workers = None
    workers = num_workers
    if workers is None:
        workers = 0 if in_memory else min(default_workers(ranks), len(sampler))
    if num_workers is None or in_memory:
        # Chosen on purpose. Lightning advises from the core count alone, and for data in memory
        # more workers are 17 to 20 times slower.
        warnings.filterwarnings("ignore", message=r"The '\w+' does not have many workers")
    chosen: dict[str, Any] = {
        "num_workers": workers,
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
    threads: dict[str, Any] = {}
    why = _why_processes(keyed, worker_type, options or {})
    if auto is not None and why is not None and worker_type != "thread":
        rank_zero_info(f'num_workers="auto": {workers} processes for {split}, not threads: {why}')
    if (worker_type == "thread" or why is None) and workers:
        _check_threads(keyed, split)
        threads = {"threads": auto or workers, "ahead": chosen.get("prefetch_factor") or 2}
        chosen["num_workers"] = workers = 0
        warnings.filterwarnings("ignore", message=r"The '\w+' does not have many workers")
    if workers == 0:
        for name in WORKER_OPTIONS:
            chosen.pop(name, None)
    elif chosen.get("multiprocessing_context") is not None or _starts_afresh():
        _check_pickles(keyed, split)
    batch_sampler: Any = RowBatches(sampler, batch_size, False) if split == "predict" else sampler
    chosen["collate_fn"] = InSharedMemory() if workers else _as_is
    watch = None
    if workers:
        watch = WorkerWatch(
            keyed,
            split=split,
            rows=batch_size,
            workers=workers,
            ahead=chosen.get("prefetch_factor") or 2,
            timeout=chosen.get("timeout") or 0,
        )
    parts: dict[str, Any] = {
        "finish": finish,
        "mix": mix,
        "skipped": skipped,
        "watch": watch,
        **threads,
    }
    return Loader(keyed, batch_sampler=batch_sampler, **parts, **chosen)


def make_stream_loader(
    stream: StreamBatches,
    *,
    num_workers: int | None = None,
    finish: Callable[[Any], Any] | None = None,
    options: Mapping[str, Any] | None = None,
    pin_memory: bool = False,
) -> Loader:
    """Loader of an iterable dataset, which makes its own batches.

    Every worker reads the whole stream, so None means one worker.
    """
    chosen: dict[str, Any] = {
        "num_workers": 1 if num_workers is None else num_workers,
        "pin_memory": pin_memory,
        "generator": torch.Generator().manual_seed(0),
        **(options or {}),
        # the epoch reaches a worker when it starts
        "persistent_workers": False,
    }
    for name in ("collate_fn", *(WORKER_OPTIONS if not chosen["num_workers"] else ())):
        chosen.pop(name, None)
    collate: Any = InSharedMemory() if chosen["num_workers"] else _as_is
    return Loader(stream, finish=finish, batch_size=None, collate_fn=collate, **chosen)


def make_plain_loader(
    dataset: Any,
    *,
    batch_size: int,
    finish: Callable[[Any], Any] | None,
    collate_fn: Callable[[Any], Any] | None,
    skipped: SkippedFiles | None = None,
) -> Loader:
    """Loader in order for ``overfit_batches``.

    Lightning puts a ``SequentialSampler`` of its own there, which only a plain loader takes.
    """
    keyed = KeyedDataset(dataset, collate_fn=collate_fn, skip=skipped is not None)
    return Loader(keyed, finish=finish, skipped=skipped, batch_size=batch_size, collate_fn=_as_is)


def _why_processes(keyed: KeyedDataset, worker_type: str, options: Mapping[str, Any]) -> str | None:
    """What keeps a loader whose kind of workers is not chosen from threads, or None.

    Threads take less CPU time where they may serve: no batch is sent, no process started.
    """
    if worker_type == "process":
        return 'worker_type="process"'
    asked = [name for name in PROCESS_OPTIONS if options.get(name)]
    return f"{asked[0]} is for processes" if asked else keyed.unfit_for_threads()


def _check_threads(keyed: KeyedDataset, split: str) -> None:
    why = keyed.unfit_for_threads()
    if why is not None:
        raise ValueError(f'worker_type="thread" cannot serve {split}: {why}; leave worker_type out')


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
