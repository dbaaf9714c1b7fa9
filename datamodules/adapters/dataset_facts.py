"""What is learnt from the train part of a user's own dataset: its classes and its inputs."""

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
    found: Any, kept: list[str] | None, rows: Indices | None, *, multilabel: bool
) -> dict[str, Any]:
    """Class list and counts.

    Args:
        found: Labels of all samples, (N,) or with ``several`` (N, K) of 0 and 1; None: unknown.
        kept: Class names in the order of their index, where the user or the dataset gives them.
        rows: Positions of the train samples.
        multilabel: Whether a sample has several labels.

    Returns:
        ``classes``, and where labels are known ``class_counts`` and, of single labels, ``known``:
        the label of each class as the dataset writes it.

    Raises:
        ValueError: If labels are no classes, or train lacks one that another split has.
    """
    if multilabel:
        if found is None:
            return {"classes": kept}
        if found.ndim != 2 or not np.isin(found, (0, 1)).all():
            raise ValueError(
                "with task='multilabel' each sample has one row of 0 and 1, a column for each "
                f"class; found labels of shape {found.shape}, such as {found.flat[0]!r}"
            )
        names = kept or [str(k) for k in range(found.shape[1])]
        if len(names) != found.shape[1]:
            raise ValueError(f"{len(names)} classes, labels have {found.shape[1]} columns")
        counts = found[rows].sum(0)
        return {"classes": names, "class_counts": [int(c) for c in counts]}
    if found is None:
        return {"classes": kept}
    if found.ndim != 1:
        raise ValueError(
            f"labels have shape {found.shape}, one class a sample is needed; pass "
            'task="multilabel" for several'
        )
    if np.issubdtype(found.dtype, np.floating) and not np.all(found == found.round()):
        raise ValueError(
            f"labels such as {found[found != found.round()][0]} are no classes; pass "
            'task="regression", or whole numbers or names'
        )
    values = found.astype(np.int64) if np.issubdtype(found.dtype, np.floating) else found
    there = [value.item() for value in np.unique(values[rows])]
    names = kept or [str(value) for value in there]
    known: list[Any] = there if kept is None else list(kept)
    if kept is not None and np.issubdtype(values.dtype, np.integer):
        known = list(range(len(kept)))  # labels are indices into the class list
    strange = [value for value in np.unique(values).tolist() if value not in set(known)]
    if strange:
        raise ValueError(
            f"label {strange[0]!r} is not among the classes of train ({names[:10]}); add it to "
            "train or give classes="
        )
    counts = [int(np.sum(values[rows] == label)) for label in known]
    return {"classes": names, "class_counts": counts, "known": known}


def fit_inputs(
    item: Any, mean: Sequence[float] | None, std: Sequence[float] | None
) -> dict[str, Any]:
    """What sizes a net, and the statistics that a uint8 image is normalised by.

    Args:
        item: Input of a train sample.
        mean: One a channel; None: ImageNet's, or their mean for one channel.
        std: As ``mean``.

    Returns:
        ``input_sizes`` for a tensor of one or three dimensions, ``mean`` and ``std`` for images.

    Raises:
        ValueError: If an image has another number of channels.
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
            return data.blank() if data.parts.skip else data[0]
    except ReadError as error:
        raise ValueError(f"no train sample can be read; the last is {error}") from error
    except Exception as error:
        raise ValueError(
            f"the first train sample ({data.describe(0)}) cannot be made: "
            f"{type(error).__name__}: {error}"
        ) from error
