"""Load the outputs of a frozen model, written by ``scripts/precompute_features.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from .batches.batch import Batch
from .core.datamodule import DataModule, Split
from .core.options import DataModuleOptions
from .feature_packs.format import read_features

KEPT = ("val_split", "test_split", "split_options", "limit")  # decided when features are written


class FeaturesDataModule(DataModule):
    """Rows of features in memory, in the splits of the data they were computed from.

    A batch is one gather and needs no workers::

        features  (N, F) float32
        target    (N,) int64; (N, K) float32 for multi-label data; float32 for regression

    A linear head: ``Classifier(net="tabular_mlp", net_options={"hidden": []})``.

    Args:
        path: Folder that ``scripts/precompute_features.py`` wrote.
        expected: Any of ``data``, ``transform`` and ``weights``: digests that the features must
            have been computed from, as :func:`~datamodules.feature_packs.writer.feature_keys`
            returns them.
        **options: See :class:`~datamodules.core.options.DataModuleOptions`.

    Raises:
        FileNotFoundError: From ``setup``, if there are no features.
        ValueError: From ``setup``, if they are damaged or computed from something else.

    Example:
        >>> dm = FeaturesDataModule("photos.features", batch_size=128)
        >>> dm.hparams["batch_size"]
        128
    """

    def __init__(
        self,
        path: str | Path,
        *,
        expected: dict[str, str] | None = None,
        **options: Unpack[DataModuleOptions],
    ) -> None:
        super().__init__(**options)
        for name in KEPT:
            if self.hparams[name]:
                raise ValueError(
                    f"{name} was given, but features keep the splits of their data; leave it out"
                )
        self._parts: dict[str, tuple[Tensor, Tensor]] = {}
        self._manifest: dict[str, Any] = {}

    def read(self) -> None:
        """Read all splits into memory."""
        if self._split_options:  # set by cross-validation after construction
            raise ValueError("features keep the splits they were computed from and have no folds")
        path, expected = self.hparams["path"], self.hparams["expected"]
        self._manifest, self._parts = read_features(path, expected)
        self.task = self._manifest["task"]

    def fit(self) -> dict[str, Any]:
        """Return the classes of the data and the number of features."""
        fitted = {name: self._manifest[name] for name in ("classes", "class_counts")}
        sizes = {"num_numeric": self._parts["train"][0].shape[1], "cardinalities": []}
        known = {name: value for name, value in fitted.items() if value is not None}
        return {**known, "input_sizes": sizes}

    def dataset(self, split: Split) -> FeaturesDataset | None:
        """Return the rows of one split."""
        return FeaturesDataset(*self._parts[split]) if split in self._parts else None

    def split_fingerprint(self) -> str:
        """Return the fingerprint of the data that the features were computed from."""
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
        """Return the number of a row."""
        return f"row {index}"

    def get_batch(self, indices: np.ndarray[Any, Any], seeds: Any = None) -> Batch:
        """Return a batch: ``inputs`` (N, F) float32 and targets."""
        rows = torch.from_numpy(indices)
        return Batch(self.features[rows], self.targets[rows])
