"""LightningDataModules that get split, transform, sampler and collate right.

Names are imported when they are asked for: a worker process that is spawned needs the datasets
alone, and does not wait for Lightning.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cifar10 import CIFAR10DataModule, CIFAR100DataModule, FashionMNISTDataModule
    from .core.base import DataModule
    from .core.batch import Batch, PaddedInputs, RowBatch, TabularInputs, TextInputs
    from .core.buckets import LengthBuckets
    from .core.class_plans import Pairs, PByK, Stratified
    from .core.plans import Balanced, Sampling, Views, Weighted
    from .dataset import DatasetDataModule
    from .features import FeaturesDataModule
    from .image_folder import ImageFolderDataModule
    from .tabular import TabularDataModule
    from .text import TextDataModule

HOMES = {
    "Balanced": "core.plans",
    "Batch": "core.batch",
    "CIFAR100DataModule": "cifar10",
    "CIFAR10DataModule": "cifar10",
    "DataModule": "core.base",
    "DatasetDataModule": "dataset",
    "FashionMNISTDataModule": "cifar10",
    "FeaturesDataModule": "features",
    "ImageFolderDataModule": "image_folder",
    "LengthBuckets": "core.buckets",
    "PByK": "core.class_plans",
    "PaddedInputs": "core.batch",
    "Pairs": "core.class_plans",
    "RowBatch": "core.batch",
    "Sampling": "core.plans",
    "Stratified": "core.class_plans",
    "TabularDataModule": "tabular",
    "TabularInputs": "core.batch",
    "TextDataModule": "text",
    "TextInputs": "core.batch",
    "Views": "core.plans",
    "Weighted": "core.plans",
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
