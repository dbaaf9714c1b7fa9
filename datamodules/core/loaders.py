"""Build the loader of one split from the settings of a datamodule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from datamodules.batches.bad_samples import SkippedFiles
from datamodules.batches.dataset_interface import DatasetInterface
from datamodules.batches.mixup import Mix
from datamodules.loading.loader import Loader
from datamodules.loading.make_loader import make_loader, make_plain_loader
from datamodules.sampling.by_name import facts_of, make_plan
from datamodules.sampling.length_buckets import pads_to_bound
from datamodules.sampling.plan import EvaluationPlan, Plan
from datamodules.sampling.sharded_sampler import ShardedBatchSampler
from datamodules.sampling.strategies import GlobalBatches, Sampling
from datamodules.settings.arguments import given_again
from datamodules.splits.split_samples import Split

from .run import Run
from .sync_guard import SyncGuard

REMEDIES = {
    "train": "all samples went to val and test, or there are none",
    "predict": "pass predict_path=",
}


@dataclass(frozen=True)
class LoaderRequest:
    """Everything that decides the loader of one split.

    Attributes:
        source: Name of the datamodule's class, for messages.
        split: Name of the split.
        dataset: The split's dataset, or None.
        settings: Arguments of the datamodule.
        sampler: Its sampling strategy.
        options: Its ``loader_options``.
        has_classes: Whether targets are one class per sample.
        collate_fn: Samples to batch.
        normalizer: Normalizes a batch.
        mix: MixUp or CutMix of train batches.
        skipped: Record of files that are left out.
        worker_type: ``"process"``, ``"thread"`` or ``"auto"``.
        run: The Trainer's run.
        guard: Watches logging while ranks have different numbers of steps.
    """

    source: str
    split: Split
    dataset: Any
    settings: Mapping[str, Any]
    sampler: str | Sampling | Plan
    options: Mapping[str, Any]
    has_classes: bool
    collate_fn: Callable[[Any], Any]
    normalizer: Callable[[Any], Any] | None
    mix: Mix | None
    skipped: SkippedFiles | None
    worker_type: str
    run: Run
    guard: SyncGuard

    @property
    def batch_size(self) -> int:
        """Samples per step and device."""
        size = None if self.split == "train" else self.settings["eval_batch_size"]
        return int(size or self.settings["batch_size"])

    def build(self, *, num_workers: int | None = None) -> Loader:
        """Return the loader.

        Args:
            num_workers: Replaces the setting of that name.

        Raises:
            ValueError: If the dataset has no samples or no length, or the options do not fit it.
        """
        self._check_dataset()
        normalizer = None if self.run.moves_to_device else self.normalizer
        if self.run.overfits and self.split != "predict":
            return make_plain_loader(
                self.dataset,
                batch_size=self.batch_size,
                normalizer=normalizer,
                skipped=self.skipped,
                collate_fn=self.options.get("collate_fn") or self.collate_fn,
            )
        return make_loader(
            self.dataset,
            self._sampler(),
            batch_size=self.batch_size,
            split=self.split,
            mix=self.mix if self.split == "train" else None,
            skipped=self.skipped,
            with_rows=self.split == "predict" and self.settings["with_rows"],
            collate_fn=self.collate_fn,
            num_workers=self.settings["num_workers"] if num_workers is None else num_workers,
            worker_type=self.worker_type,
            ranks=self.run.processes_here,
            options=self.options,
            normalizer=normalizer,
            pin_memory=self.run.pins_memory,
            persistent=self.split in ("train", "val"),
        )

    def _check_dataset(self) -> None:
        data, split = self.dataset, self.split
        if data is not None and not DatasetInterface(data).is_map_style:
            raise ValueError(
                f"dataset({split!r}) returned {type(data).__name__}, but a map-style dataset with "
                "a length is needed; use DatasetDataModule for an iterable one"
            )
        if data is None or not len(data):
            none = f"there is no {split} data and {split}_split creates none"
            raise ValueError(f"{self.source} has no {split} samples; {REMEDIES.get(split, none)}")

    def _sampler(self) -> ShardedBatchSampler:
        data, train = self.dataset, self.split == "train"
        sampler = ShardedBatchSampler(
            self.train_plan() if train else EvaluationPlan(len(data), self.batch_size),
            len(data),
            seed=self.settings["seed"],
            uneven=self.settings["uneven"] if train else "keep",
            seeded=self.split != "predict",
            draws=DatasetInterface(data).is_random,
            **self.run.ranks,
        )
        if train and not len(sampler):
            raise ValueError(
                f"drop_last leaves no batch of {len(data)} samples at batch_size="
                f"{self.batch_size} on {sampler.num_replicas} processes; lower batch_size or keep "
                "the last batch"
            )
        self.guard.release()
        if self.run.trainer is not None and not train and not sampler.even:
            self.guard.watch(self.run.trainer.lightning_module, len(data), sampler.num_replicas)
        return sampler

    def train_plan(self) -> Plan:
        """Return the plan of a training epoch."""
        data, settings = DatasetInterface(self.dataset), self.settings
        if pads_to_bound(self.sampler) and data.widths is None:
            raise ValueError(
                f"{self.source} does not pad by token, so it cannot pad to a bound; leave "
                'pad_to="bound" out'
            )
        facts = facts_of(
            data,
            batch_size=settings["global_batch_size"] or settings["batch_size"],
            drop_last=bool(self.options.get("drop_last", False)),
            classes=self.has_classes,
        )
        plan: Plan = make_plan(given_again(self.sampler, "sampler"), facts)
        return GlobalBatches(plan) if settings["global_batch_size"] else plan
