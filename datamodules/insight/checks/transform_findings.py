"""Check the transforms: random evaluation, order of steps, strength, generators, pickling."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from datamodules.adapters.dataset import WrappedDataset
from datamodules.adapters.dataset_attributes import DatasetAttributes
from datamodules.batches.nested import tensors_of
from datamodules.images.transform_steps import all_steps
from datamodules.insight.findings import Finding
from datamodules.insight.split_view import SplitView, container_sizes, innermost
from datamodules.seeding.random_state import kept_random_state, own_generators, seed_all

TO_TENSOR = {"ToTensor", "ToImage", "PILToTensor", "ToImageTensor"}
DRAWS = (
    "Random",
    "ColorJitter",
    "AutoAugment",
    "TrivialAugment",
    "AugMix",
    "ElasticTransform",
    "Gaussian",
)
LOOKED_AT = 8
LONG = 50_000  # a list of so many str costs each worker some 10 MiB


@runtime_checkable
class OpenFile(Protocol):
    """A file or archive that a dataset keeps open."""

    def read(self, *args: Any) -> Any:
        """Return what the file holds."""
        ...


@runtime_checkable
class OpenDatabase(Protocol):
    """A connection to a database that a dataset keeps open."""

    def cursor(self, *args: Any) -> Any:
        """Return a cursor."""
        ...


def transform_findings(seen: Mapping[str, SplitView], *, samples: bool = True) -> Iterator[Finding]:
    """Look at each split's transform, and with ``samples`` fetch some of them twice."""
    for split, one in seen.items():
        names = [type(step).__name__ for step in all_steps(one.transform)]
        if names.count("Normalize") > 1:
            said = f"the {split} transform normalizes {names.count('Normalize')} times"
            yield Finding("error", "normalize-twice", said, "keep one Normalize, as last step")
        before = names[: names.index("Normalize")] if "Normalize" in names else []
        if "Normalize" in names and TO_TENSOR & set(names) and not TO_TENSOR & set(before):
            said = f"the {split} transform normalizes before the image is a tensor"
            yield Finding("error", "normalize-first", said, "put ToTensor before Normalize")
        if samples and split != "train":
            yield from _random(split, one, names)
        if samples and split == "train":
            yield from _kept(one, names)
        if own_generators(one.transform):
            said = f"the {split} transform has a random generator of its own"
            remedy = "workers get copies that return the same numbers: use torch's functions"
            yield Finding("warning", "own-generator", said, remedy)
        yield from _pickles(split, one)
    if "train" in seen and "val" in seen:
        yield from _strong(seen["train"], seen["val"])


def _fetch(one: SplitView, index: int, seed: int) -> list[Tensor]:
    with kept_random_state():
        seed_all(seed)
        return [t.clone() for t in tensors_of(one.dataset[index])]


def _random(split: str, one: SplitView, names: list[str]) -> Iterator[Finding]:
    if not one.is_map_style:
        return
    for index in range(min(LOOKED_AT, len(one))):
        try:
            first, second = _fetch(one, index, 1), _fetch(one, index, 2)
        except Exception:  # said where the batch is made
            return
        same = len(first) == len(second) and all(map(_equal, first, second))
        if not same:
            guilty = [name for name in names if name.startswith(DRAWS)]
            said = f"{one.describe(index)} differs when {split} fetches it twice"
            said += f" ({', '.join(guilty)} is random)" if guilty else ""
            yield Finding("error", "val-random", said, f"give {split} a fixed transform")
            return


def _kept(one: SplitView, names: list[str]) -> Iterator[Finding]:
    """Fetch train samples twice: what the dataset keeps of them, and whether that is augmented."""
    if not one.is_map_style or one.serves_batches:
        return
    same, moving = True, False
    for index in range(min(LOOKED_AT, len(one))):
        try:
            first = _fetch(one, index, 2 * index + 1)
            second = _fetch(one, index, 2 * index + 2)
        except Exception:  # said where the batch is made
            return
        same &= len(first) == len(second) and all(map(_equal, first, second))
        moving |= any(t.ndim > 1 and bool((t != t.flatten()[0]).any()) for t in first)
    sizes = container_sizes(one.dataset)
    grown = [name for name, size in sizes.items() if size > one.container_sizes.get(name, 0)]
    if not grown:
        return
    said = f"the train dataset keeps the samples it has returned, in {', '.join(grown)}"
    drawn = [name for name in names if name.startswith(DRAWS)]
    if same and moving and drawn:
        said += f": {', '.join(drawn)} runs once for each sample, so the augmentation is frozen"
        remedy = "cache the input of the random steps, and transform it each time"
        yield Finding("error", "augment-frozen", said, remedy)
    else:
        said += ": each worker has a copy of its own that grows"
        remedy = "cache arrays made before the workers start, or nothing"
        yield Finding("warning", "memory-grows", said, remedy)


def _equal(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and torch.equal(first.nan_to_num(), second.nan_to_num())


def _pickles(split: str, one: SplitView) -> Iterator[Finding]:
    named = {"transform": one.transform}
    if one.loader is not None:
        named["collate_fn"] = one.loader.collate_fn
        named["worker_init_fn"] = one.loader.worker_init_fn
    data = one.dataset
    while not isinstance(data, WrappedDataset):  # its own parts are checked, too
        if (inner := DatasetAttributes(data).inner) is None:
            break
        data = inner
    yield from _words(split, data)
    named |= {
        name: value
        for name, value in DatasetAttributes(data).members.items()
        if callable(value) or isinstance(value, OpenFile | OpenDatabase)
    }
    told: set[str] = set()
    for name, value in named.items():
        try:
            pickle.dumps(value)
        except Exception as error:
            if str(error) in told:  # what holds the transform fails for its sake
                continue
            told.add(str(error))
            said = f"{name} of {split} cannot be pickled ({type(error).__name__}: {error})"
            remedy = "spawned workers need it: use a function of a module in place of a lambda"
            yield Finding("warning", "not-picklable", said, remedy)


def _words(split: str, data: Any) -> Iterator[Finding]:
    """Long lists of objects: reading one writes its count, and copies its page in each worker."""
    for name, value in DatasetAttributes(innermost(data)).members.items():
        if isinstance(value, list) and len(value) >= LONG and not isinstance(value[0], Tensor):
            said = f"{name} of the {split} dataset is a list of {len(value):,} Python objects"
            remedy = "each worker copies it page by page: use one array or tensor"
            yield Finding("note", "memory-list", said, remedy)


def _strong(train: SplitView, val: SplitView) -> Iterator[Finding]:
    """Contrast that is left in augmented images, against evaluation's."""
    if not isinstance(train.inputs, Tensor) or not isinstance(val.inputs, Tensor):
        return
    if train.inputs.ndim != 4 or not train.inputs.is_floating_point():
        return
    left = [float(batch.float().std(dim=(2, 3)).mean()) for batch in (train.inputs, val.inputs)]
    if left[1] > 0 and left[0] < 0.35 * left[1]:
        said = f"augmented images keep {left[0] / left[1]:.0%} of the contrast of val's"
        remedy = "weaken the augmentation; look at dm.plot('train')"
        yield Finding("warning", "augment-strong", said, remedy)
