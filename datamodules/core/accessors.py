"""Access to a datamodule for scripts, insight and feature packs, beyond its public members."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from datamodules.batches.bad_samples import SkippedFiles
from datamodules.images.ram_cache import RamCache
from datamodules.loading.loader import Loader
from datamodules.sampling.plan import Plan
from datamodules.seeding.thread_rng import thread_unsafe_step
from datamodules.settings.arguments import plain
from datamodules.splits.options import SplitOptions
from datamodules.splits.split_samples import SPLITS, Split

from .loaders import LoaderRequest
from .no_validation import NoValidation
from .resume import TrainPosition
from .skipped_files import SkippedBySplit

if TYPE_CHECKING:
    from .datamodule import DataModule

# arguments that change train samples, besides functions
TRAIN_OPTIONS = ("mixup", "cutmix", "draft", "fast_transforms")


class SampleFunctions(NamedTuple):
    """A user's own functions that make samples and batches; None where the source has its own.

    Attributes:
        train_transform: Transform of train samples, or the preset.
        load: Loads one item.
        collate: Samples to batch.
        given: The transforms the user gave for train and for evaluation.
    """

    train_transform: Any = None
    load: Any = None
    collate: Any = None
    given: tuple[Any, Any] = (None, None)

    def named(self, dm: DataModule) -> dict[str, Any]:
        """Return what decides train samples and batches besides the plan, by argument."""
        options = {**dm.hparams, **dm._image_options}
        return {
            "train_transform": self.train_transform,
            "load": self.load,
            "collate": dm.loader_options.get("collate_fn") or self.collate,
            **{name: options.get(name) for name in TRAIN_OPTIONS},
        }


def request_of(dm: DataModule, split: Split) -> LoaderRequest:
    """Return everything that decides the loader of a split."""
    data, train = dm._dataset(split), split == "train"
    return LoaderRequest(
        source=type(dm).__name__,
        split=split,
        dataset=data,
        settings=dm.hparams,
        sampler=dm.sampler,
        options=dm.loader_options,
        has_classes=dm.task == "multiclass",
        collate_fn=dm._default_collate(split),
        normalizer=dm._normalizer_of(data),
        mix=dm._mix() if train else None,
        skipped=dm._skipped_files(split) if data is not None else None,
        worker_type=worker_type_of(dm),
        run=dm._run(),
        guard=dm._guard,
    )


def worker_type_of(dm: DataModule) -> str:
    """Return ``"thread"``, ``"process"`` or ``"auto"``, the same for all splits.

    A process that is forked while threads run may inherit a lock that one of them holds.
    """
    worker_type: str = dm.hparams["worker_type"]
    unsafe = any(map(thread_unsafe_step, dm._functions().given))
    return "process" if worker_type == "auto" and unsafe else worker_type


def dataset_of(dm: DataModule, split: Split) -> Any:
    """Return the dataset of a split, or None."""
    return dm._dataset(split)


def loader_of(dm: DataModule, split: Split, *, num_workers: int | None = None) -> Loader:
    """Return a loader that has no effect on the datamodule's position in the epoch."""
    return dm._loader(split, num_workers=num_workers)


def copy_of(dm: DataModule) -> DataModule:
    """Return a datamodule of the same data with settings of its own, outside any run."""
    copied = copy(dm)
    copied.__dict__["_hparams"] = copy(dm.hparams)
    copied.loader_options, copied._datasets = dict(dm.loader_options), dict(dm._datasets)
    copied._position, copied._skipped = TrainPosition(), SkippedBySplit()
    copied._no_validation = NoValidation()
    return copied


def set_augmentation(dm: DataModule, augment: bool) -> None:
    """Give train samples the train transform, or that of evaluation, in loaders made later."""
    dm._augment = augment
    dm._datasets.pop("train", None)


def collate_of(dm: DataModule, split: Split) -> Callable[[Any], Any]:
    """Return the collate function of a split, the user's own first."""
    collate: Callable[[Any], Any] = dm.loader_options.get("collate_fn") or dm._default_collate(
        split
    )
    return collate


def normalizer_of(dm: DataModule, dataset: Any) -> Callable[[Any], Any] | None:
    """Return what normalizes the batches of a dataset, or None."""
    return dm._normalizer_of(dataset)


def plan_of(dm: DataModule) -> Plan:
    """Return the plan of a training epoch."""
    return request_of(dm, "train").train_plan()


def bad_rows_of(dm: DataModule, split: str) -> list[int]:
    """Return the positions of samples that this process left out of a split so far."""
    return dm._skipped.rows(split)


def skipped_of(dm: DataModule, split: Split) -> SkippedFiles:
    """Return the record of samples that are left out of a split."""
    classes = dm.fitted.get("classes", ())
    most, data = dm.hparams["max_errors"], dm._dataset(split)
    return dm._skipped.record(split, data, max_errors=most, classes=classes, noun=dm._noun)


def ram_cache_of(dm: DataModule) -> RamCache | None:
    """Return the cache of all splits, or None if there is no ``cache`` option."""
    options = dm._image_options
    if options["cache"] is not None and dm._ram_cache is None:
        dm._ram_cache = RamCache(options["cache_bytes"], ranks=dm._run().processes_here)
    return dm._ram_cache


def add_split_options(dm: DataModule, split_options: dict[str, Any]) -> None:
    """Add to ``split_options`` before the data are read, as each fit of a cross-validation does.

    Raises:
        ValueError: If the options exclude each other.
        RuntimeError: If the data are read already.
    """
    if dm._is_read:
        raise RuntimeError("the samples are split already; make a new datamodule")
    joined = {**(dm._split_options or {}), **split_options}
    SplitOptions.of(joined)
    dm._split_options, dm.hparams["split_options"] = joined, plain(joined)


def describe(dm: DataModule) -> str:
    """Return one line about a datamodule: its splits, batch size and cache."""
    made = [(s, dm._datasets[s]) for s in SPLITS if dm._datasets.get(s) is not None]
    splits = ", ".join(
        f"{split} {len(data):,}" if hasattr(data, "__len__") else f"{split} a stream"
        for split, data in made
    )
    cache = "" if dm._ram_cache is None else f"; keeps {dm._ram_cache}"
    draft = "; draft=True changes pixels" if dm._image_options.get("draft") else ""
    size = dm.hparams["batch_size"]
    return f"{type(dm).__name__}({splits or 'not set up'}; batch_size={size}{draft}{cache})"
