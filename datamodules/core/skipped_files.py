"""Samples that one datamodule left out because they cannot be read, by split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from datamodules.batches.bad_samples import SkippedFiles
from datamodules.batches.dataset_interface import DatasetInterface
from datamodules.splits.split_samples import SPLITS, Split


class SkippedBySplit:
    """Records of the samples that were left out.

    Example:
        >>> skipped = SkippedBySplit()
        >>> skipped.reasons(), skipped.rows("train")
        ({}, [])
    """

    def __init__(self) -> None:
        self._records: dict[str, SkippedFiles] = {}

    def record(
        self, split: Split, data: Any, *, max_errors: int, classes: Sequence[str], noun: str
    ) -> SkippedFiles:
        """Return the record of a split; a new one if its dataset is another object.

        Args:
            split: Name of the split.
            data: Its dataset.
            max_errors: More bad samples than this are an error.
            classes: Class names, for messages about train.
            noun: What a sample is called in messages.
        """
        record = self._records.get(split)
        if record is None or record.source is not data:
            targets = DatasetInterface(data).targets if split == "train" else None
            record = self._records[split] = SkippedFiles(
                split,
                data,
                max_errors=max_errors,
                targets=None if targets is None else torch.as_tensor(targets),
                classes=classes,
                noun=noun,
            )
        return record

    def reasons(self) -> dict[str, str]:
        """Return the reason of each sample that this process left out so far, by its name."""
        records = [self._records[split] for split in SPLITS if split in self._records]
        return {bad.path: bad.reason for record in records for bad in record.found.values()}

    def rows(self, split: str) -> list[int]:
        """Return the positions in the split's dataset that this process left out so far."""
        return sorted(self._records[split].found) if split in self._records else []
