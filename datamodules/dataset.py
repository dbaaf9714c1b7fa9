"""Load any dataset: map-style, iterable, a list of pairs, Hugging Face."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Unpack

import numpy as np
from torch.utils.data import Dataset, IterableDataset

from .adapters.dataset import Encode, Parts, WrappedDataset
from .adapters.find_labels import as_array, column_of, find_classes, find_labels
from .adapters.fit_dataset import first_input, fit_classes, fit_inputs
from .adapters.open_samples import as_floats, open_image
from .adapters.stream_options import check_stream_options, check_unsplit_stream
from .batches.bad_samples import check_on_error
from .batches.collate import collate, list_pairs, pad_pairs
from .batches.dataset_interface import DatasetInterface
from .core.accessors import SampleFunctions, collate_of, ram_cache_of
from .core.datamodule import DataModule, Split
from .core.options import DataModuleOptions, refuse_renamed
from .core.settable import SettableTransforms
from .images.options import ImageOptions, with_defaults
from .loading.iterable import StreamBatches
from .loading.loader import Loader
from .loading.make_loader import make_stream_loader
from .seeding.sample_seeds import Indices
from .settings.arguments import check_name, given_again
from .settings.class_map import given_classes
from .splits.split import fingerprint

Data = Dataset[Any] | Sequence[Any]
COLLATES = {"stack": collate, "pad": pad_pairs, "list": list_pairs}


class DatasetDataModule(SettableTransforms, DataModule):
    """Your own dataset with a split, transforms for train and evaluation, and exact loaders.

    Pass either ``dataset``, which is split, or ``train`` with ``val`` and ``test`` if they exist
    (a missing val is split from train)::

        DatasetDataModule([("a.jpg", "cat"), ("b.jpg", "dog"), ...], load="image")
        DatasetDataModule(train=MyDataset("train"), val=MyDataset("val"))
        DatasetDataModule(datasets.load_from_disk("reviews"), inputs="ids", collate="pad")

    Samples are ``(inputs, target)`` pairs or dicts. A batch::

        inputs  the stacked inputs; PaddedInputs with collate="pad", a list with "list"
        target  (N,) int64, (N, K) float32, or (N,) or (N, T) float32 with task="regression"

    Labels are read from ``targets``, ``samples``, a column or pairs, without opening a sample. PIL
    images become float32, normalized; tensors stay as they are.

    Args:
        dataset: One dataset, which is split.
        train: The train split.
        val: The validation split.
        test: The test split.
        predict: Samples to predict: inputs, or pairs whose target is left out.
        labels: Label of each sample of ``dataset`` or ``train``, if the dataset has none.
        classes: Class names in the order of their index.
        task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``.
        load: Opens the input of a sample: a callable, or ``"image"`` for image paths.
        inputs: Key of the input in dict samples. Default: all keys but the target.
        target: Key of the target. Default: ``label``, ``labels`` or ``target``.
        train_transform: Applied to the input of a train sample.
        eval_transform: The same for val, test and predict.
        collate: ``"stack"``, ``"pad"``, ``"list"``, or a function of a list of samples.
        on_error: ``"raise"`` for a sample that the dataset or ``load`` cannot read, or ``"skip"``,
            as in :class:`~datamodules.image_folder.ImageFolderDataModule`. Transforms must work.
        max_errors: With ``"skip"``, the run stops at more bad samples in a split than this.
        image_options: ``mean``, ``std``, ``cache`` and ``cache_bytes`` of
            :class:`~datamodules.images.options.ImageOptions`. The cache keeps what ``load`` returns
            (PIL RGB or L, uint8 arrays or tensors), so ``load`` must not be random.
        **options: See :class:`~datamodules.core.options.DataModuleOptions`.

    Raises:
        ValueError: If neither or both forms are given, or labels do not fit.

    Example:
        >>> pairs = [(np.full(3, k, np.float32), "ab"[k % 2]) for k in range(20)]
        >>> dm = DatasetDataModule(pairs, val_split=4, test_split=0, num_workers=0)
        >>> dm.classes, dm.preview("val").inputs.shape
        (['a', 'b'], torch.Size([4, 3]))
    """

    _noun = "samples"

    def __init__(
        self,
        dataset: Data | None = None,
        *,
        train: Data | None = None,
        val: Data | None = None,
        test: Data | None = None,
        predict: Data | None = None,
        labels: Sequence[Any] | None = None,
        classes: list[str] | None = None,
        task: Literal["multiclass", "multilabel", "regression"] = "multiclass",
        load: Callable[[Any], Any] | Literal["image"] | None = None,
        inputs: str | None = None,
        target: str | None = None,
        train_transform: Callable[[Any], Any] | None = None,
        eval_transform: Callable[[Any], Any] | None = None,
        collate: str | Callable[[list[Any]], Any] = "stack",
        on_error: Literal["raise", "skip"] = "raise",
        max_errors: int = 100,
        image_options: ImageOptions | None = None,
        **options: Unpack[DataModuleOptions],
    ) -> None:
        refuse_renamed(DatasetDataModule, options)
        super().__init__(**options)
        if (dataset is None) == (train is None) and predict is None:
            raise ValueError("pass dataset=, which is split, or train= (with val= and test=)")
        if dataset is not None and (val is not None or test is not None):
            raise ValueError("dataset= is split into all parts; with val= or test= pass train=")
        if isinstance(collate, str) and not collate.startswith("<"):
            check_name(collate, COLLATES, "collate")
        if isinstance(load, str) and load != "image" and not load.startswith("<"):
            raise ValueError(f"load takes a function or 'image', got {load!r}")
        self._image_options = with_defaults(image_options, ("mean", "std", "cache", "cache_bytes"))
        if self._image_options["cache"] is not None and load is None:
            raise ValueError('cache="ram" keeps what load= returns; pass load=, or leave cache out')
        check_on_error(on_error, max_errors)
        check_name(task, ("multiclass", "multilabel", "regression"), "task")
        self.task = task
        given = {"train": train if dataset is None else dataset, "val": val, "test": test}
        self._given = {name: data for name, data in given.items() if data is not None}
        self._to_predict = predict
        self._labels, self._classes = labels, given_classes(classes, None)
        self._load: Any = open_image if load == "image" else load
        self._collate = COLLATES.get(collate, collate) if isinstance(collate, str) else collate
        self._train_transform, self._eval_transform = train_transform, eval_transform
        self._rows: dict[str, Indices] = {}
        self._found: dict[str, Any] = {}

    def read(self) -> None:
        """Find the labels and decide the splits."""
        if "train" not in self._given:
            raise ValueError("only predict= was given; for a fit pass dataset= or train=")
        for name in self._given:
            given_again(self._given[name], name)
        given_again(self._labels, "labels")
        train: Any = self._given["train"]
        if isinstance(train, IterableDataset):
            check_unsplit_stream(self.hparams)
        else:
            self._read_train(train)
        for split in self._given.keys() - {"train"}:
            data: Any = self._given[split]
            if not isinstance(data, IterableDataset):
                found = self._found[split] = find_labels(data, self.hparams["target"])
                single = found is not None and found.ndim == 1 and self.task == "multiclass"
                strata = found if single else None
                self._rows[split] = self._limit_rows(split, np.arange(len(data)), strata)

    def _read_train(self, train: Any) -> None:
        key = self.hparams["target"]
        found = find_labels(train, key) if self._labels is None else as_array(self._labels)
        if self._labels is not None and found is None:
            raise ValueError("labels must be one class, or one row of 0 and 1, for each sample")
        if found is not None and len(found) != len(train):
            raise ValueError(f"labels has {len(found)} entries, the dataset {len(train)} samples")
        self._found["train"] = found
        strata, names = None, None
        if found is not None and found.ndim == 1 and self.task == "multiclass":
            names, strata = np.unique(found, return_inverse=True)
        whole = self.hparams["dataset"] is not None
        cut = self.split_samples(
            len(train),
            labels=strata,
            names=None if names is None else names.astype(str).tolist(),
            given=() if whole else {"test", *self._given} - {"train"},
            column=lambda name: column_of(train, name),
        )
        self._rows = {s: rows for s, rows in cut.items() if whole or s == "train" or len(rows)}

    def fit(self) -> dict[str, Any]:
        """Return class names and counts, and sizes of the inputs from one train sample."""
        fitted: dict[str, Any] = {}
        train, found = self._given["train"], self._found.get("train")
        kept = self._classes or find_classes(train, self.hparams["target"])
        if self.task != "regression" and (found is not None or kept is not None):
            fitted |= fit_classes(
                found, kept, self._rows.get("train"), multilabel=self.task == "multilabel"
            )
        if not isinstance(train, IterableDataset) and len(self._rows["train"]):
            options = self._image_options
            parts = self._parts("val", with_target=False)
            sample = first_input(WrappedDataset(train, self._rows["train"], parts))
            fitted |= fit_inputs(sample, options["mean"], options["std"])
        return fitted

    def dataset(self, split: Split) -> Any:
        """Return the samples of one split; an iterable dataset unchanged."""
        if split == "predict":
            given = given_again(self._to_predict, "predict")
            if given is None or isinstance(given, IterableDataset):
                return given
            parts = self._parts(split, with_target=False)
            return WrappedDataset(given, np.arange(len(given)), parts)
        from_train = split in self._rows and split not in self._given
        data: Any = self._given.get("train" if from_train else split)
        if isinstance(data, IterableDataset) or data is None or not len(self._rows[split]):
            return None if not isinstance(data, IterableDataset) else data
        own = from_train or split == "train"
        labels = None
        if self._labels is not None and own:
            encode = self._encoder() or (lambda label: label)
            labels = [encode(label) for label in self._found["train"][self._rows[split]].tolist()]
        cache, part = ram_cache_of(self), "train" if from_train else split
        if cache is not None:
            cache.add_part(part, len(data))
        return WrappedDataset(
            data,
            self._rows[split],
            self._parts(split, with_target=labels is None),
            labels=labels,
            targets=self._targets(split) if own else None,
            cache=None if cache is None else (cache, part),
        )

    def _targets(self, split: Split) -> Indices | None:
        found, known = self._found.get("train"), self.fitted.get("known")
        if found is None or known is None:
            return None
        index = {label: k for k, label in enumerate(known)}
        return np.array([index[label] for label in found[self._rows[split]].tolist()], np.int64)

    def _default_collate(self, split: Split) -> Any:
        return given_again(self._collate, "collate")

    def _functions(self) -> SampleFunctions:
        return super()._functions()._replace(load=self._load, collate=self._collate)

    @property
    def predict_keys(self) -> list[int]:
        """Index of each predicted sample."""
        if not DatasetInterface(self.predict_dataset).is_map_style:
            raise ValueError(
                "an iterable dataset has no sample indices; pass a map-style dataset or a list"
            )
        return list(range(len(self.predict_dataset)))

    def split_fingerprint(self) -> str:
        """Return a digest of each split's rows and labels."""
        parts = [part for split, rows in sorted(self._rows.items()) for part in (split, rows)]
        for split, found in sorted(self._found.items()):
            parts += [split, "" if found is None else "\n".join(map(str, found.tolist()))]
        return fingerprint(*parts)

    # --- inside ------------------------------------------------------------------------------

    def _parts(self, split: Split, *, with_target: bool = True) -> Parts:
        train = split == "train" and self._augment
        return Parts(
            input_key=self.hparams["inputs"],
            target_key=self.hparams["target"],
            load=given_again(self._load, "load"),
            transform=self.train_transform if train else self.eval_transform,
            encode=self._encoder(),
            with_target=with_target,
            skip=self.hparams["on_error"] == "skip",
        )

    def _encoder(self) -> Any:
        if self.task != "multiclass":
            return as_floats
        if "known" not in self.fitted:
            return None
        return Encode({label: k for k, label in enumerate(self.fitted["known"])})

    def _loader(self, split: Split, *, num_workers: int | None = None) -> Loader:
        data = self._dataset(split)
        if not isinstance(data, IterableDataset):
            return super()._loader(split, num_workers=num_workers)
        check_stream_options(
            self.hparams,
            {
                "sampler": self.sampler not in ("shuffle", "sequential"),
                "labels": self._labels is not None,
                "cache": self._image_options["cache"] is not None,
                "loader_options={'drop_last': ...}": "drop_last" in self.loader_options,
            },
        )
        train, run = split == "train", self._run()
        size = self.hparams["batch_size"]
        if not train and run.trainer is not None and run.trainer.world_size > 1:
            # the length is not known: steps may be uneven
            ranks = run.trainer.world_size
            self._guard.watch(run.trainer.lightning_module, ranks, ranks)
        stream = StreamBatches(
            data,
            batch_size=size if train else self.hparams["eval_batch_size"] or size,
            transform=self._parts(split, with_target=split != "predict"),
            collate_fn=collate_of(self, split),
            seed=self.hparams["seed"],
            rest="repeat" if train else "keep",
            **run.ranks,
        )
        return make_stream_loader(
            stream,
            num_workers=self.hparams["num_workers"] if num_workers is None else num_workers,
            options=self.loader_options,
            normalizer=None if run.moves_to_device else self.normalizer,
            pin_memory=run.pins_memory,
        )
