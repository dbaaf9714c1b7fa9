"""LightningDataModules that get split, transform, sampler and collate right."""

from .cifar10 import CIFAR10DataModule, CIFAR100DataModule, FashionMNISTDataModule
from .core.base import DataModule
from .core.batch import Batch, PaddedInputs, RowBatch, TabularInputs, TextInputs
from .dataset import DatasetDataModule
from .image_folder import ImageFolderDataModule

__all__ = [
    "Batch",
    "CIFAR10DataModule",
    "CIFAR100DataModule",
    "DataModule",
    "DatasetDataModule",
    "FashionMNISTDataModule",
    "ImageFolderDataModule",
    "PaddedInputs",
    "RowBatch",
    "TabularInputs",
    "TextInputs",
]
