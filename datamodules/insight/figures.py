"""Figures of data: the pictures of a batch with their labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(dm: Any, split: str = "train", *, most: int = 16) -> Figure:
    """Pictures of one batch with their labels, stretched to the full range of grey.

    Args:
        dm: A datamodule of ours whose batches are pictures (N, C, H, W).
        split: Which.
        most: Pictures shown.

    Returns:
        A matplotlib figure, shown by a notebook, written by ``savefig``.

    Raises:
        ValueError: If the batches hold no pictures.
    """
    from matplotlib.figure import Figure

    batch = dm.preview(split)
    bare = isinstance(batch, Tensor)
    images, target = (batch, None) if bare else (batch[0], batch[1])
    if not isinstance(images, Tensor) or images.ndim != 4:
        raise ValueError(
            f"plot shows pictures (N, C, H, W), {split} batches hold "
            f"{type(images).__name__}; print(inspect(dm)) shows them in words"
        )
    images = images[:most].float()
    columns = min(8, len(images))
    rows = -(-len(images) // columns)
    figure = Figure(figsize=(1.5 * columns, 1.8 * rows), layout="constrained")
    names = None if target is None or target.ndim != 1 else dm.classes
    for place, image in enumerate(images):
        axes = figure.add_subplot(rows, columns, place + 1)
        low, high = image.amin(), image.amax()
        shown = ((image - low) / torch.clamp(high - low, min=1e-6)).permute(1, 2, 0).numpy()
        axes.imshow(np.repeat(shown, 3, 2) if shown.shape[2] == 1 else shown)
        axes.set_axis_off()
        if target is not None and names is not None:
            axes.set_title(names[int(target[place])][:16], fontsize=9)
    return figure
