"""Arguments that can be replaced after construction, such as ``dm.eval_transform = ...``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datamodules.batches.normalize import Normalizer
from datamodules.settings.arguments import given_again, plain
from datamodules.splits.split_samples import Split

from .accessors import SampleFunctions

Transform = Callable[[Any], Any]


class SettableTransforms:
    """Properties ``train_transform`` and ``eval_transform`` of a datamodule of images.

    The datamodule stores the arguments as ``_train_transform`` and ``_eval_transform``, and may
    define ``_preset(part)`` for the transforms that are used if an argument is None. If its fitted
    state has ``mean`` and ``std``, they normalize the images.
    """

    hparams: Any
    fitted: dict[str, Any]
    normalizer: Any
    _datasets: dict[Split, Any]
    _train_transform: Any
    _eval_transform: Any

    @property
    def train_transform(self) -> Transform | None:
        """Transform of each train sample. Can be set."""
        own: Transform | None = given_again(self._train_transform, "train_transform")
        return self._preset("train") if own is None else own

    @train_transform.setter
    def train_transform(self, transform: Transform | None) -> None:
        self._train_transform, self.hparams["train_transform"] = transform, plain(transform)
        self._datasets.pop("train", None)

    @property
    def eval_transform(self) -> Transform | None:
        """Transform of each val, test and predict sample. Can be set."""
        own: Transform | None = given_again(self._eval_transform, "eval_transform")
        return self._preset("eval") if own is None else own

    @eval_transform.setter
    def eval_transform(self, transform: Transform | None) -> None:
        self._eval_transform, self.hparams["eval_transform"] = transform, plain(transform)
        for split in ("val", "test", "predict"):
            self._datasets.pop(split, None)

    def _use_fitted(self) -> None:
        if "mean" in self.fitted:
            self.normalizer = Normalizer(self.fitted["mean"], self.fitted["std"])

    def _functions(self) -> SampleFunctions:
        # not the properties: a loader for val has to work without the train transform
        own = self._train_transform
        return SampleFunctions(
            train_transform=self._preset("train") if own is None else own,
            given=(own, self._eval_transform),
        )

    def _preset(self, part: str) -> Transform | None:
        """Return the transform for ``"train"`` or ``"eval"`` if the user gives none."""
        return None


class SettablePredictPath:
    """Property ``predict_path`` of a datamodule, which stores the argument as ``_predict_path``."""

    hparams: Any
    _datasets: dict[Split, Any]
    _predict_path: Any
    _is_predict_read: bool

    @property
    def predict_path(self) -> Any:
        """The data to predict. Can be set; they are read by the next prediction."""
        return self._predict_path

    @predict_path.setter
    def predict_path(self, path: Any) -> None:
        self._predict_path, self.hparams["predict_path"] = path, plain(path)
        self._is_predict_read = False
        self._datasets.pop("predict", None)
