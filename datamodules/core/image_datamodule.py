"""Base of the image datamodules: settable transforms, images to predict, MixUp."""

from __future__ import annotations

from datamodules.batches.mixup import Mix
from datamodules.images.dataset import predict_sources

from .datamodule import DataModule
from .settable import SettablePredictPath, SettableTransforms


class ImageDataModule(SettableTransforms, SettablePredictPath, DataModule):
    """Base of the image datamodules.

    A subclass has the arguments ``train_transform``, ``eval_transform``, ``predict_path``,
    ``mixup`` and ``cutmix``, and stores the first three as ``_train_transform`` and so on.
    """

    def read_predict(self) -> None:
        """List the images to predict."""
        self._predict_sources = predict_sources(self.predict_path)

    @property
    def predict_keys(self) -> list[str]:
        """Path of each predicted image, in order."""
        dataset = self.predict_dataset
        return [dataset.describe(i) for i in range(len(dataset))]

    def mix(self) -> Mix | None:
        """Return MixUp or CutMix of train batches, or None if neither is used."""
        mixup, cutmix = self.hparams["mixup"], self.hparams["cutmix"]
        return Mix(self.num_classes, mixup=mixup, cutmix=cutmix) if mixup or cutmix else None
