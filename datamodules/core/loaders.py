"""From datasets to loaders: plan, sampler, workers, and how batches get to the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning as L
from lightning.pytorch.trainer.states import TrainerStatus
from torch.utils.data import DataLoader

from datamodules.batches.mixup import Mix
from datamodules.batches.normalize import Normalizer
from datamodules.images.ram_cache import RamCache
from datamodules.loading.auto_workers import AutoWorkers
from datamodules.loading.make_loader import make_loader, make_plain_loader
from datamodules.sampling.by_name import facts_of, make_plan
from datamodules.sampling.length_buckets import pads_to_bound
from datamodules.sampling.plan import EvaluationPlan, Plan
from datamodules.sampling.sharded_sampler import ShardedBatchSampler
from datamodules.sampling.strategies import GlobalBatches, Sampling
from datamodules.seeding.thread_rng import thread_unsafe_step
from datamodules.settings.arguments import given_again
from datamodules.settings.cpu_count import default_workers

from .source import Source, Split
from .sync_guard import StepwiseGuard


class Loading(Source, L.LightningDataModule):
    """The part of a datamodule that makes a split's loader.

    Attributes:
        sampler: As it was given.
        loader_options: The user's own arguments of ``DataLoader``.
        normalizer: Last step of images that leave their dataset as uint8.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sampler: str | Sampling | Plan = "shuffle"
        self.loader_options: dict[str, Any] = {}
        self.normalizer: Callable[[Any], Any] | None = None
        self._guard = StepwiseGuard()
        self._auto: dict[str, AutoWorkers] = {}
        self._ram_cache: RamCache | None = None

    @property
    def workers(self) -> dict[str, int]:
        """Worker threads that ``num_workers="auto"`` uses by now, by split; kept between fits."""
        return {split: auto.workers for split, auto in self._auto.items()}

    def mix(self) -> Mix | None:
        """MixUp or CutMix of the train batches; an image source says."""
        return None

    def normalizer_of(self, dataset: Any) -> Callable[[Any], Any] | None:
        """Last step of a dataset's batches: what its transform left to be done, or the source's."""
        own = getattr(dataset, "normalizer", None)
        return own if isinstance(own, Normalizer) else self.normalizer

    def plan(self, dataset: Any) -> Any:
        """Plan of a training epoch over ``dataset``."""
        if pads_to_bound(self.sampler) and getattr(dataset, "widths", None) is None:
            raise ValueError(
                f"{type(self).__name__} does not pad by token, so it cannot pad to a bound; leave "
                'pad_to="bound" out'
            )
        facts = facts_of(
            dataset,
            batch_size=self.hparams["global_batch_size"] or self.hparams["batch_size"],
            drop_last=bool(self.loader_options.get("drop_last", False)),
            classes=self.task == "multiclass",
        )
        plan = make_plan(given_again(self.sampler, "sampler"), facts)
        return GlobalBatches(plan) if self.hparams["global_batch_size"] else plan

    def _loader(self, split: Split, *, num_workers: int | None = None) -> DataLoader[Any]:
        data, train = self._dataset(split), split == "train"
        if data is not None and not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
            raise ValueError(
                f"dataset({split!r}) gave {type(data).__name__}, a map-style dataset with a length "
                "is needed; for an iterable one take DatasetDataModule"
            )
        if data is None or not len(data):
            raise ValueError(f"{type(self).__name__} has no {split} samples; {self._remedy(split)}")
        trainer = self.trainer if self._attached() else None
        workers = self.hparams["num_workers"] if num_workers is None else num_workers
        size = self.hparams["batch_size"]
        if not train:
            size = self.hparams["eval_batch_size"] or size
        crossing = self._crossing(data)
        if trainer is not None and split != "predict" and trainer.overfit_batches:  # type: ignore[attr-defined]
            return make_plain_loader(
                data,
                batch_size=size,
                normalizer=crossing["normalizer"],
                skipped=self.skipped_files(split),
                collate_fn=self.loader_options.get("collate_fn") or self.default_collate(split),
            )
        sampler = ShardedBatchSampler(
            self.plan(data) if train else EvaluationPlan(len(data), size),
            len(data),
            seed=self.hparams["seed"],
            uneven=self.hparams["uneven"] if train else "keep",
            seeded=split != "predict",
            # of a user's own dataset it is not known what the word means
            draws=not hasattr(data, "get_batch") or getattr(data, "draws", True) is not False,
            **self._ranks(),
        )
        if train and not len(sampler):
            raise ValueError(
                f"drop_last leaves no batch of {len(data)} samples at batch_size={size} on "
                f"{sampler.num_replicas} processes; lower batch_size or keep the last batch"
            )
        self._guard.release()
        if trainer is not None and not train and not sampler.even:
            self._guard.watch(trainer.lightning_module, len(data), sampler.num_replicas)
        auto = self._find_workers(split) if workers == "auto" else None
        loader = make_loader(
            data,
            sampler,
            batch_size=size,
            split=split,
            mix=self.mix() if train else None,
            skipped=self.skipped_files(split),
            with_rows=split == "predict" and self.hparams["with_rows"],
            collate_fn=self.default_collate(split),
            num_workers=(auto if workers == "auto" else workers),
            worker_type=self._worker_type(),
            ranks=self._ranks_here(),
            options=self.loader_options,
            **crossing,
            persistent=split in ("train", "val"),
        )
        if auto is not None and loader.threads is not auto:  # processes serve in their place
            del self._auto[split]
        return loader

    def _worker_type(self) -> str:
        """The kind of workers; one for all splits, where it is not chosen.

        A process that is forked while threads work may inherit a lock that one of them held.
        """
        given: str = self.hparams["worker_type"]
        if given != "auto" or self.hparams["num_workers"] == "auto":
            return given
        own = [getattr(self, f"_{part}_transform", None) for part in ("train", "eval")]
        return "process" if any(thread_unsafe_step(step) for step in own) else given

    def _find_workers(self, split: Split) -> AutoWorkers | None:
        if hasattr(self._dataset(split), "get_batch"):
            return None
        most = default_workers(self._ranks_here())
        if split not in self._auto or self._auto[split].most != most:
            self._auto[split] = AutoWorkers(most, split)
        return self._auto[split]

    def _make_ram_cache(self) -> RamCache | None:
        """The one cache of all splits, where it was asked for."""
        if self.hparams["cache"] is not None and self._ram_cache is None:
            self._ram_cache = RamCache(self.hparams["cache_bytes"], ranks=self._ranks_here())
        return self._ram_cache

    def _remedy(self, split: Split) -> str:
        if split == "predict":
            return "pass predict_path="
        if split == "train":
            return "all samples went to val and test, or there are none"
        return f"the source holds none and {split}_split cuts none out"

    def _crossing(self, data: Any = None) -> dict[str, Any]:
        """How batches get to the device: finished on the host, or pinned and finished there."""
        trainer = self.trainer if self._attached() else None
        crosses = trainer is not None and self._crosses(trainer)
        pin = trainer is not None and trainer.strategy.root_device.type == "cuda"
        return {"normalizer": None if crosses else self.normalizer_of(data), "pin_memory": pin}

    def _crosses(self, trainer: L.Trainer) -> bool:
        """Whether images cross to a device as uint8 and are finished there."""
        return bool(trainer.strategy.root_device.type != "cpu")

    def _ranks(self) -> dict[str, int]:
        """The Trainer's number of ranks and this rank; empty without one."""
        if not self._attached():
            return {}
        assert self.trainer is not None
        return dict(self.trainer.distributed_sampler_kwargs or {"num_replicas": 1, "rank": 0})

    def _ranks_here(self) -> int:
        """Processes of the Trainer's run on this machine."""
        trainer = self.trainer if self._attached() else None
        return 1 if trainer is None else max(1, trainer.world_size // trainer.num_nodes)

    def _attached(self) -> bool:
        """Whether a Trainer runs this datamodule now; afterwards it stays known as ``trainer``."""
        return self.trainer is not None and self.trainer.state.status == TrainerStatus.RUNNING
