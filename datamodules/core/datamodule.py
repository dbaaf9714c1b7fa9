"""The base class of all datamodules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import lightning as L
import numpy.typing as npt
import torch

from datamodules.adapters.user_samples import with_transform_of
from datamodules.batches.bad_samples import SkippedFiles
from datamodules.batches.collate import collate, collate_inputs
from datamodules.batches.dataset_interface import DatasetInterface
from datamodules.batches.mixup import Mix
from datamodules.images.ram_cache import RamCache
from datamodules.loading.loader import Loader
from datamodules.sampling.plan import Plan
from datamodules.sampling.strategies import Sampling
from datamodules.seeding.sample_seeds import Indices
from datamodules.settings.arguments import check_name, storable
from datamodules.splits.options import SplitInput, SplitOptions
from datamodules.splits.split_samples import SPLITS, Split, limit_split, split_by_settings

from .accessors import SampleFunctions, describe, request_of, skipped_of
from .attributes import Fitted, SplitDataset
from .no_validation import NoValidation
from .options import save_options
from .plotting import plot_batch
from .resume import TrainPosition, load_state, save_state
from .run import Run
from .skipped_files import SkippedBySplit
from .sync_guard import SyncGuard

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SPLITS", "DataModule", "Split"]


class DataModule(L.LightningDataModule):
    """Base class of all sources: splits, loaders, normalization, checkpoints.

    A subclass overrides :meth:`dataset` and, if it has files, :meth:`read`:

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> class Squares(DataModule):
        ...     def __init__(self, rows: int = 20, **options):
        ...         super().__init__(**options)
        ...     def dataset(self, split):
        ...         x = torch.arange(self.hparams.rows, dtype=torch.float32)
        ...         return TensorDataset(x[:, None], x**2)
        >>> dm = Squares(rows=10, batch_size=4)
        >>> [tuple(batch.inputs.shape) for batch in dm.train_dataloader()]
        [(4, 1), (4, 1), (2, 1)]

    The arguments are documented in :class:`~datamodules.core.options.DataModuleOptions`.

    Attributes:
        fitted: What :meth:`fit` returned, or a checkpoint.
        sampler: The argument; may be replaced, as ``loader_options``, before a loader is made.
        normalizer: Normalizes batches of uint8 images, or None.
    """

    task: Literal["multiclass", "multilabel", "regression"] = "multiclass"
    # of a source with image_options: all of them, see images/options.py
    _image_options: Mapping[str, Any] = MappingProxyType({})
    _noun = "files"  # what samples that cannot be read are called in messages

    def __init__(
        self,
        *,
        batch_size: int = 32,
        eval_batch_size: int | None = None,
        num_workers: int | None = None,
        worker_type: Literal["auto", "process", "thread"] = "auto",
        val_split: int | float | None = None,
        test_split: int | float | None = None,
        split_seed: int = 0,
        split_options: dict[str, Any] | None = None,
        limit: int | float | None = None,
        seed: int | None = None,
        sampler: str | Sampling | Plan = "shuffle",
        global_batch_size: int | None = None,
        uneven: Literal["repeat", "drop"] = "repeat",
        loader_options: dict[str, Any] | None = None,
        with_rows: bool = False,
    ) -> None:
        super().__init__()
        save_options(self, inspect.currentframe())
        # a rank may have no batch if there are fewer samples than ranks; see SyncGuard
        self.allow_zero_length_dataloader_with_multiple_devices = True
        self.sampler, self.loader_options = sampler, dict(loader_options or {})
        self.normalizer: Callable[[Any], Any] | None = None
        self.fitted: dict[str, Any] = {}
        self._augment = True
        self._split_options = split_options
        self._datasets: dict[Split, Any] = {}
        self._is_read, self._is_predict_read = False, False
        self._skipped = SkippedBySplit()
        self._ram_cache: RamCache | None = None
        self._position, self._guard = TrainPosition(), SyncGuard()
        self._no_validation = NoValidation()

    def dataset(self, split: Split) -> Any:
        """Return the map-style dataset of one split, or None if there is no such split.

        Samples are ``(inputs, target)``, for predict inputs alone. What a dataset may offer
        besides, see :mod:`datamodules.batches.dataset_interface`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define dataset(split)")

    def read(self) -> None:
        """Read what the train, val and test datasets need; called once, by :meth:`setup`."""

    def fit(self) -> dict[str, Any]:
        """Return what is learned from train samples alone, as plain types and tensors.

        Called after :meth:`read`, unless a checkpoint was loaded. Known keys, all optional:
        ``classes`` (names in the order of their index), ``class_counts``, ``input_sizes``.
        """
        return {}

    def read_predict(self) -> None:
        """Read what the predict dataset needs; called once, by :meth:`setup`."""

    def split_fingerprint(self) -> str | None:
        """Return a digest of which sample is in which split; None disables the check."""
        return None

    def split_samples(
        self,
        n: int,
        *,
        labels: npt.ArrayLike | None = None,
        names: Sequence[str] | None = None,
        given: Container[str] = (),
        column: Callable[[str], npt.ArrayLike] | None = None,
        keys: Callable[[], Sequence[Any]] | None = None,
    ) -> dict[str, Indices]:
        """Split ``range(n)`` by ``val_split``, ``test_split``, ``split_options`` and ``limit``.

        Returns ascending rows of each split. Splits in ``given`` exist already and are not created;
        the other arguments are those of :class:`~datamodules.splits.options.SplitInput`.
        """
        samples = SplitInput(n, labels, names, column, keys)
        return split_by_settings(samples, self.hparams, SplitOptions.of(self._split_options), given)

    classes = Fitted[list[str]](list, "Class names in the order of their index.")
    class_counts = Fitted[list[int]](list, "Train samples of each class.")
    input_sizes = Fitted[dict[str, Any]](dict, "What sizes a model: ``input_shape`` for images.")
    train_dataset = SplitDataset("train")
    val_dataset = SplitDataset("val")
    test_dataset = SplitDataset("test")
    predict_dataset = SplitDataset("predict")

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Index of each class name."""
        return {name: index for index, name in enumerate(self.classes)}

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def bad_files(self) -> dict[str, str]:
        """Name and reason of each sample that this process has left out so far."""
        return self._skipped.reasons()

    def batches(
        self, split: Split = "train", *, device: str | torch.device = "cpu"
    ) -> Iterator[Any]:
        """Yield the normalized batches of one split on ``device``, for a plain loop."""
        self._prepare(split)
        for batch in getattr(self, f"{split}_dataloader")():
            yield self.transfer_batch_to_device(batch, torch.device(device), 0)

    def preview(self, split: Split = "train") -> Any:
        """Return one normalized batch, made without workers, accelerator or Trainer."""
        self._prepare(split)
        return next(iter(self._loader(split, num_workers=0)))

    def plot(self, split: Split = "train", **options: Any) -> Figure:
        """Draw a split: images of a batch, columns of a table, or lengths of texts.

        Returns a matplotlib figure, which a notebook displays; no window opens. ``most`` is the
        number of images drawn. Samples of another kind raise a ValueError.
        """
        return self._figure(split, self.preview(split), **options)

    def setup(self, stage: str | None = None) -> None:
        """Read the data of a stage; does nothing the second time."""
        self._ensure_read(stage)
        if self._is_read:
            self._run().check_same_data(self.split_fingerprint)

    def train_dataloader(self) -> Loader:
        """Return the train loader; its order changes with the epoch."""
        loader = self._loader("train")
        self._position.start(loader, self._functions().named(self))
        return loader

    def val_dataloader(self) -> Any:
        """Return the validation loader: each sample once, in order; ``[]`` without validation."""
        if self._dataset("val") is None:
            return self._no_validation.of(self._run())
        return self._loader("val")

    def test_dataloader(self) -> Any:
        """Return the test loader: each sample once, in order."""
        return self._loader("test")

    def predict_dataloader(self) -> Any:
        """Return the predict loader: inputs, each once, in the order of ``predict_keys``."""
        return self._loader("predict")

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        """Move a batch, then normalize images that were moved as uint8."""
        run = self._run()
        normalizer = self._normalizer_of(self._datasets.get(run.split))
        return run.transfer(batch, device, dataloader_idx, normalizer)

    def teardown(self, stage: str) -> None:
        """Undo what a run changed outside the datamodule; the data are kept."""
        self._guard.release()
        self._no_validation.restore()

    def on_exception(self, exception: BaseException) -> None:
        """Undo what a run changed outside the datamodule."""
        self.teardown("")

    def state_dict(self) -> dict[str, Any]:
        """Return source, fitted values, split and position; loads with ``weights_only=True``."""
        return save_state(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore fitted values and, if a fit is resumed, the position in the epoch."""
        load_state(self, state_dict)

    def _figure(self, split: Split, batch: Any, **options: Any) -> Figure:
        return plot_batch(self, split, batch, **options)

    def _functions(self) -> SampleFunctions:
        return SampleFunctions()

    def _default_collate(self, split: Split) -> Any:
        return collate_inputs if split == "predict" else collate

    def _mix(self) -> Mix | None:
        return None

    def _skipped_files(self, split: Split) -> SkippedFiles | None:
        return None if self.hparams.get("on_error", "raise") == "raise" else skipped_of(self, split)

    def _loader(self, split: Split, *, num_workers: int | None = None) -> Loader:
        return request_of(self, split).build(num_workers=num_workers)

    def _run(self) -> Run:
        return Run(self.trainer)

    def _dataset(self, split: Split) -> Any:
        if split not in self._datasets:
            self._ensure_read(split)
            data = self.dataset(split)
            if split == "train" and not self._augment:
                data = with_transform_of(data, self.dataset("val"))
            self._datasets[split] = data
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
                self._use_fitted()

    def _use_fitted(self) -> None:
        """Update what depends on ``fitted``; called whenever it is replaced."""

    def _known(self, name: str) -> Any:
        if name not in self.fitted:
            self._ensure_read("fit")
        if name not in self.fitted:
            raise AttributeError(f"{type(self).__name__} has no {name}; return it from fit()")
        return self.fitted[name]

    def _prepare(self, split: Split) -> None:
        check_name(split, SPLITS, "split")
        if split != "predict" or not self.fitted:  # a checkpoint has what prediction needs
            self.prepare_data()

    def _limit_rows(self, split: str, rows: Indices, labels: Any = None) -> Indices:
        return limit_split(split, rows, labels, self.hparams)

    def _normalizer_of(self, dataset: Any) -> Callable[[Any], Any] | None:
        return DatasetInterface(dataset).normalizer or self.normalizer

    __str__ = describe

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "trainer": None, "_guard": SyncGuard()}  # of this process alone
