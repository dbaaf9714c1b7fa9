"""The loader: batches from workers, their last step, and the place in the epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.distributed import DistributedSampler

from datamodules.batches.bad_samples import SkippedFiles
from datamodules.batches.mixup import Mix, mixed
from datamodules.sampling.sharded_sampler import ShardedBatchSampler
from datamodules.splits.split import fingerprint

from .auto_workers import AutoWorkers
from .fetch import KeyedDataset
from .iterable import StreamBatches, StreamPlace
from .threads import made_by_threads
from .worker_faults import WorkerWatch, end_workers


class Loader(DataLoader[Any]):
    """``DataLoader`` over a :class:`ShardedBatchSampler` that yields finished batches.

    Lightning finds a distributed sampler in ``loader.sampler`` and leaves it alone. Outside a
    Trainer it is an ordinary loader: on one process, or with an initialised ``torch.distributed``
    (Fabric, torchrun), where each rank gets its own part.

    Args:
        dataset: Asked by :class:`Keys`.
        normalizer: Applied to each batch in the consuming process; None leaves batches as they are.
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
        normalizer: Callable[[Any], Any] | None = None,
        mix: Mix | None = None,
        skipped: SkippedFiles | None = None,
        threads: int | AutoWorkers = 0,
        ahead: int = 2,
        watch: WorkerWatch | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dataset, **kwargs)
        self.threads, self.ahead, self.watch = threads, ahead, watch
        self.normalizer, self.mix, self.skipped = normalizer, mix, skipped
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

    def close(self) -> None:
        """End persistent workers now; others end with their iterator."""
        end_workers(self._iterator)
        self._iterator = None

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
        made: Any = self._iterator  # of workers that stayed since the last epoch
        try:
            made = self._fetched()
            yield from self._finished(made if self.watch is None else self.watch.over(made))
        except Exception:
            end_workers(made)
            self._iterator = None  # those that stay would be asked again
            raise
        finally:
            if not self.persistent_workers:
                end_workers(made)

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
            box.append(batch if self.normalizer is None else mixed(self.normalizer(batch)))
            del batch
            yield box.pop()  # the frame keeps no batch: what the consumer drops is free again
        if isinstance(self.threads, AutoWorkers) and (news := self.threads.news()):
            rank_zero_info(news)

    def _fetched(self) -> Iterator[Any]:
        data, keys = self.dataset, self.batch_sampler
        if self.num_workers or not isinstance(data, KeyedDataset) or keys is None:
            if self.watch is not None:
                self.watch.check_memory()
            return super().__iter__()
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
