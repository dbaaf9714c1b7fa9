"""Read what datasets of other projects keep in public attributes, by convention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from copy import copy
from pathlib import Path
from typing import Any

from datamodules.readers.folders import IMAGE_SUFFIXES

LABELS = ("targets", "labels", "_labels", "y")  # of torchvision's and users' datasets
TARGET_KEYS = ("label", "labels", "target")  # of samples that are dicts


class DatasetAttributes:
    """Attributes of a user's dataset that torchvision's and Hugging Face's datasets have, too.

    What a dataset offers to its loader is read by ``DatasetInterface``.

    Args:
        dataset: Any dataset, whose attributes are not known.

    Example:
        >>> from types import SimpleNamespace
        >>> found = DatasetAttributes(SimpleNamespace(classes=("ash", "oak"), samples="none"))
        >>> found.class_names(), found.samples, found.transform
        (['ash', 'oak'], [], None)
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def _get(self, name: str) -> Any:
        return getattr(self.dataset, name, None)

    @property
    def transform(self) -> Any:
        """The transform of the inputs, or None."""
        return self._get("transform")

    @property
    def has_transform(self) -> bool:
        """Whether there is an attribute ``transform``, None or not."""
        return hasattr(self.dataset, "transform")

    @property
    def inner(self) -> Any:
        """The dataset that this one wraps, or None."""
        return self._get("dataset")

    @property
    def members(self) -> dict[str, Any]:
        """Attributes of the instance, private ones too."""
        return self._get("__dict__") or {}

    @property
    def samples(self) -> list[Any]:
        """``samples`` of torchvision's folder datasets, (path, label) pairs, or an empty list."""
        samples = self._get("samples")
        return samples if isinstance(samples, list) else []

    @property
    def columns(self) -> Sequence[str] | None:
        """Names of the columns of a Hugging Face dataset; None if it is none."""
        names: Sequence[str] | None = self._get("column_names")
        return names

    @property
    def class_to_idx(self) -> dict[str, int] | None:
        """Index of each class, as torchvision's datasets have it, or None."""
        found = self._get("class_to_idx")
        return found if isinstance(found, dict) else None

    @property
    def root(self) -> Path | None:
        """Folder of a dataset in the manner of torchvision's ``DatasetFolder``, or None."""
        root = self._get("root")
        if not isinstance(root, str | Path) or not isinstance(self._get("samples"), list):
            return None
        return None if self.class_to_idx is None or not Path(root).is_dir() else Path(root)

    def class_names(self, target_key: str | None = None) -> list[str] | None:
        """Return the names of the classes, of a Hugging Face dataset those of its target column."""
        features, names = self._get("features"), self._get("classes")
        if isinstance(features, dict):
            key = target_key or next((k for k in TARGET_KEYS if k in features), "")
            names = DatasetAttributes(features.get(key))._get("names")
        return [str(name) for name in names] if isinstance(names, list | tuple) else None

    def per_sample(self, name: str) -> Any:
        """Return an attribute with a value for each sample, or None."""
        values = self._get(name)
        is_full = isinstance(values, Sized) and len(values) == len(self.dataset)
        return values if is_full else None

    def labels(self) -> Iterator[Any]:
        """Yield each attribute that may be the labels of all samples, the likeliest first."""
        yield from (v for v in map(self.per_sample, LABELS) if v is not None)
        samples = self.samples
        pairs = all(isinstance(sample, tuple | list) and sample for sample in samples)
        if samples and pairs and len(samples) == len(self.dataset):
            yield [sample[-1] for sample in samples]

    def image_files(self) -> list[str]:
        """Return the path of each sample's image file; empty if samples are not image files."""
        samples = self.dataset if isinstance(self.dataset, list) else self.samples
        paths = [s[0] if isinstance(s, tuple | list) and s else s for s in samples]
        if not all(isinstance(p, str) and Path(p).suffix.lower() in IMAGE_SUFFIXES for p in paths):
            return []
        return paths if paths and Path(paths[0]).is_file() else []

    def with_transform(self, transform: Any) -> Any:
        """Return a copy of the dataset with another transform of the inputs, and no other."""
        copied = copy(self.dataset)
        copied.transform = transform
        if self._get("transforms") is not None:  # torchvision's datasets may apply this one
            copied.transforms = None
        return copied
