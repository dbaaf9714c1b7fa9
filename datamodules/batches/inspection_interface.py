"""The interface between datasets and the reports and figures that inspect them, as protocols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from .dataset_interface import DescribesSamples


class Summary(NamedTuple):
    """One value in words, for the trace of a sample.

    Attributes:
        size: Such as ``3 x 32 x 32`` or ``12,345 bytes``.
        dtype: Such as ``uint8``.
        values: The range of the values, or the content itself if it is short.
    """

    size: str
    dtype: str = ""
    values: str = ""


Trace = Iterator[tuple[str, Any]]
"""Name of a step and the value after it, or a :class:`Summary` of that value."""


@runtime_checkable
class InspectsSamples(DescribesSamples, Protocol):
    """A dataset that reports and figures can inspect without knowing its class.

    Datasets of other projects need none of this: `datamodules.adapters.user_samples` finds what
    their public attributes show.
    """

    def files(self) -> list[str]:
        """Return the path of each sample's image file; empty if samples are not files."""
        ...

    def contents(self) -> Iterator[bytes]:
        """Yield the content of each sample without its target, to find equal samples.

        Samples that have a path in :meth:`files` are compared by that file instead.
        """
        ...

    def trace(self, index: int, *, batch_size: int = 1) -> Trace:
        """Yield each step of a sample, from the source to the model's input."""
        ...

    @property
    def input_transform(self) -> Any:
        """The transform of the inputs, or None."""
        ...

    def with_transform_of(self, other: Any) -> Self:
        """Return a copy that transforms its samples as ``other``, of the same class, does."""
        ...


class ColumnValues(NamedTuple):
    """The cells of one column of a split.

    Attributes:
        name: Name of the column.
        numbers: (M,) float64 without missing values; None if the column is categorical.
        words: Count of each distinct value of a categorical column, most frequent first.
        is_date: Whether the numbers are days since 1970-01-01.
    """

    name: str
    numbers: npt.NDArray[np.float64] | None
    words: Mapping[str, int]
    is_date: bool = False


@runtime_checkable
class HasColumns(Protocol):
    """A dataset of table rows that shows the cells of its columns, as written."""

    def column_values(self) -> list[ColumnValues]:
        """Return the cells of each feature column."""
        ...

    def missing_shares(self) -> dict[str, float]:
        """Return the share of missing cells of each column."""
        ...
