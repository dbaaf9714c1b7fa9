"""What a source gives and what is asked of it: datasets, splits, classes; no loader."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .collate import collate, collate_inputs
from .settings import storable
from .splits import split_indices

Split = Literal["train", "val", "test", "predict"]
SPLITS: tuple[Split, ...] = ("train", "val", "test", "predict")


class Source:
    """The part of a datamodule that knows the data.

    Attributes:
        fitted: What was learnt from train rows; a checkpoint's takes its place.
    """

    task: Literal["multiclass", "multilabel", "regression"] = "multiclass"
    hparams: Any

    def __init__(self) -> None:
        super().__init__()
        self.fitted: dict[str, Any] = {}
        self._datasets: dict[Split, Any] = {}
        self._is_read, self._is_predict_read = False, False

    # --- what a source gives -----------------------------------------------------------------

    def dataset(self, split: Split) -> Any:
        """Map-style dataset of one split, or None where there is no such split.

        Its items are ``(inputs, target)``, for predict bare inputs. With ``get_batch(indices,
        seeds)`` it serves a whole batch in one go. ``describe(index)`` names a sample in errors.
        """
        raise NotImplementedError(f"{type(self).__name__} must define dataset(split)")

    def read(self) -> None:
        """Read what the train, val and test datasets need; called once, by :meth:`setup`."""

    def fit(self) -> dict[str, Any]:
        """What is learnt from train rows alone, as plain types and tensors.

        Called after :meth:`read`, unless a checkpoint gave it. Known keys, all optional:
        ``classes`` (names in the order of their index), ``class_counts``, ``input_sizes``.
        """
        return {}

    def read_predict(self) -> None:
        """Read what the predict dataset needs; called by :meth:`setup` for predict."""

    def split_fingerprint(self) -> str | None:
        """Digest of which sample is in which split; None where the source has no split."""
        return None

    def default_collate(self, split: Split) -> Any:
        """Collate function of a split."""
        return collate_inputs if split == "predict" else collate

    # --- what a model asks for --------------------------------------------------------------

    @property
    def classes(self) -> list[str]:
        """Class names in the order of their index."""
        return list(self._known("classes"))

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Index of each class name."""
        return {name: index for index, name in enumerate(self.classes)}

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def class_counts(self) -> list[int]:
        """Train samples of each class."""
        return list(self._known("class_counts"))

    @property
    def input_sizes(self) -> dict[str, Any]:
        """What sizes a net, as plain values: ``{"input_shape": [C, H, W]}`` for pictures."""
        return dict(self._known("input_sizes"))

    def _known(self, name: str) -> Any:
        if name not in self.fitted:
            self._ensure_read("fit")
        if name not in self.fitted:
            raise AttributeError(f"{type(self).__name__} has no {name}; return it from fit()")
        return self.fitted[name]

    @property
    def train_dataset(self) -> Any:
        """The train split; its items are one sample each."""
        return self._dataset("train")

    @property
    def val_dataset(self) -> Any:
        """The validation split, or None."""
        return self._dataset("val")

    @property
    def test_dataset(self) -> Any:
        """The test split, or None."""
        return self._dataset("test")

    @property
    def predict_dataset(self) -> Any:
        """What is to be predicted."""
        return self._dataset("predict")

    def split_samples(
        self,
        n: int,
        *,
        labels: npt.ArrayLike | None = None,
        names: Sequence[str] | None = None,
        given: Container[str] = (),
    ) -> dict[str, npt.NDArray[np.int64]]:
        """Cut ``range(n)`` by the user's ``val_split``, ``test_split`` and ``split_seed``.

        Args:
            n: Number of samples that are not yet in a split.
            labels: (n,) integers for a stratified split.
            names: Class names for messages.
            given: Splits that the source holds already and that are not cut out here.

        Raises:
            ValueError: If a share was asked for of a split that the source holds.
        """
        shares: dict[str, int | float] = {}
        for name in ("val", "test"):
            asked = self.hparams[f"{name}_split"]
            if name in given and asked:
                raise ValueError(
                    f"{name}_split={asked} was given, but the source has a {name} part of its own; "
                    f"leave {name}_split out, or move the {name} part away"
                )
            # with a val part the source's author has parted it: no test part is invented then
            default = 0.0 if name in given or (name == "test" and given) else 0.1
            shares[name] = default if asked is None else asked
        stratify = (self.hparams["split_options"] or {}).get("stratify", True)
        return split_indices(
            n,
            val=shares["val"],
            test=shares["test"],
            seed=self.hparams["split_seed"],
            labels=labels if stratify else None,
            names=names,
        )

    # --- inside ------------------------------------------------------------------------------

    def _dataset(self, split: Split) -> Any:
        if split not in self._datasets:
            self._ensure_read(split)
            self._datasets[split] = self.dataset(split)
        return self._datasets[split]

    def _ensure_read(self, stage: str | None) -> None:
        if stage == "predict":
            if not self._is_predict_read:
                self.read_predict()
                self._is_predict_read = True
        elif not self._is_read:
            self.read()
            self._is_read = True
            if not self.fitted:
                self.fitted = storable(self.fit() or {}, "fitted")
