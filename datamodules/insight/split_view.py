"""The splits of any datamodule: dataset, loader and first batch of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sized
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import lightning as L
import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Subset

from datamodules.adapters.dataset import WrappedDataset
from datamodules.adapters.dataset_attributes import DatasetAttributes
from datamodules.adapters.find_labels import find_classes
from datamodules.adapters.user_samples import (
    input_transform,
    known_targets,
    listed_files,
    raw_sample,
)
from datamodules.batches.dataset_interface import DatasetInterface, DescribesSamples, Sample
from datamodules.batches.inspection_interface import InspectsSamples
from datamodules.batches.nested import tensors_of
from datamodules.core.accessors import dataset_of
from datamodules.core.datamodule import DataModule
from datamodules.seeding.random_state import kept_random_state

from .datamodule_view import DataModuleView, PlansBatches
from .findings import Finding

MOST_IMAGES = 4_000  # files of a split whose bytes are compared
MOST_SAMPLES = 256  # samples of a split that are compared if each must be made
SPLITS = ("train", "val", "test")


@dataclass
class SplitView:
    """One split of a datamodule.

    Attributes:
        split: Name of the split.
        dataset: The dataset, map-style or iterable.
        loader: The loader of a datamodule that is not a `DataModule`; else None.
        batch: The first batch; None if none was made.
        container_sizes: Length of each container in the dataset before any sample was made.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> data = TensorDataset(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
        >>> view = SplitView("val", data)
        >>> len(view), view.labels().tolist(), view.describe(2)
        (3, [0, 1, 1], 'val sample 2')
    """

    split: str
    dataset: Any
    loader: Any = None
    batch: Any = None
    container_sizes: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.dataset) if isinstance(self.dataset, Sized) else 0

    @property
    def size(self) -> int | str:
        """Number of samples, or ``"a stream"``."""
        return len(self) if isinstance(self.dataset, Sized) else "a stream"

    @property
    def is_map_style(self) -> bool:
        """Whether samples can be read by position."""
        return DatasetInterface(self.dataset).is_map_style

    @property
    def serves_batches(self) -> bool:
        """Whether the dataset returns whole batches."""
        return DatasetInterface(self.dataset).batches is not None

    @property
    def inputs(self) -> Any:
        """The batch without its target."""
        return self.batch[0] if isinstance(self.batch, tuple | list) else self.batch

    @property
    def target(self) -> Any:
        """The target of the batch, or None."""
        is_pair = isinstance(self.batch, tuple | list) and len(self.batch) > 1
        return self.batch[1] if is_pair else None

    @property
    def transform(self) -> Any:
        """The transform of the inputs, or None."""
        return input_transform(self.dataset)

    @cached_property
    def paths(self) -> list[str]:
        """Image file of each sample; empty if samples are not image files."""
        return listed_files(self.dataset)

    def labels(self) -> npt.NDArray[np.int64] | None:
        """Return the (N,) class of each sample, if known without making the samples."""
        found = known_targets(self.dataset)
        if found is None or not len(found):
            return None
        return found if found.ndim == 1 and np.issubdtype(found.dtype, np.integer) else None

    def describe(self, index: int) -> str:
        """Return the name of a sample."""
        if isinstance(self.dataset, DescribesSamples):
            return self.dataset.describe(index)
        return self.paths[index] if self.paths else f"{self.split} sample {index}"

    def sample(self, index: int) -> Sample:
        """Return a sample before its transform."""
        return raw_sample(self.dataset, index, self.describe(index))

    def digests(self) -> Iterator[bytes]:
        """Yield a digest of each sample's content without its label; the first ones if many."""
        if self.paths:
            for path in self.paths[:MOST_IMAGES]:
                try:
                    yield digest(Path(path).read_bytes())
                except OSError:
                    yield digest(path.encode("utf-8", "surrogateescape"))
            return
        contents = (
            self.dataset.contents()
            if isinstance(self.dataset, InspectsSamples)
            else map(_content, map(self.dataset.__getitem__, range(len(self))))
        )
        if self.serves_batches and isinstance(self.dataset, InspectsSamples):
            yield from map(digest, contents)
            return
        for _ in range(min(len(self), MOST_SAMPLES)):
            try:
                with kept_random_state():
                    torch.default_generator.manual_seed(0)
                    content = list(islice(contents, 1))
            except Exception:  # reported where the batch is made
                return
            yield from map(digest, content)


def _content(sample: Any) -> bytes:
    item = sample[0] if isinstance(sample, tuple | list) and sample else sample
    return b"".join(t.detach().numpy().tobytes() for t in tensors_of(item))


def digest(content: bytes) -> bytes:
    """Return a short digest of bytes."""
    return hashlib.blake2b(content, digest_size=16).digest()


def innermost(data: Any) -> Any:
    """Return the dataset below ``Subset`` and this project's adapter."""
    while isinstance(data, Subset | WrappedDataset):
        data = data.dataset
    return data


@runtime_checkable
class CachesResults(Protocol):
    """A function that keeps its results, as ``functools.lru_cache`` makes it."""

    def cache_info(self) -> Any:
        """Return the size of the cache as ``currsize``."""
        ...


def container_sizes(data: Any) -> dict[str, int]:
    """Return the length of each container and cache that a dataset has as an attribute."""
    members = DatasetAttributes(innermost(data)).members
    sizes = {n: len(v) for n, v in members.items() if isinstance(v, dict | list | set)}
    caches = {n: v for n, v in members.items() if isinstance(v, CachesResults)}
    return sizes | {n: v.cache_info().currsize for n, v in caches.items()}


def class_names(dm: Any, view: SplitView | None = None) -> list[str] | None:
    """Return the class names of a datamodule or dataset; None if targets are numbers."""
    known = DataModuleView(dm)
    if known.task == "regression":
        return None
    if known.classes is not None or view is None:
        return known.classes
    return find_classes(view.dataset)


def view_split(dm: L.LightningDataModule, split: str) -> SplitView | None:
    """Return a split of a datamodule without its batch, or None if there is no such split."""
    if isinstance(dm, DataModule):
        data = dataset_of(dm, split)  # type: ignore[arg-type]
        return None if data is None else SplitView(split, data)
    known = DataModuleView(dm)
    if not known.has_loader(split):
        return None
    dm.setup("test" if split == "test" else "fit")
    loader = known.loader(split)
    data = DatasetAttributes(loader).inner
    return None if data is None else SplitView(split, data, loader)


def view_splits(
    dm: L.LightningDataModule, *, samples: bool = True
) -> tuple[dict[str, SplitView], list[Finding]]:
    """Return every split of a datamodule with its first batch, and what failed.

    Args:
        dm: The datamodule.
        samples: False makes first batches only of datasets that return whole batches.
    """
    views: dict[str, SplitView] = {}
    findings: list[Finding] = []
    if not isinstance(dm, DataModule):
        dm.prepare_data()
    for split in SPLITS:
        try:
            view = view_split(dm, split)
            if view is not None:
                views[split] = view
                view.container_sizes = container_sizes(view.dataset)
                if samples or view.serves_batches:
                    view.batch = _first_batch(dm, view)
        except Exception as error:
            text = f"no {split} batch can be made: {type(error).__name__}: {error}"
            remedy = "fix the cause, first with num_workers=0"
            findings.append(Finding("error", "batch-fails", text, remedy))
            continue
        if view is None and split == "train":
            remedy = "define train_dataloader in the datamodule"
            findings.append(Finding("error", "no-train", "there is no train split", remedy))
    return views, findings


def _first_batch(dm: L.LightningDataModule, view: SplitView) -> Any:
    if isinstance(dm, DataModule):
        return dm.preview(view.split)  # type: ignore[arg-type]
    loader = view.loader
    batches = loader.batch_sampler if isinstance(loader, PlansBatches) else None
    if batches is None or not view.is_map_style:
        return next(iter(loader))
    # in this process: no workers for one batch
    return loader.collate_fn([view.dataset[i] for i in next(iter(batches))])
