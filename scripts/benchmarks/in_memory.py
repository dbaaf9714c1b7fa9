"""What the benchmarks of data in memory share: a datamodule, random batches, the copy alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from datamodules import DataModule


class InMemory(DataModule):
    """Serves one dataset as train.

    Args:
        rows: The dataset.
        **options: Of :class:`DataModule`.
    """

    def __init__(self, rows: Any, **options: Any) -> None:
        super().__init__(num_workers=0, **options)
        self.rows = rows

    def dataset(self, split: str) -> Any:
        """Return the dataset, for train."""
        return self.rows if split == "train" else None


def random_batches(count: int, size: int) -> Iterator[Tensor]:
    """Yield the indices of shuffled batches."""
    order = torch.randperm(count)
    return (order[start : start + size] for start in range(0, count, size))


def gather(columns: Sequence[Tensor], size: int) -> int:
    """Copy the rows of each batch and nothing else; return the number of rows."""
    for rows in random_batches(len(columns[0]), size):
        for column in columns:
            column.index_select(0, rows)
    return len(columns[0])
