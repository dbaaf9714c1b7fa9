"""Collect what the figures of a report show, and draw them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor

from datamodules.adapters.user_samples import known_targets, raw_image
from datamodules.batches.batch import Batch
from datamodules.batches.inspection_interface import ColumnValues, HasColumns
from datamodules.batches.nested import tensors_of
from datamodules.core.plotting import draw_lengths, is_image_batch, matrix_columns
from datamodules.figures.canvas import Drawing
from datamodules.figures.classes import Counts, class_bars, target_histogram
from datamodules.figures.columns import column_histograms, missing_bars
from datamodules.figures.images import AugmentedSample, augmentation_grid, image_sizes
from datamodules.figures.target_text import target_text
from datamodules.images.transform_steps import normalization_of
from datamodules.images.transforms import to_row
from datamodules.loading.fetch import KeyedDataset
from datamodules.sampling.sharded_sampler import Keys
from datamodules.seeding.sample_seeds import run_seed, sample_seeds
from datamodules.tables.dataset import RowDataset
from datamodules.texts.dataset import TextDataset

from .datamodule_view import DataModuleView
from .split_view import SplitView, class_names

MOST_TARGETS = 4
MOST_SIZES = 2_000  # image headers read per split
ORIENTATION = 0x0112  # Exif; from 5 on, width and height are swapped

Views = Mapping[str, SplitView]


def drawings(dm: Any, views: Views, failed: list[str]) -> list[Drawing]:
    """Return every figure that the data allow.

    Args:
        dm: Any datamodule.
        views: Its splits.
        failed: Receives a line for each figure that could not be drawn.
    """
    made = []
    for name, draw in _figures(dm, views):
        try:
            drawing = draw()
        except Exception as error:  # one sample that cannot be shown costs one figure
            failed.append(f"{name} could not be drawn: {type(error).__name__}: {error}")
            continue
        made += [] if drawing is None else [drawing]
    return made


def _figures(dm: Any, views: Views) -> Iterator[tuple[str, Callable[[], Drawing | None]]]:
    first = views.get("train") or next(iter(views.values()), None)
    if first is None:
        return
    if is_image_batch(first.inputs):
        if (view := views.get("train")) is not None:
            yield "the train transform", lambda: draw_augmentation(dm, view)
        if (other := views.get("val")) is not None:
            yield "the val transform", lambda: draw_augmentation(dm, other, samples=3, draws=2)
    yield "classes by split", lambda: _draw_classes(dm, views)
    for name, values in _named_targets(dm, views):
        yield f"target {name}", lambda v=values, n=name: target_histogram(v, n)  # type: ignore[misc]
    yield "image sizes", lambda: draw_sizes(views)
    yield "text lengths", lambda: _draw_lengths(dm, views)
    yield "values by column", lambda: _draw_columns(first)
    yield "missing cells", lambda: _draw_missing(views)


def class_counts(dm: Any, views: Views) -> tuple[list[str], dict[str, Counts]] | None:
    """Return class names and the (K,) samples of each class by split; None if unknown.

    Multi-label samples are counted once for each of their labels.
    """
    counts: dict[str, Counts] = {}
    for split, view in views.items():
        found = known_targets(view.dataset)
        if found is None or not found.size or DataModuleView(dm).task == "regression":
            continue
        if found.ndim == 2 and bool(((found == 0) | (found == 1)).all()):
            counts[split] = (found > 0).sum(0).astype(np.int64)
        elif found.ndim == 1 and np.issubdtype(found.dtype, np.integer) and found.min() >= 0:
            counts[split] = np.bincount(found).astype(np.int64)
    if not counts:
        return None
    names = class_names(dm, next(iter(views.values()))) or []
    width = max(len(names), *map(len, counts.values()))
    names += [str(k) for k in range(len(names), width)]
    return names, {split: np.pad(c, (0, width - len(c))) for split, c in counts.items()}


def regression_targets(dm: Any, views: Views) -> dict[str, npt.NDArray[np.float64]]:
    """Return the (N, T) regression targets by split, in their own units; empty if none."""
    found = {}
    known = DataModuleView(dm)
    scale = known.target_scale if known.task == "regression" else None
    for split, view in views.items():
        targets = known_targets(view.dataset)
        if isinstance(view.dataset, RowDataset):
            targets = view.dataset.regression_targets
        if targets is None or not np.issubdtype(targets.dtype, np.floating) or not targets.size:
            continue
        values = targets.reshape(len(targets), -1).astype(np.float64)
        if scale is not None:
            values = values * np.array(scale["std"]) + np.array(scale["mean"])
        found[split] = values
    return found


def missing_shares(views: Views) -> dict[str, dict[str, float]]:
    """Return the share of missing cells by column and split, of columns with any, most first."""
    shares: dict[str, dict[str, float]] = {}
    for split, view in views.items():
        if isinstance(view.dataset, HasColumns):
            for name, share in view.dataset.missing_shares().items():
                shares.setdefault(name, {})[split] = share
    incomplete = {name: found for name, found in shares.items() if max(found.values()) > 0}
    return dict(sorted(incomplete.items(), key=lambda item: -max(item[1].values())))


def column_values(view: SplitView) -> list[ColumnValues]:
    """Return the columns of a split; empty if samples are not rows."""
    if isinstance(view.dataset, HasColumns):
        return view.dataset.column_values()
    return matrix_columns(view.inputs, view.dataset)


def draw_augmentation(dm: Any, view: SplitView, *, samples: int = 6, draws: int = 4) -> Drawing:
    """Draw samples of different classes as read, and as the first epochs of a fit make them.

    Args:
        dm: The datamodule; its ``seed`` is used.
        view: The split; its samples are images.
        samples: Number of samples.
        draws: Number of epochs.
    """
    chosen = _spread(view, samples)
    made = [_epoch_samples(dm, view, chosen, epoch) for epoch in range(draws)]
    classes = class_names(dm, view)
    grid = []
    for row, index in enumerate(chosen.tolist()):
        target = made[0][row][1]
        grid.append(
            AugmentedSample(
                "" if target is None else target_text(target, classes),
                raw_image(view.dataset, index),
                [_image(column[row]) for column in made],
            )
        )
    return augmentation_grid(view.split, grid, normalization_of(view.transform))


def _epoch_samples(
    dm: Any, view: SplitView, indices: npt.NDArray[np.int64], epoch: int
) -> list[Any]:
    """Return samples ``(input, target)`` as an epoch of a fit makes them."""
    given = DataModuleView(dm).settings.get("seed")
    seed = run_seed(given if isinstance(given, int) else None)
    keys = Keys(indices, sample_seeds(seed, epoch, indices, np.zeros(1, np.int64)))
    # the loader's own way to a batch, without collating it
    made = KeyedDataset(view.dataset, collate_fn=list).__getitems__(keys)
    if isinstance(made, Batch):
        return list(zip(made.inputs, made.target, strict=True))
    return [s if isinstance(s, tuple) and len(s) == 2 else (s, None) for s in made]


def _image(sample: Any) -> Tensor:
    found = next(tensors_of(to_row(sample[0])), None)
    if found is None or found.ndim != 3:
        raise ValueError("the samples have no image (C, H, W)")
    return found


def _spread(view: SplitView, most: int) -> npt.NDArray[np.int64]:
    """Return positions of samples of different classes, else evenly spread."""
    labels = view.labels()
    if labels is not None and len(labels) == len(view):
        places: npt.NDArray[np.int64] = np.unique(labels, return_index=True)[1]
        if len(places) >= most:
            return places[np.linspace(0, len(places) - 1, most).round().astype(np.int64)]
    return np.unique(np.linspace(0, len(view) - 1, most).round().astype(np.int64))


def draw_sizes(views: Views) -> Drawing | None:
    """Draw the sizes of up to 2,000 image files of each split, from their headers."""
    sizes = {split: _sizes(view.paths) for split, view in views.items()}
    sizes = {split: found for split, found in sizes.items() if len(found)}
    if not sizes:
        return None
    inputs = next(tensors_of(views[next(iter(sizes))].inputs), None)
    is_image = inputs is not None and inputs.ndim >= 2
    return image_sizes(sizes, tuple(inputs.shape[-2:]) if is_image else None)  # type: ignore[union-attr]


def _sizes(paths: list[str]) -> npt.NDArray[np.int64]:
    found = []
    for index in np.unique(np.linspace(0, len(paths) - 1, MOST_SIZES).astype(int)) if paths else ():
        path = Path(paths[index])
        if not path.is_file():
            continue
        try:
            with Image.open(path) as image:
                width, height = image.size
                turned = image.getexif().get(ORIENTATION, 1) >= 5
        except Exception:  # a damaged file is a finding of its own
            continue
        found.append((height, width) if turned else (width, height))
    return np.array(found, np.int64).reshape(-1, 2)


def _draw_classes(dm: Any, views: Views) -> Drawing | None:
    found = class_counts(dm, views)
    return None if found is None else class_bars(*found)


def _named_targets(dm: Any, views: Views) -> Iterator[tuple[str, dict[str, Any]]]:
    found = regression_targets(dm, views)
    count = min((values.shape[1] for values in found.values()), default=0)
    names = DataModuleView(dm).target_names or []
    for place in range(min(count, MOST_TARGETS)):
        numbered = "value" if count == 1 else f"value {place + 1}"
        name = str(names[place]) if len(names) == count else numbered
        yield name, {split: values[:, place] for split, values in found.items()}


def _draw_lengths(dm: Any, views: Views) -> Drawing | None:
    datasets = {s: view.dataset for s, view in views.items() if len(view)}
    texts = {s: data for s, data in datasets.items() if isinstance(data, TextDataset)}
    return draw_lengths(dm, texts) if texts else None


def _draw_columns(view: SplitView) -> Drawing | None:
    values = column_values(view)
    return column_histograms(values, view.split) if values else None


def _draw_missing(views: Views) -> Drawing | None:
    shares = missing_shares(views)
    return missing_bars(shares) if shares else None
