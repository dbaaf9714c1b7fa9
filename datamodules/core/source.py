"""What a source gives and what is asked of it: datasets, splits, classes; no loader."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from datamodules.batches.bad_samples import SkippedFiles
from datamodules.batches.collate import collate, collate_inputs
from datamodules.settings.arguments import storable
from datamodules.splits.folds import limit_rows
from datamodules.splits.options import SplitInput, SplitOptions, split_by_options

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
        self._split_options: dict[str, Any] | None = None
        self._is_read, self._is_predict_read = False, False
        self._skipped: dict[Split, SkippedFiles] = {}

    # --- what a source gives -----------------------------------------------------------------

    def dataset(self, split: Split) -> Any:
        """Map-style dataset of one split, or None where there is no such split.

        Its items are ``(inputs, target)``, for predict bare inputs. With ``get_batch(indices,
        seeds)`` it serves a whole batch in one go; ``draws = False`` spares it the seeds.
        ``describe(index)`` names a sample in errors.
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

    # --- what cannot be read -----------------------------------------------------------------

    noun = "files"
    """What a sample is called where it cannot be read."""

    def skipped_files(self, split: Split) -> SkippedFiles | None:
        """The split's record of what cannot be read, where it is to be skipped; else None."""
        if self.hparams.get("on_error", "raise") == "raise":
            return None
        data = self._dataset(split)
        record = self._skipped.get(split)
        if record is None or record.source is not data:
            targets = getattr(data, "targets", None) if split == "train" else None
            record = self._skipped[split] = SkippedFiles(
                split,
                data,
                max_errors=self.hparams["max_errors"],
                targets=None if targets is None else torch.as_tensor(targets),
                classes=self.classes if targets is not None else (),
                noun=self.noun,
            )
        return record

    @property
    def bad_files(self) -> dict[str, str]:
        """Name and reason of each sample that this process had to skip so far."""
        return {
            bad.path: bad.reason
            for split in SPLITS
            if split in self._skipped
            for bad in self._skipped[split].found.values()
        }

    def bad_rows(self, split: Split) -> list[int]:
        """Positions in the split's dataset of the samples that this process had to skip."""
        return sorted(self._skipped[split].found) if split in self._skipped else []

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
        """What sizes a net, as plain values: ``{"input_shape": [C, H, W]}`` for images."""
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
        column: Callable[[str], npt.ArrayLike] | None = None,
        keys: Callable[[], Sequence[Any]] | None = None,
    ) -> dict[str, npt.NDArray[np.int64]]:
        """Cut ``range(n)`` as ``val_split``, ``test_split``, ``split_seed``, ``split_options`` say.

        ``limit`` is applied to each part; parts in ``given`` are limited by the source itself,
        see :meth:`limit_rows`.

        Args:
            n: Number of samples that are not yet in a split.
            labels: (n,) integers for a stratified split.
            names: Class names for messages.
            given: Splits that the source holds already and that are not cut out here.
            column: Gives the (n,) values of a column that ``split_options`` names.
            keys: Gives the n keys that index files may name.

        Raises:
            ValueError: If a share was asked for of a split that the source holds, or the options
                cannot be carried out on these samples.
        """
        options = self.split_options
        decided = options.column is not None or options.files is not None
        if decided or options.folds is not None:
            self._check_decided(given)
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
            if options.folds is not None:
                default = 0.0  # each sample lies in a fold, unless a test part is asked for
            shares[name] = default if asked is None else asked
        parts = split_by_options(
            SplitInput(n, labels, names, column, keys),
            options,
            val=shares["val"],
            test=shares["test"],
            seed=self.hparams["split_seed"],
        )
        known = None if labels is None else np.asarray(labels)
        return {
            part: rows
            if part in given
            else self.limit_rows(part, rows, None if known is None else known[rows])
            for part, rows in parts.items()
        }

    @property
    def split_options(self) -> SplitOptions:
        """How samples are parted."""
        return SplitOptions.of(self._split_options)

    def limit_rows(
        self, split: str, rows: npt.NDArray[np.int64], labels: npt.ArrayLike | None = None
    ) -> npt.NDArray[np.int64]:
        """The part of a split that ``limit`` leaves, seeded and with the classes in their shares.

        Args:
            split: Its name, for messages.
            rows: (n,) rows of the split.
            labels: (n,) their classes.

        Raises:
            ValueError: If train would lose a class.
        """
        limit = self.hparams["limit"]
        if limit is None:
            return rows
        codes = None if labels is None else np.unique(np.asarray(labels), return_inverse=True)[1]
        kept = limit_rows(rows, limit, seed=self.hparams["split_seed"], labels=codes)
        if split == "train" and codes is not None:
            classes = int(codes.max(initial=-1)) + 1
            if len(kept) < min(classes, len(rows)):
                raise ValueError(
                    f"limit={limit} leaves {len(kept)} train samples of {classes} classes, so "
                    "classes would be lost; raise it"
                )
        return kept

    def _check_decided(self, given: Container[str]) -> None:
        """Refuse what would part the samples a second time."""
        options = self.split_options
        way = next((n for n in ("column", "files") if getattr(options, n) is not None), "folds")
        there = [name for name in ("val", "test") if name in given]
        if there and (way != "folds" or "val" in there):
            raise ValueError(
                f"split_options has {way}, but the source has a {there[0]} part of its own; leave "
                f"{way} out, or move the {there[0]} part away"
            )
        asked = [n for n in ("val_split", "test_split") if self.hparams[n]]
        asked = [n for n in asked if way != "folds" or n == "val_split"]
        if asked:
            raise ValueError(f"split_options has {way}, which decides; leave {asked[0]} out")

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
