"""The interface between datasets and loaders, as typed protocols.

Every map-style dataset with ``__len__`` and ``__getitem__`` works. A dataset that offers more gets
more: batches in one call, sampling by class or by length, worker threads, better messages. Each
protocol below is optional and independent of the others; there is nothing to inherit from or to
register. A dataset that holds its data in memory usually needs three members:

Example:
    >>> import numpy as np
    >>> import torch
    >>> from torch.utils.data import Dataset
    >>> from datamodules import Batch, DataModule
    >>> class Points(Dataset):
    ...     is_random = False  # no sample uses random numbers, so no seeds are generated
    ...     def __init__(self, x, targets):
    ...         self.x, self.targets = x, targets
    ...     def __len__(self):
    ...         return len(self.x)
    ...     def __getitem__(self, index):
    ...         return self.x[index], int(self.targets[index])
    ...     def get_batch(self, indices, seeds=None):  # one gather in place of N samples
    ...         rows = torch.from_numpy(indices)
    ...         return Batch(self.x[rows], self.targets[rows])
    >>> class PointsDataModule(DataModule):
    ...     def dataset(self, split):
    ...         return Points(torch.rand(8, 2), torch.arange(8) % 2) if split == "train" else None
    >>> dm = PointsDataModule(batch_size=4, sampler="balanced")  # "balanced" reads ``targets``
    >>> [tuple(batch.inputs.shape) for batch in dm.train_dataloader()]
    [(4, 2), (4, 2)]

Loaders ask a dataset once, by :class:`DatasetInterface`; no other file looks up these names.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
from torch import Tensor

from .normalize import Normalizer

Indices = npt.NDArray[np.int64]


class Sample(NamedTuple):
    """One sample as its source has it, before any transform; for figures and reports.

    Attributes:
        name: File name, or the row or line of a file.
        image: (C, H, W) uint8, or None.
        text: The text as written, or None.
        cells: Pairs of column name and cell as written; empty for images and texts.
    """

    name: str
    image: Tensor | None = None
    text: str | None = None
    cells: Sequence[tuple[str, str]] = ()


@runtime_checkable
class DescribesSamples(Protocol):
    """A dataset that shows a sample to a person."""

    def describe(self, index: int) -> str:
        """Return the name of a sample for messages: a path, a row, a line."""
        ...

    def sample(self, index: int) -> Sample:
        """Return a sample as its source has it."""
        ...


class NamesSamples(Protocol):
    """A dataset that names its samples in error messages."""

    def describe(self, index: int) -> str:
        """Return the name of a sample for messages: a path, a row, a line."""
        ...


class FetchesBatches(Protocol):
    """A dataset that returns a whole batch in one call.

    Its loader uses no workers by default and no collate function. Set the attribute ``is_random =
    False`` if no sample uses random numbers: then no seeds are generated.
    """

    def get_batch(self, indices: Indices, seeds: npt.NDArray[np.uint64] | None) -> Any:
        """Return the batch of the samples ``indices``.

        Args:
            indices: (N,) int64 positions in the dataset.
            seeds: (N,) uint64 below 2^32, one seed for the random numbers of each sample; None for
                prediction, and if ``is_random`` is False.
        """
        ...


class HasTargets(Protocol):
    """A dataset whose targets are known without reading a sample; for sampling by class."""

    targets: Any
    """(N,) class indices, or (N, K) for multi-label."""


class HasLengths(Protocol):
    """A dataset whose sample lengths are known without reading a sample; for length buckets."""

    def lengths(self) -> Indices:
        """Return the (N,) number of tokens of each sample; a plain attribute works, too."""
        ...


class PadsToWidths(Protocol):
    """A dataset that pads its batches to one of a few widths."""

    widths: Indices | None
    """Widths a batch may have in tokens, ascending; None: that of its longest sample."""


class RunsInThreads(Protocol):
    """A dataset that worker threads may read."""

    def thread_unsafe_step(self) -> str | None:
        """Return the step that may not run in threads, or None if every step may.

        A step is safe if it uses no random numbers but those of torch's default generator.
        """
        ...


class SkipsBadSamples(Protocol):
    """A dataset whose unreadable samples can be left out (``on_error="skip"``)."""

    def describe(self, index: int) -> str:
        """Return the path of a sample as its errors name it."""
        ...

    def placeholder(self) -> Any:
        """Return a sample of the usual shape, used for the shape of an empty batch."""
        ...


@runtime_checkable
class ShrinksForWorkers(Protocol):
    """A dataset with parts that a worker process does not need."""

    def for_workers(self) -> Any:
        """Return the dataset to send to a spawned worker process."""
        ...


class DefersNormalization(Protocol):
    """A dataset that leaves the normalization of its images to the whole batch."""

    normalizer: Normalizer | None
    """Normalizes a batch of :meth:`unnormalized` samples; None if the transform does it."""

    @property
    def uses_thread_rng(self) -> bool:
        """Whether all random numbers come from the thread's own generator without a torch mode."""
        ...

    def unnormalized(self, index: int, seed: int | None = None) -> Any:
        """Return a sample before normalization.

        Args:
            index: Position in the dataset.
            seed: Seed of the sample's random numbers; None: leave the generators as they are.
        """
        ...

    def check_unchanged(self) -> None:
        """Raise RuntimeError if the transform was changed in place since it was analyzed."""
        ...


class FollowsEpochs(Protocol):
    """An iterable dataset that wants to know the epoch, as Hugging Face's streams do."""

    def set_epoch(self, epoch: int) -> None:
        """Receive the number of the epoch before it is iterated."""
        ...


class DatasetInterface:
    """What one dataset offers to its loader.

    Args:
        dataset: Any dataset.

    Attributes:
        dataset: The dataset itself.
        is_map_style: Whether it has ``__len__`` and ``__getitem__``.
        batches: The dataset if it returns whole batches, else None.
        names: The dataset if it names its samples, else None.
        threads: The dataset if it says whether threads may read it, else None.
        deferred: The dataset if it defers normalization, else None.
        epochs: The dataset if it follows epochs, else None.

    Example:
        >>> plain = DatasetInterface([(0.5, 1), (0.25, 0)])
        >>> plain.is_map_style, plain.batches, plain.targets, plain.name(1)
        (True, None, None, 'sample 1')
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.is_map_style = isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")
        self.batches = cast(FetchesBatches | None, self._if("get_batch"))
        self.names = cast(NamesSamples | None, self._if("describe"))
        self.threads = cast(RunsInThreads | None, self._if("thread_unsafe_step"))
        self.epochs = cast(FollowsEpochs | None, self._if("set_epoch"))
        # of the class: a wrapper that forwards attributes has a __getitem__ of its own
        deferred = hasattr(type(dataset), "unnormalized")
        self.deferred = cast(DefersNormalization, dataset) if deferred else None

    def _get(self, name: str) -> Any:
        return getattr(self.dataset, name, None)

    def _if(self, name: str) -> Any:
        return None if self._get(name) is None else self.dataset

    @property
    def is_random(self) -> bool:
        """Whether samples use random numbers; False is believed only of whole batches."""
        # what the word means for a user's own dataset of single samples is not known
        return self.batches is None or self._get("is_random") is not False

    @property
    def targets(self) -> Any:
        """``targets`` of the dataset, or None."""
        return self._get("targets")

    @property
    def lengths(self) -> Any:
        """(N,) lengths of the samples, or None."""
        lengths = self._get("lengths")
        return lengths() if callable(lengths) else lengths

    @property
    def widths(self) -> Indices | None:
        """Widths that batches are padded to, or None."""
        widths: Indices | None = self._get("widths")
        return widths

    @property
    def normalizer(self) -> Normalizer | None:
        """Normalizer that the dataset's transform asks for, or None."""
        own = self._get("normalizer")
        return own if isinstance(own, Normalizer) else None

    @property
    def skips(self) -> SkipsBadSamples:
        """The dataset, as one whose samples may be left out."""
        return cast(SkipsBadSamples, self.dataset)

    def thread_unsafe_step(self) -> str | None:
        """Return what is not known to be thread-safe: the dataset, a step, or None."""
        if self.threads is None:
            return type(self.dataset).__name__
        return self.threads.thread_unsafe_step()

    def name(self, index: int) -> str:
        """Return the name of a sample for messages: its number, and its file if it has one."""
        name = "" if self.names is None else self.names.describe(index)
        return f"sample {index} ({name})" if name else f"sample {index}"
