"""The DataLoader of all splits: it makes batches, normalizes them and records its position."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory

from datamodules.batches.bad_samples import SkippedFiles
from datamodules.batches.mixup import Mix, mixed
from datamodules.sampling.sharded_sampler import ShardedBatchSampler
from datamodules.splits.split import fingerprint

from .fetch import KeyedDataset
from .iterable import StreamBatches, StreamPlace
from .threads import made_by_threads
from .worker_faults import WorkerWatch, end_workers


class Loader(DataLoader[Any]):
    """``DataLoader`` over a :class:`ShardedBatchSampler` that yields normalized batches.

    Lightning finds a distributed sampler in ``loader.sampler`` and does not replace it. Outside a
    Trainer this is an ordinary loader: on one process, or with an initialized ``torch.distributed``
    (Fabric, torchrun), where each rank gets its own batches.

    Args:
        dataset: Indexed by :class:`Keys`.
        normalizer: Applied to each batch in the consuming process; None leaves batches as they are.
        mix: Applies MixUp or CutMix to each batch.
        skipped: Records files that were left out.
        threads: Number of worker threads, used in place of worker processes.
        ahead: Batches prepared ahead by each thread.
        watch: Reports worker processes that hang or run out of shared memory.
        **kwargs: ``DataLoader``'s own arguments.

    Example:
        >>> from datamodules.batches.collate import collate
        >>> from datamodules.sampling.plan import SequentialPlan
        >>> data = KeyedDataset([(0.5, 0), (0.2, 1), (0.7, 0), (0.9, 1)], collate_fn=collate)
        >>> sampler = ShardedBatchSampler(SequentialPlan(4, 2), 4)
        >>> loader = Loader(data, batch_sampler=sampler, collate_fn=lambda batch: batch)
        >>> [batch.target.tolist() for batch in loader]
        [[0, 1], [0, 1]]
        >>> loader.state_dict()["batches"]
        2
    """

    def __init__(
        self,
        dataset: Any,
        *,
        normalizer: Callable[[Any], Any] | None = None,
        mix: Mix | None = None,
        skipped: SkippedFiles | None = None,
        threads: int = 0,
        ahead: int = 2,
        watch: WorkerWatch | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dataset, **kwargs)
        self.threads, self.ahead, self.watch = threads, ahead, watch
        self.normalizer, self.mix, self.skipped = normalizer, mix, skipped
        self._seen, self._resume = 0, None
        # torch iterates over batch_sampler and refuses to set ``sampler`` beside it; Lightning
        # looks at ``sampler`` to see whether the loader is distributed, and for set_epoch
        if isinstance(dataset, StreamBatches):
            self.__dict__["sampler"] = StreamPlace(dataset)
        # Lightning wraps the batch sampler of a predict loader and copies its attributes
        for candidate in (self.batch_sampler, getattr(self.batch_sampler, "sampler", None)):
            if isinstance(candidate, ShardedBatchSampler):
                self.__dict__["sampler"] = candidate
                break

    _seen: int
    _resume: tuple[int, int] | None

    @property
    def workers(self) -> int:
        """Number of worker threads or processes."""
        return self.threads or self.num_workers

    @property
    def _planned(self) -> ShardedBatchSampler | StreamPlace | None:
        """The sampler, if it knows the epoch."""
        sampler = self.sampler
        return sampler if isinstance(sampler, ShardedBatchSampler | StreamPlace) else None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        # A generator: nothing starts before the first next(), that is after Lightning's
        # set_epoch; on a resumed fit it calls iter() earlier.
        sampler = self._planned
        epoch, first = self._resume or (None, 0)
        self._resume = None
        # a position in another epoch: that epoch had ended, this one starts from its beginning
        self._seen = first if epoch == (sampler.epoch if sampler is not None else None) else 0
        if sampler is not None:
            sampler.start(self._seen)
        made: Any = self._iterator  # of persistent workers
        try:
            made = self._fetched()
            yield from self._normalized(made if self.watch is None else self.watch.over(made))
        except Exception:
            end_workers(made)
            self._iterator = None  # or persistent workers would be used again
            raise
        finally:
            if not self.persistent_workers:
                end_workers(made)

    def _normalized(self, fetched: Iterator[Any]) -> Iterator[Any]:
        sampler = self.sampler
        box: list[Any] = []
        for batch in fetched:
            if self.skipped is not None:
                batch = self.skipped.take(batch)
                if self._seen + 1 == len(self):  # the consumer may not ask for more than the last
                    self.skipped.say()
            if self.mix is not None and isinstance(sampler, ShardedBatchSampler):
                batch = self.mix.drawn(batch, sampler.step_seed(self._seen))
            self._seen += 1
            box.append(batch if self.normalizer is None else mixed(self.normalizer(batch)))
            del batch
            yield box.pop()  # the frame keeps no reference: memory is freed with the consumer's

    def _fetched(self) -> Iterator[Any]:
        data, keys = self.dataset, self.batch_sampler
        if self.num_workers or not isinstance(data, KeyedDataset) or keys is None:
            if self.watch is not None:
                self.watch.check_memory()
            return super().__iter__()
        made: Iterator[Any]
        if self.threads:
            made = made_by_threads(data.__getitems__, keys, self.threads, ahead=self.ahead)
        else:  # torch's own iterator does the same and takes 8 us per batch for its bookkeeping
            made = map(self.collate_fn, map(data.__getitems__, keys))
        pins = self.pin_memory and torch.accelerator.is_available()
        return map(pin_memory, made) if pins else made

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the epoch, the same on every rank, as plain types."""
        sampler = self._planned
        state: dict[str, Any] = {
            "epoch": 0 if sampler is None else sampler.epoch,
            "batches": self._seen,
            "num_replicas": 1 if sampler is None else sampler.num_replicas,
        }
        if isinstance(sampler, ShardedBatchSampler):
            batches = sampler.planned()
            state["steps"] = len(sampler)
            state["plan"] = fingerprint([sampler.seed], batches.indices, batches.offsets)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a position that :meth:`state_dict` returned.

        Raises:
            RuntimeError: If the remaining batches would differ: another number of processes, other
                data, another batch size or seed.
        """
        sampler = self._planned
        then, now = state.get("num_replicas", 1), 1 if sampler is None else sampler.num_replicas
        inside = is_mid_epoch(state)
        if inside and then != now:
            raise RuntimeError(
                f"the checkpoint is in the middle of an epoch of {then} processes, this run has "
                f"{now}; resume with {then}, or from an end-of-epoch checkpoint"
            )
        if isinstance(sampler, ShardedBatchSampler) and inside:
            before, sampler.epoch = sampler.epoch, state["epoch"]
            planned = self.state_dict()["plan"]
            sampler.epoch = before
            if planned != state.get("plan", planned):
                raise RuntimeError(
                    "the checkpoint is in the middle of an epoch whose batches are planned "
                    "differently now; resume with the same data, split_seed, seed, batch_size and "
                    "sampler, or from an end-of-epoch checkpoint"
                )
        self._resume = (state["epoch"], state["batches"])
        self._seen = state["batches"]


def is_mid_epoch(state: Mapping[str, Any]) -> bool:
    """Return whether a state of :meth:`Loader.state_dict` is between two batches of its epoch."""
    return bool(0 < state["batches"] < state.get("steps", math.inf))
