"""The dataset of images in memory, which returns a batch in one call."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from datamodules.batches.batch import Batch
from datamodules.batches.dataset_interface import Sample
from datamodules.batches.inspection_interface import Trace
from datamodules.seeding.sample_seeds import Seeds, draw_integers

from .transform_steps import as_pixels


class PixelDataset(Dataset[Any]):
    """A dataset of images in memory, read, shifted and flipped a batch at a time.

    A random shift is a window of the padded image, so that a crop costs no more than a copy. Random
    numbers are drawn from the seed of each sample.

    Args:
        pixels: (N, C, H, W) uint8.
        targets: (N,) int64.
        padding: Pixels of zeros around each image for the random shift; 0: no shift.
        flip: Whether half of the images are flipped horizontally.
        keys: As in :class:`ImageDataset`.
        part: As in :class:`ImageDataset`.

    Example:
        >>> data = PixelDataset(torch.zeros(5, 3, 8, 8, dtype=torch.uint8), torch.arange(5))
        >>> data.get_batch(np.array([4, 0]), None).target
        tensor([4, 0])
    """

    def __init__(
        self,
        pixels: Tensor,
        targets: Tensor,
        *,
        padding: int = 0,
        flip: bool = False,
        keys: npt.NDArray[np.int64] | None = None,
        part: str = "",
    ) -> None:
        self.targets, self.padding, self.flip = targets, padding, flip
        self.keys, self.part = keys, part
        padded = torch.nn.functional.pad(pixels, [padding] * 4) if padding else pixels
        self.pixels = padded.contiguous()  # windows are cut by their offset in memory
        self.size = tuple(pixels.shape[2:])
        self.is_random = bool(padding or flip)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"image {index} of {len(self)}")
        batch = self.get_batch(np.array([index % len(self)]), None)
        return batch.inputs[0], int(batch.target[0])

    def describe(self, index: int) -> str:
        """Return the number of an image in the files."""
        return numbered(index, self.keys, self.part)

    def sample(self, index: int) -> Sample:
        """Return the image without shift or flip."""
        image = self.get_batch(np.array([index]), None).inputs[0]
        return Sample(self.describe(index), image=as_pixels(image))

    def files(self) -> list[str]:
        """Return no paths: the images are in memory."""
        return []

    def contents(self) -> Iterator[bytes]:
        """Yield the pixels of each image."""
        return (row.numpy().tobytes() for row in self.pixels)

    input_transform = None

    def with_transform_of(self, other: PixelDataset) -> PixelDataset:
        """Return these images, shifted and flipped as another dataset's; a shift may only end."""
        copied = copy(self)
        if self.padding and not other.padding:
            pad = self.padding
            copied.pixels = self.pixels[..., pad:-pad, pad:-pad].contiguous()
        copied.padding, copied.flip, copied.is_random = other.padding, other.flip, other.is_random
        return copied

    def trace(self, index: int, *, batch_size: int = 1) -> Trace:
        """Yield the image, and the image after its random shift and flip."""
        yield "pixels" + (" with padding" if self.padding else ""), self.pixels[index]
        if self.padding or self.flip:
            seeds = np.zeros(1, np.uint64)
            row = self.get_batch(np.array([index]), seeds).inputs[0]
            yield " and ".join(["shift"] * bool(self.padding) + ["flip"] * bool(self.flip)), row

    def get_batch(self, indices: npt.NDArray[np.int64], seeds: Seeds | None) -> Batch:
        """Return one batch.

        Args:
            indices: (N,) int64.
            seeds: (N,) uint64; None: no shift and no flip.

        Returns:
            ``inputs`` (N, C, H, W) uint8, ``target`` (N,) int64.
        """
        # checks the indices, too: the windows are cut without bounds checks
        target = self.targets.index_select(0, torch.from_numpy(indices))
        image = self._windows(indices, seeds)
        if self.flip and seeds is not None:
            flipped = np.flatnonzero(draw_integers(seeds, 2, stream=2).numpy())
            # torch flips a uint8 image in a third of NumPy's time
            image[flipped] = torch.from_numpy(image.take(flipped, 0)).flip(-1).numpy()
        return Batch(torch.from_numpy(image), target)

    def _windows(
        self, indices: npt.NDArray[np.int64], seeds: Seeds | None
    ) -> npt.NDArray[np.uint8]:
        """Return (N, C, H, W) copies of the images, or of random windows of them."""
        whole = self.pixels.numpy()
        if not self.padding or not len(indices):
            cut: npt.NDArray[np.uint8] = whole.take(indices, 0)
            return cut if len(indices) else cut[:, :, : self.size[0], : self.size[1]]
        (channels, high, wide), (height, width) = whole.shape[1:], self.size
        top: Any = self.padding
        left: Any = self.padding
        if seeds is not None:
            side = 2 * self.padding + 1
            top, left = np.divmod(draw_integers(seeds, side**2, stream=1).numpy(), side)
        # A row of a window is one element of a void dtype at any byte offset: 128 windows of
        # 3 x 32 x 32 take 190 us, against 490 byte by byte in torch (2 cores, torch 2.14).
        lines = np.ndarray((whole.size - width + 1,), f"V{width}", whole.data, strides=(1,))
        first = indices * (channels * high * wide) + top * wide + left
        within = np.arange(channels)[:, None] * (high * wide) + np.arange(height) * wide
        windows: npt.NDArray[np.uint8] = lines[first[:, None] + within.ravel()].view(np.uint8)
        return windows.reshape(len(indices), channels, height, width)


def numbered(index: int, keys: npt.NDArray[np.int64] | None, part: str) -> str:
    """Return the name of an image without a path: its part and its number there."""
    return f"{part} image {index if keys is None else keys[index]}".lstrip()
