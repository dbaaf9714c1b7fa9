"""The base class of image sources: transforms, images to predict, MixUp and CutMix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from datamodules.batches.mixup import Mix
from datamodules.images.sources import predict_sources
from datamodules.settings.arguments import given_again, plain

from .datamodule import DataModule
from .inside import SampleFunctions


class ImageDataModule(DataModule):
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

    _train_transform: Any
    _eval_transform: Any
    _predict_path: Any

    @property
    def train_transform(self) -> Callable[[Any], Any] | None:
        """Transform of each train image; may be replaced."""
        own = self._train_transform
        return self._preset("train") if own is None else given_again(own, "train_transform")

    @train_transform.setter
    def train_transform(self, transform: Callable[[Any], Any] | None) -> None:
        self._train_transform, self.hparams["train_transform"] = transform, plain(transform)
        self._datasets.pop("train", None)

    @property
    def eval_transform(self) -> Callable[[Any], Any] | None:
        """Transform of each val, test and predict image; may be replaced."""
        own = self._eval_transform
        return self._preset("eval") if own is None else given_again(own, "eval_transform")

    @eval_transform.setter
    def eval_transform(self, transform: Callable[[Any], Any] | None) -> None:
        self._eval_transform, self.hparams["eval_transform"] = transform, plain(transform)
        for split in ("val", "test", "predict"):
            self._datasets.pop(split, None)

    def _preset(self, part: str) -> Callable[[Any], Any] | None:
        """Return the default transform of ``"train"`` or ``"eval"``."""
        return None

    @property
    def predict_path(self) -> str | Path | list[Any] | None:
        """Images to predict; may be replaced."""
        path: str | Path | list[Any] | None = self._predict_path
        return path

    @predict_path.setter
    def predict_path(self, path: str | Path | list[Any] | None) -> None:
        self._predict_path, self._is_predict_read = path, False
        self._datasets.pop("predict", None)

    def read_predict(self) -> None:
        """List the images to predict."""
        self._predict_sources = predict_sources(self.predict_path)

    @property
    def predict_keys(self) -> list[str]:
        """Path of each predicted image, in order."""
        dataset = self.predict_dataset
        return [dataset.describe(i) for i in range(len(dataset))]

    def _functions(self) -> SampleFunctions:
        # not the properties: a loader for val has to work without the train transform
        own = self._train_transform
        return SampleFunctions(
            train_transform=self._preset("train") if own is None else own,
            given=(own, self._eval_transform),
        )

    def _mix(self) -> Mix | None:
        mixup, cutmix = self.hparams["mixup"], self.hparams["cutmix"]
        return Mix(self.num_classes, mixup=mixup, cutmix=cutmix) if mixup or cutmix else None
