"""Find the labels and class names of a dataset without opening a sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from .dataset_attributes import TARGET_KEYS, DatasetAttributes

Labels = npt.NDArray[Any]


def find_labels(dataset: Any, target_key: str | None = None) -> Labels | None:
    """Return the label of each sample, (N,) or (N, K); None if the dataset has no list of labels.

    Searches ``Subset`` (its own rows only), ``ConcatDataset``, lists of pairs, ``TensorDataset``,
    the attributes of torchvision's datasets, and the target column of a Hugging Face dataset.

    Example:
        >>> find_labels(Subset([("a.png", 0), ("b.png", 1)], [1])).tolist()
        [1]
    """
    if isinstance(dataset, Subset):
        labels = find_labels(dataset.dataset, target_key)
        rows = np.asarray(dataset.indices, np.int64)
        if labels is not None and len(rows) and not rows.max() < len(labels):
            raise ValueError(
                f"a Subset has index {rows.max()}, its dataset has {len(labels)} samples"
            )
        return None if labels is None else labels[rows]
    if isinstance(dataset, ConcatDataset):
        parts = [find_labels(part, target_key) for part in dataset.datasets]
        known = [part for part in parts if part is not None]
        return np.concatenate(known) if len(known) == len(parts) else None
    if isinstance(dataset, TensorDataset):
        return as_array(dataset.tensors[-1]) if len(dataset.tensors) > 1 else None
    if isinstance(dataset, list | tuple):
        pairs = all(isinstance(item, tuple | list) and len(item) == 2 for item in dataset)
        return as_array([item[1] for item in dataset]) if pairs and dataset else None
    attributes = DatasetAttributes(dataset)
    columns = attributes.columns
    if columns is not None:  # Hugging Face: a column is read without the other columns
        key = target_key or next((k for k in TARGET_KEYS if k in columns), None)
        return as_array(list(dataset[key])) if key in columns else None
    labels = next(attributes.labels(), None)
    return None if labels is None else as_array(labels)


def find_classes(dataset: Any, target_key: str | None = None) -> list[str] | None:
    """Return the class names of a dataset, in the order of their index."""
    if isinstance(dataset, Subset):
        return find_classes(dataset.dataset, target_key)
    if isinstance(dataset, ConcatDataset):
        found = [find_classes(part, target_key) for part in dataset.datasets]
        return found[0] if all(names == found[0] for names in found) else None
    return DatasetAttributes(dataset).class_names(target_key)


def column_of(dataset: Any, name: str) -> Any:
    """Return the values (N,) of a column: of a Hugging Face dataset, of dicts, or an attribute.

    Raises:
        ValueError: If the dataset has no such column with a value for each sample.
    """
    if isinstance(dataset, Subset):
        return np.asarray(column_of(dataset.dataset, name))[np.asarray(dataset.indices, np.int64)]
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([np.asarray(column_of(part, name)) for part in dataset.datasets])
    attributes = DatasetAttributes(dataset)
    if name in (attributes.columns or ()):
        return list(dataset[name])
    dicts = isinstance(dataset, list | tuple) and all(isinstance(s, dict) for s in dataset)
    if dicts and all(name in sample for sample in dataset):
        return [sample[name] for sample in dataset]
    if (values := attributes.per_sample(name)) is not None:
        return values
    raise ValueError(
        f"the dataset has no column or attribute {name!r} with a value for each sample; pass one "
        "value per sample in split_options"
    )


def as_array(labels: Sequence[Any] | Tensor) -> Labels | None:
    """Convert labels (N,) or (N, K) to an array; return None if they are ragged."""
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu()
        found = (labels.float() if labels.dtype == torch.bfloat16 else labels).numpy()
    else:
        try:
            found = np.asarray(labels)
        except ValueError:  # ragged
            return None
    if found.dtype == object or found.ndim not in (1, 2):
        return None  # ragged: lists of boxes or the like
    return found
