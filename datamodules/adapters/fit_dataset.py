"""Fit classes, input sizes and normalization on the train split of a user's dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.batches.bad_samples import ReadError
from datamodules.batches.normalize import IMAGENET_MEAN, IMAGENET_STD
from datamodules.seeding.random_state import kept_random_state
from datamodules.seeding.sample_seeds import Indices

from .dataset import WrappedDataset


def fit_classes(
    labels: Any, given: list[str] | None, rows: Indices | None, *, multilabel: bool
) -> dict[str, Any]:
    """Return the class list and the train samples of each class.

    Args:
        labels: Labels of all samples, (N,) or, if multi-label, (N, K) of 0 and 1; None: unknown.
        given: Class names in the order of their index, from the user or the dataset.
        rows: Indices of the train samples.
        multilabel: Whether a sample has several labels.

    Returns:
        ``classes``; if labels are known, ``class_counts``; if they are single labels, ``known``:
        the label of each class in the dataset.

    Raises:
        ValueError: If labels are not classes, or a label is not in train.

    Example:
        >>> fit_classes(np.array([3, 7, 7]), None, np.array([0, 1, 2]), multilabel=False)
        {'classes': ['3', '7'], 'class_counts': [1, 2], 'known': [3, 7]}
    """
    if multilabel:
        if labels is None:
            return {"classes": given}
        if labels.ndim != 2 or not np.isin(labels, (0, 1)).all():
            raise ValueError(
                "with task='multilabel' each sample has one row of 0 and 1, a column for each "
                f"class; got labels of shape {labels.shape}, such as {labels.flat[0]!r}"
            )
        names = given or [str(k) for k in range(labels.shape[1])]
        if len(names) != labels.shape[1]:
            raise ValueError(f"{len(names)} classes, labels have {labels.shape[1]} columns")
        counts = labels[rows].sum(0)
        return {"classes": names, "class_counts": [int(c) for c in counts]}
    if labels is None:
        return {"classes": given}
    if labels.ndim != 1:
        raise ValueError(
            f"labels have shape {labels.shape}, one class a sample is needed; pass "
            'task="multilabel" for several'
        )
    if np.issubdtype(labels.dtype, np.floating) and not np.all(labels == labels.round()):
        raise ValueError(
            f"labels such as {labels[labels != labels.round()][0]} are not classes; pass "
            'task="regression", or whole numbers or names'
        )
    values = labels.astype(np.int64) if np.issubdtype(labels.dtype, np.floating) else labels
    values_in_train = [value.item() for value in np.unique(values[rows])]
    names = given or [str(value) for value in values_in_train]
    known: list[Any] = values_in_train if given is None else list(given)
    if given is not None and np.issubdtype(values.dtype, np.integer):
        known = list(range(len(given)))  # labels are indices into the class list
    unknown = [value for value in np.unique(values).tolist() if value not in set(known)]
    if unknown:
        raise ValueError(
            f"label {unknown[0]!r} is not among the classes of train ({names[:10]}); add it to "
            "train or pass classes="
        )
    counts = [int(np.sum(values[rows] == label)) for label in known]
    return {"classes": names, "class_counts": counts, "known": known}


def fit_inputs(
    item: Any, mean: Sequence[float] | None, std: Sequence[float] | None
) -> dict[str, Any]:
    """Return the input sizes of a model, and the mean and std to normalize uint8 images.

    Args:
        item: Input of a train sample.
        mean: One value per channel; None: ImageNet's, or their mean for one channel.
        std: One value per channel; None: as ``mean``.

    Returns:
        ``input_sizes`` for a tensor of one or three dimensions, ``mean`` and ``std`` for images.

    Raises:
        ValueError: If an image has another number of channels than ``mean`` or ``std``.

    Example:
        >>> fit_inputs(torch.zeros(5), None, None)
        {'input_sizes': {'num_numeric': 5, 'cardinalities': []}}
    """
    if not isinstance(item, Tensor):
        return {}
    if item.ndim == 1:
        return {"input_sizes": {"num_numeric": len(item), "cardinalities": []}}
    if item.ndim != 3:
        return {}
    fitted: dict[str, Any] = {"input_sizes": {"input_shape": list(item.shape)}}
    if item.dtype == torch.uint8:
        given = (("mean", mean, IMAGENET_MEAN), ("std", std, IMAGENET_STD))
        for name, chosen, default in given:
            grey = [sum(default) / 3]
            values = list(chosen) if chosen else (grey if len(item) == 1 else list(default))
            if len(values) != len(item):
                raise ValueError(
                    f"an image has {len(item)} channels, {name} has {len(values)} values; "
                    f"convert it to RGB in load= or a transform, or pass "
                    "image_options={'mean': ..., 'std': ...}"
                )
            fitted[name] = values
    return fitted


def first_input(data: WrappedDataset) -> Any:
    """Return the input of the first train sample, or of the first that can be read.

    Raises:
        ValueError: If it cannot be made; says why.
    """
    try:
        with kept_random_state():
            return data.placeholder() if data.parts.skip else data[0]
    except ReadError as error:
        raise ValueError(f"no train sample can be read; the last is {error}") from error
    except Exception as error:
        raise ValueError(
            f"the first train sample ({data.describe(0)}) cannot be made: "
            f"{type(error).__name__}: {error}"
        ) from error
