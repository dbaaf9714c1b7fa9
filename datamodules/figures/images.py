"""Figures of images: a batch with its labels, what augmentation makes of them, their sizes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from datamodules.batches.nested import tensors_of
from datamodules.images.dataset import ImageDataset
from datamodules.images.transforms import to_row
from datamodules.insight.checks.transform_findings import steps
from datamodules.insight.sample_view import class_names, original, target_name
from datamodules.insight.split_view import Looked
from datamodules.loading.fetch import KeyedDataset
from datamodules.sampling.sharded_sampler import Keys
from datamodules.seeding.sample_seeds import run_seed, sample_seeds

from .canvas import INK, STYLES, WIDTH, Drawing, drawn, label, legend, new_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = tuple[Tensor, Tensor]
MOST_SIZES = 2_000  # headers read a split
ORIENTATION = 0x0112  # Exif; from 5 on, width and height change places
CELL = 0.76  # inches


@drawn
def batch_images(dm: Any, one: Looked, *, most: int = 16) -> Figure:
    """Images of a split's batch under their labels, normalisation undone.

    Args:
        dm: Whose data they are.
        one: The split; its batch holds images (N, C, H, W).
        most: Images shown.
    """
    images, target = one.inputs[:most], one.target
    names, scale = class_names(dm, one), getattr(dm, "target_scale", None)
    columns = min(4 if len(images) <= 8 else 6, max(1, len(images)))
    rows = -(-len(images) // columns)
    figure = new_figure(1.35 * rows, width=1.2 * columns)
    for place, image in enumerate(viewable(images, normalisation(dm, one))):
        axes = figure.add_subplot(rows, columns, place + 1)
        axes.imshow(image)
        axes.set_axis_off()
        if target is not None:
            said = target_name(target[place], names, scale)
            axes.set_title(label(said, most=16, otherwise=f"class {target[place]}"), fontsize=9)
    return figure


@drawn
def augmentation_grid(dm: Any, one: Looked, *, samples: int = 6, draws: int = 4) -> Drawing:
    """Rows are samples, columns the original and what the transform makes of it, epoch by epoch.

    Draws are those of the first epochs of a fit with the datamodule's seed.

    Args:
        dm: Whose data they are.
        one: The split; its samples are images.
        samples: Rows.
        draws: Columns beside the original.
    """
    chosen = _spread(one, samples)
    made = [_draw(dm, one, chosen, epoch) for epoch in range(draws)]
    classes, scale = class_names(dm, one), getattr(dm, "target_scale", None)
    undone = transform_scale(one)
    cell_size = min(CELL, (WIDTH - 1) / (draws + 1))
    width = WIDTH - cell_size * max(5, draws + 1)
    height = cell_size * len(chosen) + 0.3
    figure = new_figure(height)
    figure.set_layout_engine("none")
    varied = False
    for row, index in enumerate(chosen.tolist()):
        first = original(one.dataset, index)
        cells = [None if first is None else viewable(first[None], None)[0]]
        images = [_image(column[row]) for column in made]
        varied |= any(not torch.equal(p, images[0]) for p in images[1:])
        cells += [viewable(image[None], undone)[0] for image in images]
        top = height - 0.3 - cell_size * (row + 1)
        for column, cell in enumerate(cells):
            place = (width + cell_size * column, top, cell_size - 0.05, cell_size - 0.05)
            axes = figure.add_axes(_share(place, height))
            axes.set_axis_off()
            if cell is None:
                axes.text(0.5, 0.5, "not\nknown", ha="center", va="center", fontsize=8, color=INK)
            else:
                axes.imshow(cell)
            if not row:
                axes.set_title("original" if not column else f"draw {column}", fontsize=9, pad=4)
        target = made[0][row][1]
        said = "" if target is None else target_name(target, classes, scale)
        said = label(said, most=36, otherwise=f"class {target}")
        lines = textwrap.wrap(said, 13)[:3]
        if first is not None:
            lines.append(f"{first.shape[2]} x {first.shape[1]}")
        figure.text(
            (width - 0.06) / WIDTH,
            (top + cell_size / 2) / height,
            "\n".join(lines),
            ha="right",
            va="center",
            fontsize=8,
            color=INK,
        )
    said = "the draws of a sample differ" if varied else "all draws are the same: nothing is random"
    return Drawing(
        f"augmentation-{one.split}",
        f"What the {one.split} transform makes of images",
        f"{len(chosen)} {one.split} samples, each as it was read, with its size in pixels, and as "
        f"the transform gives it in {draws} epochs; {said}",
        figure,
    )


@drawn
def image_sizes(dm: Any, seen: Mapping[str, Looked]) -> Drawing | None:
    """Width and height of the files by split, and what the transform makes of them.

    Headers of the first 2,000 files a split, evenly spread, are read. None without files.
    """
    found = {split: _sizes(one) for split, one in seen.items()}
    found = {split: sizes for split, sizes in found.items() if len(sizes)}
    if not found:
        return None
    figure = new_figure(3.4)
    axes = new_axes(figure)
    for split, sizes in found.items():
        places, counts = np.unique(sizes, axis=0, return_counts=True)
        style = STYLES[split]
        axes.scatter(
            places[:, 0],
            places[:, 1],
            s=14 + 90 * np.sqrt(counts / counts.sum()),
            marker=style.marker,
            facecolors="none" if split != "train" else style.colour,
            edgecolors=style.colour,
            alpha=0.7,
            label=f"{split} ({len(sizes):,})",
        )
    every = np.concatenate(list(found.values()))
    low, high = every.min(0), every.max(0)
    given = next((tuple(t.shape[-2:]) for t in tensors_of(seen[next(iter(found))].inputs)), None)
    if given is not None:
        axes.scatter(
            [given[1]], [given[0]], marker="x", s=70, color="black", linewidths=2,
            label=f"into the net: {given[1]} x {given[0]}",
        )  # fmt: skip
    axes.set_xlabel("width in pixels")
    axes.set_ylabel("height in pixels")
    axes.set_xlim(left=0, right=1.08 * max(high[0], given[1] if given else 0))
    axes.set_ylim(bottom=0, top=1.08 * max(high[1], given[0] if given else 0))
    legend(figure, axes)
    one_size = bool((low == high).all())
    said = (
        f"all images are {low[0]} x {low[1]} pixels"
        if one_size
        else f"widths from {low[0]} to {high[0]}, heights from {low[1]} to {high[1]} pixels; a "
        "larger mark stands for more images of that size"
    )
    return Drawing("image-sizes", "Sizes of the images", said, figure)


def viewable(images: Tensor, scale: Scale | None) -> npt.NDArray[np.float32]:
    """Images as a screen takes them.

    uint8 as it is; floats by ``scale``, else as they are where they lie in 0..1 or 0..255, else
    stretched together from their lowest to their highest value.

    Args:
        images: (N, C, H, W); of more than three channels the first three are shown.
        scale: Mean and standard deviation by channel to be undone.

    Returns:
        (N, H, W, 3) from 0 to 1.
    """
    values = images.detach().cpu().float().nan_to_num()
    if images.dtype == torch.uint8:
        values = values / 255
    elif scale is not None and len(scale[0]) in (1, values.shape[1]):
        values = values * scale[1].view(-1, 1, 1) + scale[0].view(-1, 1, 1)
    elif values.numel() and not 0 <= float(values.min()) <= float(values.max()) <= 1:
        low, high = values.min(), values.max()
        whole = low >= 0 and 30 < high <= 255
        values = values / 255 if whole else (values - low) / torch.clamp(high - low, min=1e-6)
    values = values[:, :3] if values.shape[1] > 2 else values[:, :1].repeat(1, 3, 1, 1)
    shown: npt.NDArray[np.float32] = values.clamp(0, 1).permute(0, 2, 3, 1).numpy()
    return shown


def normalisation(dm: Any, one: Looked) -> Scale | None:
    """Mean and standard deviation that a split's batches were normalised by, or None."""
    # the dataset's own is the end of its transform
    normalizer = getattr(one.dataset, "normalizer", None) or getattr(dm, "normalizer", None)
    if normalizer is not None and hasattr(normalizer, "mean") and len(one):
        made = _draw(dm, one, np.array([0]), 0)[0][0]
        if _image((made, None)).dtype == torch.uint8:  # the finishing step takes those alone
            return torch.tensor(normalizer.mean), torch.tensor(normalizer.std)
    return transform_scale(one)


def transform_scale(one: Looked) -> Scale | None:
    """Mean and standard deviation of the ``Normalize`` in a split's transform, or None."""
    for step in reversed(steps(one.transform())):
        if type(step).__name__ == "Normalize" and hasattr(step, "mean") and hasattr(step, "std"):
            mean, std = (torch.as_tensor(v).float().flatten() for v in (step.mean, step.std))
            return mean, std
    return None


def shows_images(one: Looked) -> bool:
    """Whether a split's batches are images (N, C, H, W)."""
    inputs = one.inputs
    return isinstance(inputs, Tensor) and inputs.ndim == 4 and inputs.shape[1] in (1, 3, 4)


def _draw(dm: Any, one: Looked, indices: npt.NDArray[np.int64], epoch: int) -> list[Any]:
    """Samples ``(input, target)`` as an epoch of a fit makes them."""
    given = getattr(dm, "hparams", {}).get("seed")
    seed = run_seed(given if isinstance(given, int) else None)
    keys = Keys(indices, sample_seeds(seed, epoch, indices, np.zeros(1, np.int64)))
    # the loader's own way to a batch, without joining it
    made = KeyedDataset(one.dataset, collate_fn=list).__getitems__(keys)
    if hasattr(made, "inputs"):
        return list(zip(made.inputs, made.target, strict=True))
    return [s if isinstance(s, tuple) and len(s) == 2 else (s, None) for s in made]


def _image(sample: Any) -> Tensor:
    found = next(tensors_of(to_row(sample[0])), None)
    if found is None or found.ndim != 3:
        raise ValueError("its samples hold no image (C, H, W)")
    return found


def _spread(one: Looked, most: int) -> npt.NDArray[np.int64]:
    """Positions of samples of different classes, else evenly spread."""
    labels = one.labels()
    if labels is not None and len(labels) == len(one):
        places: npt.NDArray[np.int64] = np.unique(labels, return_index=True)[1]
        if len(places) >= most:
            return places[np.linspace(0, len(places) - 1, most).round().astype(np.int64)]
    return np.unique(np.linspace(0, len(one) - 1, most).round().astype(np.int64))


def _sizes(one: Looked) -> npt.NDArray[np.int64]:
    data = one.dataset
    if not isinstance(data, ImageDataset):
        return np.empty((0, 2), np.int64)
    chosen = np.unique(np.linspace(0, len(data) - 1, MOST_SIZES).astype(np.int64))
    found = []
    for index in chosen.tolist():
        source = data.sources[index]
        if not isinstance(source, str) or not Path(source).is_file():
            continue
        try:
            with Image.open(source) as image:
                width, height = image.size
                turned = image.getexif().get(ORIENTATION, 1) >= 5
        except Exception:  # a damaged file is a finding of its own
            continue
        found.append((height, width) if turned else (width, height))
    return np.array(found, np.int64).reshape(-1, 2)


def _share(
    place: tuple[float, float, float, float], height: float
) -> tuple[float, float, float, float]:
    left, bottom, across, up = place
    return left / WIDTH, bottom / height, across / WIDTH, up / height
