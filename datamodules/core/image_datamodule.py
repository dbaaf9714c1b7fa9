"""The base class of image sources: transforms, images to predict, MixUp and CutMix."""

from __future__ import annotations

from datamodules.batches.mixup import Mix
from datamodules.images.sources import predict_sources

from .datamodule import DataModule
from .settable import SettablePredictPath, SettableTransforms


class ImageDataModule(SettableTransforms, SettablePredictPath, DataModule):
    """Base class of image sources.

    A subclass has the arguments ``train_transform``, ``eval_transform``, ``predict_path``,
    ``mixup`` and ``cutmix``, and sets the first three as ``_train_transform`` and so on.

    Example:
        >>> class Blank(ImageDataModule):
        ...     def __init__(self, **options):
        ...         super().__init__(**options)
        ...         self._train_transform, self._eval_transform = None, str
        >>> Blank().eval_transform
        <class 'str'>
    """

    def read_predict(self) -> None:
        """List the images to predict."""
        self._predict_sources = predict_sources(self.predict_path)

    @property
    def predict_keys(self) -> list[str]:
        """Path of each predicted image, in order."""
        dataset = self.predict_dataset
        return [dataset.describe(i) for i in range(len(dataset))]

    def _mix(self) -> Mix | None:
        mixup, cutmix = self.hparams["mixup"], self.hparams["cutmix"]
        return Mix(self.num_classes, mixup=mixup, cutmix=cutmix) if mixup or cutmix else None
