"""LightningDataModules that get split, transform, sampler and collate right."""

from .cifar10 import CIFAR10DataModule, CIFAR100DataModule, FashionMNISTDataModule
from .core.base import DataModule
from .core.batch import Batch, RowBatch, TabularInputs, TextInputs
from .image_folder import ImageFolderDataModule

__all__ = [
    "Batch",
    "CIFAR10DataModule",
    "CIFAR100DataModule",
    "DataModule",
    "FashionMNISTDataModule",
    "ImageFolderDataModule",
    "RowBatch",
    "TabularInputs",
    "TextInputs",
]
