"""What an inspection works on: each split's dataset, loader and first batch, whoever made them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Subset

from datamodules.adapters.dataset import WrappedDataset
from datamodules.batches.nested import tensors_of
from datamodules.core.datamodule import DataModule
from datamodules.images.cached import CachedImages
from datamodules.images.dataset import ImageDataset, PixelDataset
from datamodules.images.sources import DraftImages
from datamodules.readers.folders import IMAGE_SUFFIXES
from datamodules.seeding.random_state import kept_random_state
from datamodules.tables.dataset import RowDataset
from datamodules.texts.dataset import TextDataset

from .findings import Finding

MOST_IMAGES = 4_000  # files a split whose bytes are compared
MOST_SAMPLES = 256  # samples a split that have to be made one by one
SPLITS = ("train", "val", "test")


@dataclass
class Looked:
    """One split as it was found.

    Attributes:
        split: Its name.
        dataset: Map-style, or what the loader holds.
        loader: A stock loader of a user's own datamodule, else None.
        batch: The first batch.
        held: Entries in each container of the dataset before any sample was made.
    """

    split: str
    dataset: Any
    loader: Any
    batch: Any
    held: dict[str, int] = field(default_factory=dict)
    _paths: list[str] | None = None

    def __len__(self) -> int:
        return len(self.dataset) if hasattr(self.dataset, "__len__") else 0

    @property
    def inputs(self) -> Any:
        """The batch without its target."""
        return self.batch[0] if isinstance(self.batch, tuple | list) else self.batch

    @property
    def target(self) -> Any:
        """The batch's target, or None."""
        pair = isinstance(self.batch, tuple | list) and len(self.batch) > 1
        return self.batch[1] if pair else None

    def labels(self) -> npt.NDArray[np.int64] | None:
        """(N,) class of each sample where that is known without making the sample."""
        found = found_labels(self.dataset)
        if found is None or not len(found):
            return None
        return found if found.ndim == 1 and np.issubdtype(found.dtype, np.integer) else None

    def describe(self, index: int) -> str:
        """Name of a sample."""
        if hasattr(self.dataset, "describe"):
            return str(self.dataset.describe(index))
        paths = self.paths()
        return paths[index] if paths else f"{self.split} sample {index}"

    def transform(self) -> Any:
        """What is done to an input, or None."""
        data = self.dataset
        while isinstance(data, Subset):
            data = data.dataset
        if isinstance(data, ImageDataset):
            return data.transform.transform
        if isinstance(data, WrappedDataset):
            return data.parts.transform or getattr(data.dataset, "transform", None)
        return getattr(data, "transform", None)

    def paths(self) -> list[str]:
        """Image files of a split, in the order of its samples; none where it has others."""
        if self._paths is None:
            self._paths = listed_files(self.dataset)
        return self._paths

    def listed(self) -> list[str]:
        """All files that the reader of a user's own folder listed, those of other parts too."""
        return listed_files(innermost(self.dataset))

    def contents(self) -> Iterator[bytes]:
        """Digest of each sample's content, without label; the first ones of a large split."""
        data, paths = self.dataset, self.paths()
        if paths:
            for path in paths[:MOST_IMAGES]:
                try:
                    yield digest(Path(path).read_bytes())
                except OSError:
                    yield digest(path.encode("utf-8", "surrogateescape"))
        elif isinstance(data, PixelDataset):
            for row in data.pixels:
                yield digest(row.numpy().tobytes())
        elif isinstance(data, TextDataset):
            for row in data.rows.tolist():
                yield digest(data.tokens[row].tobytes())
        elif isinstance(data, RowDataset):
            width = 4 * (data.packed.numeric + data.packed.codes)
            for row in data.packed.buffer.numpy():
                yield digest(row[:width].tobytes())
        else:
            yield from self._made()

    def _made(self) -> Iterator[bytes]:
        for index in range(min(len(self), MOST_SAMPLES)):
            try:
                with kept_random_state():
                    torch.default_generator.manual_seed(0)
                    sample = self.dataset[index]
            except Exception:  # said where the batch is made
                return
            item = sample[0] if isinstance(sample, tuple | list) and sample else sample
            yield digest(b"".join(t.detach().numpy().tobytes() for t in tensors_of(item)))


def digest(content: bytes) -> bytes:
    """Short digest of bytes."""
    return hashlib.blake2b(content, digest_size=16).digest()


def innermost(data: Any) -> Any:
    """The dataset below ``Subset`` and this project's wrapping."""
    while isinstance(data, Subset | WrappedDataset):
        data = data.dataset
    return data


def held_sizes(data: Any) -> dict[str, int]:
    """Entries in each container that a dataset holds."""
    kept = getattr(innermost(data), "__dict__", {})
    sizes = {n: len(v) for n, v in kept.items() if isinstance(v, dict | list | set)}
    caches = {n: v for n, v in kept.items() if hasattr(v, "cache_info")}
    return sizes | {n: v.cache_info().currsize for n, v in caches.items()}


def folder_of(data: Any) -> Path | None:
    """Root of a user's dataset that lists a folder as torchvision's ``DatasetFolder`` does."""
    data = innermost(data)
    if isinstance(getattr(data, "samples", None), list) and hasattr(data, "class_to_idx"):
        root = getattr(data, "root", None)
        return Path(root) if isinstance(root, str | Path) and Path(root).is_dir() else None
    return None


def listed_files(data: Any) -> list[str]:
    """Paths of the image files behind a dataset, one a sample, or none."""
    if isinstance(data, ImageDataset):
        kept = data.sources
        kept = kept.sources if isinstance(kept, CachedImages) else kept
        kept = kept.names if isinstance(kept, DraftImages) else kept
        return list(kept) if all(isinstance(source, str) for source in kept) else []
    if isinstance(data, Subset | WrappedDataset):
        inner = listed_files(data.dataset)
        rows = data.indices if isinstance(data, Subset) else data.rows.tolist()
        return [inner[int(row)] for row in rows] if inner else []
    samples = data if isinstance(data, list) else getattr(data, "samples", None)
    if not isinstance(samples, list) or not samples:
        return []
    paths = [s[0] if isinstance(s, tuple | list) and s else s for s in samples]
    images = all(isinstance(p, str) and Path(p).suffix.lower() in IMAGE_SUFFIXES for p in paths)
    return paths if images and Path(paths[0]).is_file() else []


def found_labels(data: Any) -> npt.NDArray[Any] | None:
    """(N,) or (N, K) labels that a dataset keeps, through ``Subset``, or None."""
    if isinstance(data, Subset):
        inner = found_labels(data.dataset)
        return None if inner is None else inner[np.asarray(data.indices, np.int64)]
    found = getattr(data, "targets", None)
    tensors_ = getattr(data, "tensors", None)
    if found is None and isinstance(tensors_, tuple) and len(tensors_) == 2:
        found = tensors_[1]
    try:
        return None if found is None else np.asarray(found)
    except (ValueError, TypeError):
        return None


def look(
    dm: L.LightningDataModule, *, samples: bool = True
) -> tuple[dict[str, Looked], list[Finding]]:
    """Every split of a datamodule, and what hindered.

    Args:
        dm: The datamodule.
        samples: False takes first batches of data in memory alone.
    """
    seen: dict[str, Looked] = {}
    found: list[Finding] = []
    if not isinstance(dm, DataModule):
        dm.prepare_data()
    for split in SPLITS:
        try:
            one = _ours(dm, split) if isinstance(dm, DataModule) else _theirs(dm, split)
            if one is not None:
                seen[split] = one
                one.held = held_sizes(one.dataset)
                if samples or hasattr(one.dataset, "get_batch"):
                    one.batch = _first_batch(dm, one)
        except Exception as error:
            said = f"no {split} batch can be made: {type(error).__name__}: {error}"
            remedy = "mend what it names; first with num_workers=0"
            found.append(Finding("error", "batch-fails", said, remedy))
            continue
        if one is None and split == "train":
            remedy = "give the datamodule a train_dataloader"
            found.append(Finding("error", "no-train", "there is no train split", remedy))
    return seen, found


def _ours(dm: DataModule, split: Any) -> Looked | None:
    data = dm._dataset(split)
    return None if data is None else Looked(split, data, None, None)


def _first_batch(dm: L.LightningDataModule, one: Looked) -> Any:
    if isinstance(dm, DataModule):
        return dm.preview(one.split)  # type: ignore[arg-type]
    loader, fetched = one.loader, getattr(one.loader, "batch_sampler", None)
    if fetched is None or not hasattr(loader.dataset, "__getitem__"):
        return next(iter(loader))
    # in this process: no workers for one batch
    return loader.collate_fn([loader.dataset[i] for i in next(iter(fetched))])


def _theirs(dm: L.LightningDataModule, split: str) -> Looked | None:
    if getattr(type(dm), f"{split}_dataloader") is getattr(
        L.LightningDataModule, f"{split}_dataloader"
    ):
        return None
    dm.setup("test" if split == "test" else "fit")
    loader = getattr(dm, f"{split}_dataloader")()
    loader = loader[0] if isinstance(loader, list | tuple) and loader else loader
    if not hasattr(loader, "dataset"):
        return None
    return Looked(split, loader.dataset, loader, None)
