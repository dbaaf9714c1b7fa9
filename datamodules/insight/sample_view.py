"""One sample in a person's terms: its image, text or row as the source has it, and its target."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from datamodules.adapters.dataset import Parts, WrappedDataset
from datamodules.batches.nested import is_named_tuple, tensors_of
from datamodules.images.dataset import ImageDataset, PixelDataset
from datamodules.images.transforms import to_row
from datamodules.tabular import TabularDataModule
from datamodules.text import TextDataModule

from .split_view import Looked

MOST_CELLS = 24


class Shown(NamedTuple):
    """What a source holds of one sample; what does not apply is None or empty.

    Attributes:
        name: File name, or row or line of a file.
        image: (C, H, W) uint8, before any transform.
        text: As it was written.
        cells: Column and cell as they were written.
    """

    name: str
    image: Tensor | None = None
    text: str | None = None
    cells: Sequence[tuple[str, str]] = ()


def show_sample(dm: Any, one: Looked, index: int) -> Shown:
    """A sample of a split, as its source has it.

    Args:
        dm: Whose data they are.
        one: The split.
        index: Position in the split's dataset.
    """
    name, data = one.describe(index), one.dataset
    if isinstance(dm, TextDataModule):
        table = dm._tables["predict" if one.split == "predict" else dm._rows[one.split][0]]
        row = int(data.rows[index])
        pair = [] if table.pairs is None else [table.pairs.text(row)]
        return Shown(name, text="\n".join([table.texts.text(row), *pair]))
    if isinstance(dm, TabularDataModule):
        return Shown(name, cells=_cells(dm, one, index))
    image = original(data, index)
    if image is not None:
        return Shown(name, image=image)
    sample = data[index]
    item = sample[0] if _is_pair(sample) else sample
    if isinstance(item, str):
        return Shown(name, text=item)
    parts = item.items() if isinstance(item, Mapping) else [("", item)]
    found = [
        (f"{key}[{place}]" if value.numel() > 1 else str(key), f"{number:.5g}")
        for key, part in parts
        for value in tensors_of(part)
        for place, number in enumerate(value.flatten()[:MOST_CELLS].tolist())
    ]
    return Shown(name, cells=found[:MOST_CELLS])


def original(data: Any, index: int) -> Tensor | None:
    """(C, H, W) uint8 of an image before any transform; None where that cannot be had."""
    while isinstance(data, Subset):
        index, data = int(data.indices[index]), data.dataset
    if isinstance(data, ImageDataset):
        return _pixels(ImageDataset(data.sources, None, None, mode=data.mode)[index])
    if isinstance(data, PixelDataset):
        return _pixels(data.get_batch(np.array([index]), None).inputs[0])
    if isinstance(data, WrappedDataset):
        if data.parts.transform is None:
            return original(data.dataset, int(data.rows[index]))
        of = data.parts
        bare = Parts(
            input_key=of.input_key, target_key=of.target_key, load=of.load, with_target=False
        )
        return _pixels(bare(data.dataset[int(data.rows[index])]))
    if not hasattr(data, "transform"):
        return None
    bare_data = copy.copy(data)
    bare_data.transform = None
    if hasattr(bare_data, "transforms"):  # torchvision's datasets apply this one
        bare_data.transforms = None
    try:
        sample = bare_data[index]
    except Exception:  # a dataset that cannot do without its transform
        return None
    return _pixels(sample[0] if _is_pair(sample) else sample)


def target_name(target: Any, classes: Sequence[str] | None, scale: Any = None) -> str:
    """A target as a person says it.

    Args:
        target: A class index, shares or flags (K,) of classes, or numbers (T,).
        classes: K names; None where targets are numbers.
        scale: ``{"mean": [...], "std": [...]}`` of scaled targets.

    Example:
        >>> target_name(1, ["ash", "oak"]), target_name(torch.tensor([1.0, 1.0]), ["ash", "oak"])
        ('oak', 'ash, oak')
        >>> target_name(torch.tensor([0.75, 0.25]), ["ash", "oak"]), target_name(0.5, None)
        ('ash 75%, oak 25%', '0.5')
    """
    values = torch.as_tensor(target)
    if classes is not None and not values.ndim and not values.is_floating_point():
        index = int(values)
        return str(classes[index]) if 0 <= index < len(classes) else f"class {index}"
    if classes is not None and values.ndim == 1 and len(values) == len(classes):
        there = torch.nonzero(values > 0).flatten().tolist()
        shares = bool(((values > 0) & (values < 1)).any())
        there = sorted(there, key=lambda k: -float(values[k])) if shares else there
        said = [f"{classes[k]} {float(values[k]):.0%}" for k in there]
        return ", ".join(said if shares else [str(classes[k]) for k in there]) or "no label"
    numbers = values.double().flatten()
    if scale is not None:
        numbers = numbers * torch.tensor(scale["std"]).double() + torch.tensor(scale["mean"])
    return ", ".join(f"{number:.5g}" for number in numbers.tolist())


def class_names(dm: Any, one: Looked | None = None) -> list[str] | None:
    """Class names of a datamodule or of a split's dataset; None where targets are numbers."""
    if getattr(dm, "task", None) == "regression":
        return None
    data = None if one is None else one.dataset
    while isinstance(data, Subset):
        data = data.dataset
    for holder in (dm, data):
        try:
            found = getattr(holder, "classes", None)
        except Exception:  # a source without classes, or one that cannot be read
            continue
        if found is not None:
            return [str(name) for name in found]
    return None


def _cells(dm: Any, one: Looked, index: int) -> list[tuple[str, str]]:
    table = dm._predict if one.split == "predict" else dm._parts[one.split].table
    row = int(one.dataset.names._rows[index])
    names = [feature["name"] for feature in dm.fitted["features"]]
    return [(name, _cell(table.columns[name], row)) for name in names[:MOST_CELLS]]


def _cell(column: Any, row: int) -> str:
    if column.missing[row]:
        return "(missing)"
    if column.style == "date":
        return str(np.datetime64(0, "s") + np.timedelta64(round(column.numbers[row] * 86_400), "s"))
    return str(column.word(row))


def _pixels(image: Any) -> Tensor | None:
    image = to_row(image)
    if isinstance(image, Tensor) and image.ndim == 3 and image.dtype == torch.uint8:
        return image if len(image) in (1, 3, 4) else None
    return None


def _is_pair(sample: Any) -> bool:
    return isinstance(sample, tuple | list) and len(sample) > 1 and not is_named_tuple(sample)
