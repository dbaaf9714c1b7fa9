"""Features of a frozen net, made once by ``scripts/precompute_features.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from .batches.batch import Batch
from .core.datamodule import DataModule, Split
from .feature_packs.format import read_features

KEPT = ("val_split", "test_split", "split_options", "limit")  # what features decided when made


class FeaturesDataModule(DataModule):
    """Rows of features in memory, in the splits of the data they were made from.

    A batch is one gather and takes no workers::

        features  (N, F) float32
        target    (N,) int64, (N, K) float32 with several labels, float32 for regression

    A linear head: ``Classifier(net="tabular_mlp", net_options={"hidden": []})``.

    Args:
        path: Folder that ``scripts/precompute_features.py`` wrote.
        expected: Any of ``data``, ``transform`` and ``weights``: digests that the features must
            have been made from, as :func:`~datamodules.feature_packs.writer.feature_keys`
            gives them.
        **options: See :class:`~datamodules.core.datamodule.DataModule`.

    Raises:
        FileNotFoundError: From ``setup``, if there are no features.
        ValueError: From ``setup``, if they are damaged or made from something else.
    """

    def __init__(
        self, path: str | Path, *, expected: dict[str, str] | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        for name in KEPT:
            if self.hparams[name]:
                raise ValueError(
                    f"{name} was given, but features keep the splits they were made from; leave "
                    f"{name} out"
                )
        self._parts: dict[str, tuple[Tensor, Tensor]] = {}
        self._manifest: dict[str, Any] = {}

    def read(self) -> None:
        """Read all splits into memory."""
        if self._split_options:  # part_as gave them, for a fit a fold
            raise ValueError("features keep the splits they were made from and have no folds")
        path, expected = self.hparams["path"], self.hparams["expected"]
        self._manifest, self._parts = read_features(path, expected)
        self.task = self._manifest["task"]

    def fit(self) -> dict[str, Any]:
        """Classes as the data had them, and the number of features."""
        fitted = {name: self._manifest[name] for name in ("classes", "class_counts")}
        sizes = {"num_numeric": self._parts["train"][0].shape[1], "cardinalities": []}
        known = {name: value for name, value in fitted.items() if value is not None}
        return {**known, "input_sizes": sizes}

    def dataset(self, split: Split) -> FeaturesDataset | None:
        """Rows of one split."""
        return FeaturesDataset(*self._parts[split]) if split in self._parts else None

    def split_fingerprint(self) -> str:
        """That of the data the features were made from."""
        return str(self._manifest["keys"]["data"])


class FeaturesDataset(Dataset[Any]):
    """Features and targets in memory.

    Args:
        features: (N, F) float32.
        targets: N targets.
    """

    is_random = False

    def __init__(self, features: Tensor, targets: Tensor) -> None:
        self.features, self.targets = features, targets

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        target = self.targets[index]
        whole = target.dtype == torch.int64 and target.ndim == 0
        return self.features[index], int(target) if whole else target

    def describe(self, index: int) -> str:
        """Number of a row."""
        return f"row {index}"

    def get_batch(self, indices: np.ndarray[Any, Any], seeds: Any = None) -> Batch:
        """One batch: ``inputs`` (N, F) float32 and its targets."""
        rows = torch.from_numpy(indices)
        return Batch(self.features[rows], self.targets[rows])
