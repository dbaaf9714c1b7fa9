"""Figures that ``DataModule.plot`` returns, drawn by `datamodules.figures`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from datamodules.adapters.user_samples import input_transform
from datamodules.batches.inspection_interface import ColumnValues, HasColumns
from datamodules.batches.nested import tensors_of
from datamodules.batches.normalize import Normalizer
from datamodules.figures.canvas import Drawing
from datamodules.figures.columns import MOST_COLUMNS, column_histograms
from datamodules.figures.images import Scale, image_grid
from datamodules.figures.lengths import text_lengths
from datamodules.figures.target_text import target_text
from datamodules.images.transform_steps import as_pixels, normalization_of
from datamodules.loading.fetch import KeyedDataset
from datamodules.sampling.length_buckets import length_bounds
from datamodules.texts.dataset import TextDataset

from .accessors import dataset_of, normalizer_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .datamodule import DataModule, Split


def plot_batch(dm: DataModule, split: Split, batch: Any, *, most: int = 16) -> Figure:
    """Draw the images of a batch under their labels, or the columns or text lengths of a split.

    Args:
        dm: The datamodule.
        split: Name of the split.
        batch: ``(inputs, target)``, or inputs alone.
        most: Images drawn.

    Raises:
        ValueError: If samples are neither images (N, C, H, W) nor table rows nor texts.
    """
    data = dataset_of(dm, split)
    inputs, target = batch if isinstance(batch, tuple | list) and len(batch) == 2 else (batch, None)
    if is_image_batch(inputs):
        classes = None if dm.task == "regression" else dm.fitted.get("classes")
        titles = [target_text(t, classes) for t in ([] if target is None else target[:most])]
        return image_grid(inputs[:most], titles, batch_scale(data, normalizer_of(dm, data)))
    if isinstance(data, HasColumns):
        return column_histograms(data.column_values(), split).figure
    if isinstance(data, TextDataset):
        return draw_lengths(dm, {split: data}).figure
    if split != "predict" and (values := matrix_columns(inputs, data)):
        return column_histograms(values, split).figure
    raise ValueError(
        f"plot draws images (N, C, H, W), columns of tables and lengths of texts, got "
        f"{type(inputs).__name__} in the {split} batch; print(inspect(dm)) describes it in words"
    )


def draw_lengths(dm: DataModule, texts: Mapping[str, TextDataset]) -> Drawing:
    """Draw the lengths of the texts of some splits, train first."""
    lengths = {split: data.lengths() for split, data in texts.items()}
    truncated = {split: int(data.truncated().sum()) for split, data in texts.items()}
    bounds = length_bounds(dm.sampler, next(iter(lengths.values())))
    return text_lengths(lengths, bounds, int(dm.hparams["batch_size"]), truncated)


def is_image_batch(inputs: Any) -> bool:
    """Return whether inputs are images (N, C, H, W)."""
    return isinstance(inputs, Tensor) and inputs.ndim == 4 and inputs.shape[1] in (1, 3, 4)


def batch_scale(dataset: Any, normalizer: Any) -> Scale | None:
    """Return mean and standard deviation that the batches of a dataset are normalized by."""
    if isinstance(normalizer, Normalizer) and len(dataset):
        # the loader's own way to a sample before normalization, which takes uint8 only
        made = KeyedDataset(dataset, collate_fn=list).__getitems__([0])
        first = made.inputs[0] if hasattr(made, "inputs") else made[0]
        if as_pixels(first[0] if isinstance(first, tuple) else first) is not None:
            return Tensor(normalizer.mean), Tensor(normalizer.std)
    return normalization_of(input_transform(dataset))


def matrix_columns(inputs: Any, dataset: Any) -> list[ColumnValues]:
    """Return the first 12 columns of float inputs (N, F), by number; empty for other inputs."""
    tensors = list(tensors_of(inputs))
    if len(tensors) != 1 or tensors[0].ndim != 2 or not tensors[0].is_floating_point():
        return []
    whole = getattr(dataset, "tensors", (getattr(dataset, "features", None),))[0]
    if not (isinstance(whole, Tensor) and whole.ndim == 2 and len(whole) == len(dataset)):
        whole = tensors[0]  # all that is known without reading every sample
    columns = whole[:, :MOST_COLUMNS].detach().double().numpy().T
    return [ColumnValues(str(k), c[np.isfinite(c)], {}) for k, c in enumerate(columns)]
