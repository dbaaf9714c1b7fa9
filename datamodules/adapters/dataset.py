"""Wrap a user's dataset: select the rows of a split, load and transform inputs, encode targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils.data import Dataset

from datamodules.batches.bad_samples import ReadError, reading
from datamodules.batches.dataset_interface import Sample
from datamodules.batches.inspection_interface import Trace
from datamodules.batches.nested import is_named_tuple, tensors_of
from datamodules.images.cached import loaded
from datamodules.images.ram_cache import RamCache
from datamodules.images.transform_steps import run_steps
from datamodules.images.transforms import to_row

from .dataset_attributes import TARGET_KEYS
from .user_samples import (
    input_transform,
    item_sample,
    listed_files,
    raw_image,
    trace_sample,
)


class Parts:
    """Splits a sample into input and target, and transforms both.

    Args:
        input_key: Key of the input in a dict; None: all keys but the target's.
        target_key: Key of the target; None: ``label``, ``labels`` or ``target``.
        load: Loads the input of a sample, such as a path.
        transform: Applied to the input.
        encode: Applied to the target; None: it is unchanged.
        with_target: Whether the target is returned.
        skip: Whether samples that cannot be loaded are skipped.

    Example:
        >>> Parts(input_key="text", encode=Encode({"spam": 1}))({"text": "win", "label": "spam"})
        ('win', 1)
    """

    def __init__(
        self,
        *,
        input_key: str | None = None,
        target_key: str | None = None,
        load: Callable[[Any], Any] | None = None,
        transform: Callable[[Any], Any] | None = None,
        encode: Callable[[Any], Any] | None = None,
        with_target: bool = True,
        skip: bool = False,
    ) -> None:
        self.skip = skip
        self.input_key, self.target_key = input_key, target_key
        self.load, self.transform, self.encode = load, transform, encode
        self.with_target = with_target

    def __call__(self, sample: Any, kept: Callable[..., Any] | None = None) -> Any:
        """Return ``(input, target)`` or the input; ``kept(load, item)`` replaces ``load(item)``."""
        item, target = self.apart(sample)
        if self.load is not None:
            item = self.load(item) if kept is None else kept(self.load, item)
        item = item if self.transform is None else self.transform(item)
        item = to_row(item) if not isinstance(item, list | tuple) else item
        if not self.with_target or target is NOTHING:
            return item
        return item, target if self.encode is None else self.encode(target)

    def apart(self, sample: Any) -> tuple[Any, Any]:
        """Return input and target of a sample, unchanged; ``NOTHING`` if it has no target."""
        return self._fields(sample) if isinstance(sample, Mapping) else self._pair(sample)

    def _fields(self, sample: Mapping[str, Any]) -> tuple[Any, Any]:
        key = self.target_key or next((k for k in TARGET_KEYS if k in sample), None)
        if self.target_key is not None and self.target_key not in sample and self.with_target:
            raise ValueError(f"a sample has no field {key!r}; it has {', '.join(sample)}")
        target = NOTHING if key is None else sample.get(key, NOTHING)
        if self.input_key is None:
            return {name: value for name, value in sample.items() if name != key}, target
        if self.input_key not in sample:
            raise ValueError(
                f"a sample has no field {self.input_key!r}; it has {', '.join(sample)}"
            )
        return sample[self.input_key], target

    def _pair(self, sample: Any) -> tuple[Any, Any]:
        if isinstance(sample, list | tuple) and not is_named_tuple(sample):
            if len(sample) == 2:
                return sample[0], sample[1]
            if len(sample) == 1:  # TensorDataset of inputs alone
                return sample[0], NOTHING
            if self.with_target:
                raise ValueError(
                    f"a sample has {len(sample)} parts; return (inputs, target) or a dict"
                )
        return sample, NOTHING


NOTHING: Any = type("Nothing", (), {})()


class Encode:
    """Maps a label to its class index; pickles, unlike a closure.

    Args:
        index: Index of each label.
    """

    def __init__(self, index: Mapping[Any, int]) -> None:
        self.index: dict[Any, int] = dict(index)

    def __call__(self, label: Any) -> int:
        """Return the class index of a label."""
        key: Any = label.item() if isinstance(label, Tensor | np.generic) else label
        if key not in self.index:
            raise ValueError(
                f"label {key!r} is not in the class list {list(self.index)[:10]}; pass classes= "
                "or fix the label"
            )
        return int(self.index[key])


class WrappedDataset(Dataset[Any]):
    """Some rows of a map-style dataset.

    Args:
        dataset: The user's dataset.
        rows: (M,) int64, indices of its samples, in order.
        parts: Splits a sample into input and target, and transforms it.
        labels: (M,) encoded targets that replace those of the samples.
        targets: (M,) int64 class indices for sampling by class; None: unknown.
        cache: Cache of loaded inputs, and the name of the split in it.

    Example:
        >>> pairs = [(0.5, "no"), (1.5, "yes"), (2.5, "yes")]
        >>> parts = Parts(encode=Encode({"no": 0, "yes": 1}))
        >>> train = WrappedDataset(pairs, np.array([2, 0]), parts)
        >>> train[0], train.describe(1)
        ((2.5, 1), 'row 0')
    """

    def __init__(
        self,
        dataset: Any,
        rows: npt.NDArray[np.int64],
        parts: Parts,
        *,
        labels: Sequence[Any] | None = None,
        targets: npt.NDArray[np.int64] | None = None,
        cache: tuple[RamCache, str] | None = None,
    ) -> None:
        self.dataset, self.rows, self.parts, self.labels = dataset, rows, parts, labels
        self.targets, self.cache = targets, cache

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        row = int(self.rows[index])
        kept = None
        if self.cache is not None:
            cache, part = self.cache
            kept = partial(loaded, cache=cache, part=part, number=row)
        if self.parts.skip:
            name = partial(self.describe, index)
            with reading(name):
                sample = self.dataset[row]
            sample = self.parts(sample, partial(_read, kept=kept, name=name))
        else:
            sample = self.parts(self.dataset[row], kept)
        return sample if self.labels is None else (sample, self.labels[index])

    def placeholder(self) -> Any:
        """Return a sample that can be read, for the shape of a batch without samples.

        Raises:
            ReadError: If no sample can be read.
        """
        for index in range(len(self)):
            try:
                return self[index]
            except ReadError as error:
                last = error
        raise last

    def describe(self, index: int) -> str:
        """Return the row in the user's dataset, and the path if the sample is one."""
        row = int(self.rows[index])
        if isinstance(self.dataset, list | tuple):
            item = self.dataset[row]
            first = item[0] if isinstance(item, list | tuple) and item else item
            if isinstance(first, str):
                return f"row {row}, {first}"
        return f"row {row}"

    def sample(self, index: int) -> Sample:
        """Return the input as loaded, before the transform."""
        row, name = int(self.rows[index]), self.describe(index)
        if self.parts.transform is None and (image := raw_image(self.dataset, row)) is not None:
            return Sample(name, image=image)
        bare = copy(self.parts)
        bare.transform, bare.with_target = None, False
        return item_sample(bare(self.dataset[row]), name)

    def files(self) -> list[str]:
        """Return the path of each image file; empty if the user's dataset does not list any."""
        paths = listed_files(self.dataset)
        return [paths[int(row)] for row in self.rows] if paths else []

    def contents(self) -> Iterator[bytes]:
        """Yield the transformed input of each sample."""
        for index in range(len(self)):
            sample = self[index]
            item = sample[0] if isinstance(sample, tuple | list) and sample else sample
            yield b"".join(t.detach().numpy().tobytes() for t in tensors_of(item))

    @property
    def input_transform(self) -> Any:
        """The transform of each input, else that of the user's dataset, or None."""
        return self.parts.transform or input_transform(self.dataset)

    def with_transform_of(self, other: WrappedDataset) -> WrappedDataset:
        """Return these rows with the transform of another dataset."""
        copied = copy(self)
        copied.parts = copy(self.parts)
        copied.parts.transform = other.parts.transform
        return copied

    def trace(self, index: int, *, batch_size: int = 1) -> Trace:
        """Yield the user's sample, the loaded input, and the input after each transform step."""
        sample: Any = None
        for step, value in trace_sample(self.dataset, int(self.rows[index])):
            sample = value
            yield step, value
        item, _ = self.parts.apart(sample)
        if self.parts.load is not None:
            item = self.parts.load(item)
            yield "load", item
        item = yield from run_steps(self.parts.transform, item)
        yield "input", item if isinstance(item, list | tuple) else to_row(item)


def _read(
    load: Callable[[Any], Any],
    item: Any,
    *,
    kept: Callable[..., Any] | None,
    name: Callable[[], str],
) -> Any:
    with reading(name):
        return load(item) if kept is None else kept(load, item)
