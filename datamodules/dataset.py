"""Any dataset that a user brings: map-style, iterable, a list of pairs, Hugging Face."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from .adapters.dataset import Encode, Parts, WrappedDataset
from .adapters.find_labels import as_array, column_of, find_classes, find_labels
from .adapters.fit_dataset import fit_classes, fit_inputs
from .batches.bad_samples import ReadError, check_on_error
from .batches.collate import collate, list_pairs, pad_pairs
from .batches.dataset_interface import DatasetInterface
from .batches.normalize import Normalizer
from .core.datamodule import DataModule, Split
from .core.inside import SampleFunctions, collate_of, ram_cache_of
from .images.decode.decode import decode_image
from .images.ram_cache import RamCache, check_cache
from .loading.iterable import StreamBatches
from .loading.loader import Loader
from .loading.make_loader import make_stream_loader
from .seeding.random_state import kept_random_state
from .seeding.sample_seeds import Indices
from .settings.arguments import check_name, given_again
from .settings.class_map import given_classes
from .splits.split import fingerprint

Data = Dataset[Any] | Sequence[Any]
COLLATES = {"stack": collate, "pad": pad_pairs, "list": list_pairs}


class DatasetDataModule(DataModule):
    """A user's own dataset, with a split, transforms for train and eval apart, and exact loaders.

    Either ``dataset``, to be split, or ``train`` with ``val`` and ``test`` as far as they exist
    (a missing val is cut out of train)::

        DatasetDataModule([("a.jpg", "cat"), ("b.jpg", "dog"), ...], load="image")
        DatasetDataModule(train=MyDataset("train"), val=MyDataset("val"))
        DatasetDataModule(datasets.load_from_disk("reviews"), input_key="ids", collate="pad")

    Samples are ``(inputs, target)`` pairs or dicts. A batch::

        inputs  what the samples stack to; PaddedInputs with collate="pad", a list with "list"
        target  (N,) int64, (N, K) float32, or (N,) or (N, T) float32 with task="regression"

    Labels are read where the dataset keeps them (``targets``, ``samples``, a column, the second
    of a pair), through ``Subset`` and ``ConcatDataset``; no sample is opened for them. Images
    (PIL) become float32, normalised; tensors stay as they are.

    Args:
        dataset: One dataset to be split.
        train: The train part.
        val: The validation part.
        test: The test part.
        predict: Samples to be predicted: inputs alone, or pairs whose target is left out.
        labels: Label of each sample of ``dataset`` or ``train``, where it does not keep them.
        classes: Class names in the order of their index.
        task: ``"multiclass"``, ``"multilabel"`` or ``"regression"``.
        load: What opens the first part of a pair: a callable, or ``"image"`` for paths.
        input_key: Field of a dict sample that is the input; None: all but the target.
        target_key: Field that is the target; None: ``label``, ``labels`` or ``target``.
        train_transform: Applied to a train sample's input.
        eval_transform: The same for val, test and predict.
        cache: ``"ram"`` keeps what ``load`` gives (PIL of mode RGB or L, uint8 arrays or tensors)
            of train, val and test, once for all workers; ``load`` must not draw at random, and
            objects that change during a run are not loaded again.
        cache_bytes: The most that it takes; None: half of the free memory.
        collate: ``"stack"``, ``"pad"``, ``"list"``, or a function of a list of samples.
        mean: One value a channel for images; None: ImageNet's.
        std: As ``mean``.
        on_error: ``"raise"`` for a sample that the dataset or ``load`` cannot give, or ``"skip"``:
            as in :class:`~datamodules.image_folder.ImageFolderDataModule`. An error of a transform
            stops the run all the same.
        max_errors: With ``"skip"``, more samples of a split than this stop the run.
        **options: See :class:`~datamodules.core.datamodule.DataModule`.

    Raises:
        ValueError: If neither or both forms are given, or labels do not fit.
    """

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
        input_key: str | None = None,
        target_key: str | None = None,
        train_transform: Callable[[Any], Any] | None = None,
        eval_transform: Callable[[Any], Any] | None = None,
        cache: Literal["ram"] | None = None,
        cache_bytes: int | None = None,
        collate: str | Callable[[list[Any]], Any] = "stack",
        mean: list[float] | None = None,
        std: list[float] | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        max_errors: int = 100,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if (dataset is None) == (train is None) and predict is None:
            raise ValueError("pass dataset=, which is split, or train= (with val= and test=)")
        if dataset is not None and (val is not None or test is not None):
            raise ValueError("dataset= is split into all parts; with val= or test= pass train=")
        if isinstance(collate, str) and not collate.startswith("<"):
            check_name(collate, COLLATES, "collate")
        if isinstance(load, str) and load != "image" and not load.startswith("<"):
            raise ValueError(f"load takes a function or 'image', got {load!r}")
        check_cache(cache, cache_bytes)
        if cache is not None and load is None:
            raise ValueError('cache="ram" keeps what load= gives; pass load=, or leave cache out')
        check_on_error(on_error, max_errors)
        check_name(task, ("multiclass", "multilabel", "regression"), "task")
        self.task = task
        given = {"train": train if dataset is None else dataset, "val": val, "test": test}
        self._given = {name: data for name, data in given.items() if data is not None}
        self._to_predict = predict
        self._labels, self._classes = labels, given_classes(classes, None)
        self._load: Any = image if load == "image" else load
        self._collate = COLLATES.get(collate, collate) if isinstance(collate, str) else collate
        self._train_transform, self._eval_transform = train_transform, eval_transform
        self._rows: dict[str, Indices] = {}
        self._found: dict[str, Any] = {}

    _noun = "samples"

    def read(self) -> None:
        """Find the labels and decide the splits."""
        if "train" not in self._given:
            raise ValueError("only predict= was given; for a fit pass dataset= or train=")
        for name in self._given:
            given_again(self._given[name], name)
        given_again(self._labels, "labels")
        train: Any = self._given["train"]
        if isinstance(train, IterableDataset):
            if self.hparams["val_split"] or self.hparams["test_split"]:
                raise ValueError("an iterable dataset cannot be split; pass val= and test=")
            for name in ("split_options", "limit"):
                if self.hparams[name]:
                    raise ValueError(
                        f"an iterable dataset cannot be split or counted: {name} has no effect; "
                        "leave it out or give a map-style dataset"
                    )
        else:
            self._read_train(train)
        for split in self._given.keys() - {"train"}:
            data: Any = self._given[split]
            if not isinstance(data, IterableDataset):
                found = self._found[split] = find_labels(data, self.hparams["target_key"])
                single = found is not None and found.ndim == 1 and self.task == "multiclass"
                strata = found if single else None
                self._rows[split] = self._limit_rows(split, np.arange(len(data)), strata)

    def _read_train(self, train: Any) -> None:
        key = self.hparams["target_key"]
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
        """Class list and counts, and what one sample tells of the inputs."""
        fitted: dict[str, Any] = {}
        train, found = self._given["train"], self._found.get("train")
        kept = self._classes or find_classes(train, self.hparams["target_key"])
        if self.task != "regression" and (found is not None or kept is not None):
            fitted |= fit_classes(
                found, kept, self._rows.get("train"), multilabel=self.task == "multilabel"
            )
        if not isinstance(train, IterableDataset) and len(self._rows["train"]):
            fitted |= fit_inputs(
                self._first_input(train), self.hparams["mean"], self.hparams["std"]
            )
        return fitted

    def _first_input(self, train: Any) -> Any:
        """The first train sample's input, or of the first that can be read."""
        first = WrappedDataset(train, self._rows["train"], self._parts("val", with_target=False))
        skips = self.hparams["on_error"] == "skip"
        try:
            with kept_random_state():
                return first.placeholder() if skips else first[0]
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            if isinstance(error, ReadError):
                raise ValueError(f"no train sample can be read; the last is {error}") from error
            raise ValueError(
                f"the first train sample ({first.describe(0)}) cannot be made: {problem}"
            ) from error

    def dataset(self, split: Split) -> Any:
        """Samples of one split; an iterable dataset as it is."""
        if split == "predict":
            data = given_again(self._to_predict, "predict")
            if data is None or isinstance(data, IterableDataset):
                return data
            parts = self._parts(split, with_target=False)
            return WrappedDataset(data, np.arange(len(data)), parts)
        from_train = split in self._rows and split not in self._given
        data = self._given.get("train" if from_train else split)
        if isinstance(data, IterableDataset) or data is None or not len(self._rows[split]):
            return None if not isinstance(data, IterableDataset) else data
        own = from_train or split == "train"
        labels = None
        if self._labels is not None and own:
            encode = self._encoder() or (lambda label: label)
            labels = [encode(label) for label in self._found["train"][self._rows[split]].tolist()]
        return WrappedDataset(
            data,
            self._rows[split],
            self._parts(split, with_target=labels is None),
            labels=labels,
            targets=self._targets(split) if own else None,
            cache=self._cache_of("train" if from_train else split, data),
        )

    def _cache_of(self, part: str, data: Any) -> tuple[RamCache, str] | None:
        cache = ram_cache_of(self)
        if cache is None:
            return None
        cache.add_part(part, len(data))
        return cache, part

    def _targets(self, split: Split) -> Indices | None:
        found, known = self._found.get("train"), self.fitted.get("known")
        if found is None or known is None:
            return None
        index = {label: k for k, label in enumerate(known)}
        return np.array([index[label] for label in found[self._rows[split]].tolist()], np.int64)

    def _default_collate(self, split: Split) -> Any:
        return given_again(self._collate, "collate")

    def _functions(self) -> SampleFunctions:
        return SampleFunctions(
            train_transform=self._train_transform,
            load=self._load,
            collate=self._collate,
            given=(self._train_transform, self._eval_transform),
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what was fitted; see the base."""
        super().load_state_dict(state_dict)
        self._set_normalizer()

    @property
    def predict_keys(self) -> list[int]:
        """Position of each predicted sample."""
        if not DatasetInterface(self.predict_dataset).is_map_style:
            raise ValueError("a stream has no positions to predict by; pass with_rows or a list")
        return list(range(len(self.predict_dataset)))

    def split_fingerprint(self) -> str:
        """Digest of each split's rows and labels."""
        parts: list[Any] = []
        for split, rows in sorted(self._rows.items()):
            parts += [split, rows]
        for split, found in sorted(self._found.items()):
            parts += [split, "" if found is None else "\n".join(map(str, found.tolist()))]
        return fingerprint(*parts)

    # --- inside ------------------------------------------------------------------------------

    def _ensure_read(self, stage: str | None) -> None:
        super()._ensure_read(stage)
        self._set_normalizer()

    def _set_normalizer(self) -> None:
        if "mean" in self.fitted:
            self.normalizer = Normalizer(self.fitted["mean"], self.fitted["std"])

    def _parts(self, split: Split, *, with_target: bool = True) -> Parts:
        train = split == "train"
        transform = self._train_transform if train else self._eval_transform
        return Parts(
            input_key=self.hparams["input_key"],
            target_key=self.hparams["target_key"],
            load=given_again(self._load, "load"),
            transform=given_again(transform, "train_transform" if train else "eval_transform"),
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
        self._check_stream()
        train = split == "train"
        size = self.hparams["batch_size"]
        run = self._run()
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

    def _check_stream(self) -> None:
        """Refuse what only a dataset with positions can honour."""
        asked = {
            "sampler": self.sampler not in ("shuffle", "sequential"),
            "global_batch_size": self.hparams["global_batch_size"] is not None,
            "uneven": self.hparams["uneven"] != "repeat",
            "labels": self._labels is not None,
            "worker_type": self.hparams["worker_type"] == "thread",
            "with_rows": self.hparams["with_rows"],
            "on_error": self.hparams["on_error"] != "raise",
            "cache": self.hparams["cache"] is not None,
            "loader_options={'drop_last': ...}": "drop_last" in self.loader_options,
        }
        named = [name for name, given in asked.items() if given]
        if named:
            raise ValueError(
                f"an iterable dataset comes in its own order: {', '.join(named)} cannot be "
                "honoured; leave it out or give a map-style dataset"
            )


def image(source: Any) -> Image.Image:
    """Open an image file as RGB; a function of this module, so that it pickles."""
    return decode_image(source, mode="RGB")


def as_floats(target: Any) -> Tensor:
    """Target of a regression, or of several labels, as float32."""
    return torch.as_tensor(target, dtype=torch.float32)
