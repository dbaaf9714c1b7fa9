"""Figures of images: a batch with its labels, augmented samples, image sizes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .canvas import INK, STYLES, WIDTH, Drawing, drawn, label, legend, new_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = tuple[Tensor, Tensor]
"""Mean and standard deviation of each channel."""
CELL = 0.76  # inches


@drawn
def image_grid(images: Tensor, titles: Sequence[str], scale: Scale | None = None) -> Figure:
    """Draw images of a batch under their labels.

    Args:
        images: (N, C, H, W).
        titles: N labels; empty for none.
        scale: Normalization to undo.
    """
    columns = min(4 if len(images) <= 8 else 6, max(1, len(images)))
    rows = -(-len(images) // columns)
    figure = new_figure(1.35 * rows, width=1.2 * columns)
    for place, image in enumerate(viewable(images, scale)):
        axes = figure.add_subplot(rows, columns, place + 1)
        axes.imshow(image)
        axes.set_axis_off()
        if titles:
            axes.set_title(label(titles[place], most=16, otherwise="(label)"), fontsize=9)
    return figure


class AugmentedSample(NamedTuple):
    """One sample before and after a random transform.

    Attributes:
        title: Its label.
        original: (C, H, W) uint8 as read; None if unknown.
        draws: D images (C, H, W), one for each epoch.
    """

    title: str
    original: Tensor | None
    draws: Sequence[Tensor]


@drawn
def augmentation_grid(
    split: str, samples: Sequence[AugmentedSample], scale: Scale | None = None
) -> Drawing:
    """Draw each sample in a row: the original, and what the transform returns in each epoch.

    Args:
        split: Name of the split.
        samples: At least one.
        scale: Normalization to undo in the draws.
    """
    draws = len(samples[0].draws)
    cell_size = min(CELL, (WIDTH - 1) / (draws + 1))
    width = WIDTH - cell_size * max(5, draws + 1)
    height = cell_size * len(samples) + 0.3
    figure = new_figure(height)
    figure.set_layout_engine("none")
    for row, sample in enumerate(samples):
        first = sample.original
        cells = [None if first is None else viewable(first[None], None)[0]]
        cells += [viewable(image[None], scale)[0] for image in sample.draws]
        top = height - 0.3 - cell_size * (row + 1)
        for column, cell in enumerate(cells):
            left, size = width + cell_size * column, cell_size - 0.05
            axes = figure.add_axes((left / WIDTH, top / height, size / WIDTH, size / height))
            axes.set_axis_off()
            if cell is None:
                axes.text(0.5, 0.5, "not\nknown", ha="center", va="center", fontsize=8, color=INK)
            else:
                axes.imshow(cell)
            if not row:
                axes.set_title("original" if not column else f"epoch {column}", fontsize=9, pad=4)
        lines = textwrap.wrap(label(sample.title, most=36, otherwise="(label)"), 13)[:3]
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
    random = any(not torch.equal(p, s.draws[0]) for s in samples for p in s.draws[1:])
    return Drawing(
        f"augmentation-{split}",
        f"The {split} transform",
        f"{len(samples)} {split} samples, each as read, with its size in pixels, and as "
        f"transformed in {draws} epochs; "
        + ("the transform is random" if random else "the transform is not random"),
        figure,
    )


@drawn
def image_sizes(
    sizes: Mapping[str, npt.NDArray[np.int64]], input_size: tuple[int, int] | None
) -> Drawing:
    """Draw width against height of the image files by split.

    Args:
        sizes: (N, 2) width and height by split, N >= 1.
        input_size: Height and width of the model's inputs, if known.
    """
    figure = new_figure(3.4)
    axes = new_axes(figure)
    for split, found in sizes.items():
        places, counts = np.unique(found, axis=0, return_counts=True)
        style = STYLES[split]
        axes.scatter(
            places[:, 0],
            places[:, 1],
            s=14 + 90 * np.sqrt(counts / counts.sum()),
            marker=style.marker,
            facecolors="none" if split != "train" else style.colour,
            edgecolors=style.colour,
            alpha=0.7,
            label=f"{split} ({len(found):,})",
        )
    every = np.concatenate(list(sizes.values()))
    low, high = every.min(0), every.max(0)
    tall, wide = input_size or (0, 0)
    if input_size is not None:
        axes.scatter(
            [wide], [tall], marker="x", s=70, color="black", linewidths=2,
            label=f"model input: {wide} x {tall}",
        )  # fmt: skip
    axes.set_xlabel("width in pixels")
    axes.set_ylabel("height in pixels")
    axes.set_xlim(left=0, right=1.08 * max(high[0], wide))
    axes.set_ylim(bottom=0, top=1.08 * max(high[1], tall))
    legend(figure, axes)
    text = (
        f"all images are {low[0]} x {low[1]} pixels"
        if bool((low == high).all())
        else f"widths from {low[0]} to {high[0]}, heights from {low[1]} to {high[1]} pixels; a "
        "larger mark stands for more images of that size"
    )
    return Drawing("image-sizes", "Image sizes", text, figure)


def viewable(images: Tensor, scale: Scale | None) -> npt.NDArray[np.float32]:
    """Return images as RGB from 0 to 1.

    uint8 is divided by 255. Floats are denormalized by ``scale``; without it they are kept if they
    are in 0..1, divided by 255 if they are in 0..255, else stretched from their lowest to their
    highest value.

    Args:
        images: (N, C, H, W); of more than three channels the first three are shown.
        scale: Mean and standard deviation by channel; None if the images are not normalized.

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
