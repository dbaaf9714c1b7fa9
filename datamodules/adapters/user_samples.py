"""Inspect datasets of other projects: the raw sample, its files and the steps of its transform."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Subset

from datamodules.batches.dataset_interface import DatasetInterface, DescribesSamples, Sample
from datamodules.batches.inspection_interface import InspectsSamples, Summary, Trace
from datamodules.batches.nested import is_named_tuple, tensors_of
from datamodules.images.transform_steps import as_pixels, describe_file, run_steps
from datamodules.seeding.random_state import kept_random_state, own_generators, seed_own

from .dataset_attributes import DatasetAttributes
from .find_labels import find_labels

MOST_CELLS = 24


def raw_sample(data: Any, index: int, name: str = "") -> Sample:
    """Return a sample of any map-style dataset before its transform, as far as that is possible.

    Args:
        data: The dataset; ``Subset`` is looked through.
        index: Position of the sample.
        name: Name of the sample, if the dataset does not name it.
    """
    data, index = below_subsets(data, index)
    if isinstance(data, DescribesSamples):
        found = data.sample(index)
        return found._replace(name=name) if name else found
    image = raw_image(data, index)
    if image is not None:
        return Sample(name, image=image)
    sample = data[index]
    return item_sample(sample[0] if is_pair(sample) else sample, name)


def item_sample(item: Any, name: str) -> Sample:
    """Return the sample that an input shows: an image, a text, or its first 24 numbers."""
    if isinstance(item, str):
        return Sample(name, text=item)
    image = as_pixels(item)
    if image is not None:
        return Sample(name, image=image)
    parts = item.items() if isinstance(item, Mapping) else [("", item)]
    cells = [
        (f"{key}[{place}]" if value.numel() > 1 else str(key), f"{number:.5g}")
        for key, part in parts
        for value in tensors_of(part)
        for place, number in enumerate(value.flatten()[:MOST_CELLS].tolist())
    ]
    return Sample(name, cells=cells[:MOST_CELLS])


def raw_image(data: Any, index: int) -> Tensor | None:
    """Return the (C, H, W) uint8 image of a sample before any transform; None if unknown."""
    data, index = below_subsets(data, index)
    if isinstance(data, DescribesSamples):
        return data.sample(index).image
    attributes = DatasetAttributes(data)
    if not attributes.has_transform:
        return None
    try:
        sample = attributes.with_transform(None)[index]
    except Exception:  # the dataset cannot do without its transform
        return None
    return as_pixels(sample[0] if is_pair(sample) else sample)


def below_subsets(data: Any, index: int = 0) -> tuple[Any, int]:
    """Return the dataset below ``Subset`` and the position of a sample there."""
    while isinstance(data, Subset):
        data, index = data.dataset, int(data.indices[index])
    return data, index


def listed_files(data: Any) -> list[str]:
    """Return the paths of the image files behind a dataset, one per sample; empty if unknown."""
    if isinstance(data, InspectsSamples):
        return data.files()
    if isinstance(data, Subset):
        inner = listed_files(data.dataset)
        return [inner[int(row)] for row in data.indices] if inner else []
    return DatasetAttributes(data).image_files()


def known_targets(data: Any) -> npt.NDArray[Any] | None:
    """Return the (N,) or (N, K) targets that a dataset has without making samples, or None."""
    if isinstance(data, Subset):
        inner = known_targets(data.dataset)
        return None if inner is None else inner[np.asarray(data.indices, np.int64)]
    if isinstance(data, InspectsSamples):
        targets = DatasetInterface(data).targets
        return None if targets is None else np.asarray(targets)
    try:
        return find_labels(data)
    except (ValueError, TypeError):  # not labels, though they are called so
        return None


def input_transform(data: Any) -> Any:
    """Return the transform of a dataset's inputs, or None."""
    data, _ = below_subsets(data)
    if isinstance(data, InspectsSamples):
        return data.input_transform
    return DatasetAttributes(data).transform


def with_transform_of(data: Any, other: Any) -> Any:
    """Return a copy of a dataset with the transform of another; itself if the classes differ."""
    if type(data) is not type(other):
        return data
    if isinstance(data, InspectsSamples):
        return data.with_transform_of(other)
    if not DatasetAttributes(data).has_transform:
        return data
    copied = copy(data)
    copied.transform = other.transform
    return copied


def trace_sample(data: Any, index: int, seed: int = 0, *, batch_size: int = 1) -> Trace:
    """Yield the steps of a sample of any dataset.

    A dataset that transforms inside ``__getitem__`` is asked without its transform first. The steps
    are shown only if they make the same sample.

    Args:
        data: Map-style; ``Subset`` is looked through.
        index: Position of the sample.
        seed: Seed of the random generators that the dataset keeps for itself.
        batch_size: Samples that are batched together, for the width of padded texts.
    """
    data, index = below_subsets(data, index)
    if isinstance(data, InspectsSamples):
        yield from data.trace(index, batch_size=batch_size)
        return
    attributes = DatasetAttributes(data)
    samples = attributes.samples
    if samples and isinstance(samples[0], tuple):
        path = samples[index][0]  # as in torchvision's folder datasets
        if isinstance(path, str) and Path(path).is_file():
            yield "file", Summary(describe_file(Path(path)))
    if callable(attributes.transform):
        yield from _inner_steps(data, index, attributes.transform, seed)
    yield "dataset", data[index]


def _inner_steps(data: Any, index: int, transform: Callable[[Any], Any], seed: int) -> Trace:
    """Yield the steps within ``data[index]``, if one by one they make the same sample."""
    bare = DatasetAttributes(data).with_transform(_unchanged)
    sample = None
    with kept_random_state(), suppress(Exception):
        sample = data[index]
    seed_own(own_generators(data), seed)
    with kept_random_state():
        try:
            raw = bare[index]
            item = raw[0] if isinstance(raw, tuple | list) and raw else raw
            steps = [("read", item), *run_steps(transform, item)] if sample is not None else []
        except Exception:  # the dataset does more than pass on what it read
            return
        if sample is None:  # run the steps until the failing one raises
            yield "read", item
            yield from run_steps(transform, item)
            return
    seed_own(own_generators(data), seed)
    made, last = list(tensors_of(sample)), list(tensors_of(steps[-1][1]))
    if made and last and made[0].shape == last[0].shape and torch.equal(made[0], last[0]):
        yield from steps


def _unchanged(value: Any) -> Any:
    return value


def is_pair(sample: Any) -> bool:
    """Return whether a sample is ``(input, target, ...)`` rather than a named tuple of inputs."""
    return isinstance(sample, tuple | list) and len(sample) > 1 and not is_named_tuple(sample)
