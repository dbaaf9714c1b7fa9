"""LightningDataModules that get split, transform, sampler and collate right.

Names are imported on first use, so that a spawned worker process, which needs only the datasets,
does not import Lightning.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batches.batch import Batch, PaddedInputs, RowBatch, TabularInputs, TextInputs
    from .cifar10 import CIFAR10DataModule, CIFAR100DataModule, FashionMNISTDataModule
    from .core.datamodule import DataModule
    from .dataset import DatasetDataModule
    from .features import FeaturesDataModule
    from .image_folder import ImageFolderDataModule
    from .sampling.by_class import Pairs, PByK, Stratified
    from .sampling.length_buckets import LengthBuckets
    from .sampling.strategies import Balanced, Sampling, Views, Weighted
    from .tabular import TabularDataModule
    from .text import TextDataModule

HOMES = {
    "Balanced": "sampling.strategies",
    "Batch": "batches.batch",
    "CIFAR100DataModule": "cifar10",
    "CIFAR10DataModule": "cifar10",
    "DataModule": "core.datamodule",
    "DatasetDataModule": "dataset",
    "FashionMNISTDataModule": "cifar10",
    "FeaturesDataModule": "features",
    "ImageFolderDataModule": "image_folder",
    "LengthBuckets": "sampling.length_buckets",
    "PByK": "sampling.by_class",
    "PaddedInputs": "batches.batch",
    "Pairs": "sampling.by_class",
    "RowBatch": "batches.batch",
    "Sampling": "sampling.strategies",
    "Stratified": "sampling.by_class",
    "TabularDataModule": "tabular",
    "TabularInputs": "batches.batch",
    "TextDataModule": "text",
    "TextInputs": "batches.batch",
    "Views": "sampling.strategies",
    "Weighted": "sampling.strategies",
}
__all__ = [
    "Balanced",
    "Batch",
    "CIFAR10DataModule",
    "CIFAR100DataModule",
    "DataModule",
    "DatasetDataModule",
    "FashionMNISTDataModule",
    "FeaturesDataModule",
    "ImageFolderDataModule",
    "LengthBuckets",
    "PByK",
    "PaddedInputs",
    "Pairs",
    "RowBatch",
    "Sampling",
    "Stratified",
    "TabularDataModule",
    "TabularInputs",
    "TextDataModule",
    "TextInputs",
    "Views",
    "Weighted",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
