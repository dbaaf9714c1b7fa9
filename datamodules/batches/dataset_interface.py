"""What a dataset may offer beyond ``__len__`` and ``__getitem__``, as typed protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor


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
