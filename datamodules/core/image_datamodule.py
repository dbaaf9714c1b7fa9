"""What sources of images share: transforms and images to predict that may be replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from datamodules.batches.mixup import Mix
from datamodules.images.sources import predict_sources
from datamodules.settings.arguments import given_again, plain

from .datamodule import DataModule


class ImageDataModule(DataModule):
    """Base of the sources of images.

    A subclass keeps the arguments ``train_transform``, ``eval_transform`` and ``predict_path`` as
    ``_train_transform`` and so on before anything else asks for them, and has ``mixup`` and
    ``cutmix`` among its own.
    """

    _train_transform: Any
    _eval_transform: Any
    _predict_path: Any

    @property
    def train_transform(self) -> Callable[[Any], Any] | None:
        """What is done to each train image; may be replaced."""
        own = self._train_transform
        return self._preset("train") if own is None else given_again(own, "train_transform")

    @train_transform.setter
    def train_transform(self, transform: Callable[[Any], Any] | None) -> None:
        self._train_transform, self.hparams["train_transform"] = transform, plain(transform)
        self._datasets.pop("train", None)

    @property
    def eval_transform(self) -> Callable[[Any], Any] | None:
        """What is done to each val, test and predict image; may be replaced."""
        own = self._eval_transform
        return self._preset("eval") if own is None else given_again(own, "eval_transform")

    @eval_transform.setter
    def eval_transform(self, transform: Callable[[Any], Any] | None) -> None:
        self._eval_transform, self.hparams["eval_transform"] = transform, plain(transform)
        for split in ("val", "test", "predict"):
            self._datasets.pop(split, None)

    def _preset(self, part: str) -> Callable[[Any], Any] | None:
        """The transform of ``"train"`` or ``"eval"`` where the user gives none."""
        return None

    @property
    def predict_path(self) -> str | Path | list[Any] | None:
        """What is to be predicted; may be replaced."""
        path: str | Path | list[Any] | None = self._predict_path
        return path

    @predict_path.setter
    def predict_path(self, path: str | Path | list[Any] | None) -> None:
        self._predict_path, self._is_predict_read = path, False
        self._datasets.pop("predict", None)

    def read_predict(self) -> None:
        """List what is to be predicted."""
        self._predict_sources = predict_sources(self.predict_path)

    @property
    def predict_keys(self) -> list[str]:
        """Path of each predicted image, in order."""
        dataset = self.predict_dataset
        return [dataset.describe(i) for i in range(len(dataset))]

    def mix(self) -> Mix | None:
        """MixUp or CutMix of train batches, where asked for."""
        mixup, cutmix = self.hparams["mixup"], self.hparams["cutmix"]
        return Mix(self.num_classes, mixup=mixup, cutmix=cutmix) if mixup or cutmix else None
