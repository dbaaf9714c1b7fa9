"""Datasets of images from files, one by one, and from memory, a batch at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from datamodules.batches.batch import Batch
from datamodules.batches.kernels import load_kernel
from datamodules.batches.normalize import Normalizer
from datamodules.images.decode.decode import decode_image, decode_pixels
from datamodules.images.decode.pillow_state import warn_of_truncated_images
from datamodules.images.fast.fast_transform import fast_transform
from datamodules.seeding.random_state import random_state, seed_all, set_random_state
from datamodules.seeding.sample_seeds import Seeds, draw_integers
from datamodules.seeding.thread_rng import thread_unsafe_step

from .regions import Boxes, WholeImage
from .sources import PackedImages
from .transforms import ImageTransform

WORTH_COMPILING = 256  # images; compiling takes the time of a few thousand


class ImageDataset(Dataset[Any]):
    """A dataset of ``(image, target)``, or of images if there are no targets.

    Args:
        sources: N paths, PIL images, arrays (H, W, C) or tensors (C, H, W).
        targets: (N,) int64 or (N, K) float32.
        transform: Applied to each image; see :class:`ImageTransform`.
        mode: ``"RGB"`` or ``"L"``: 3 channels or 1.
        keys: (N,) int64 numbers of images without a path, for messages; None: 0 to N - 1.
        part: Prefix of the numbers, for messages: ``"train"`` gives ``train image 7``.
        fast: Crop before decoding and normalize on the batch where the transform allows it, see
            :class:`~datamodules.images.fast.fast_transform.FastTransform`.

    Attributes:
        normalizer: Normalizes a batch of :meth:`unnormalized` samples; None if the transform
            does it itself.

    Example:
        >>> white = Image.new("RGB", (4, 2), "white")
        >>> image, target = ImageDataset([white], torch.tensor([3]), None)[0]
        >>> image.shape, image.dtype, target
        (torch.Size([3, 2, 4]), torch.uint8, 3)
    """

    def __init__(
        self,
        sources: Sequence[Any] | Tensor,
        targets: Tensor | None,
        transform: Callable[[Any], Any] | None,
        *,
        mode: Literal["RGB", "L"] = "RGB",
        keys: npt.NDArray[np.int64] | None = None,
        part: str = "",
        fast: bool = False,
    ) -> None:
        self.sources, self.targets, self.mode = sources, targets, mode
        self.transform = ImageTransform(transform)
        self.keys, self.part = keys, part
        self._fast = fast_transform(transform, 3 if mode == "RGB" else 1) if fast else None
        self.normalizer: Normalizer | None = (
            self._fast.normalizer if self._fast is not None else None
        )
        warn_of_truncated_images()
        if self._fast is not None and len(self.sources) >= WORTH_COMPILING:
            load_kernel()

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> Any:
        self.check_unchanged()
        sample = self.unnormalized(index)
        image = sample if self.targets is None else sample[0]
        if not _is_pixels(image):
            return sample
        image = self.normalizer(image[None])[0] if self.normalizer else image.contiguous()
        return image if self.targets is None else (image, sample[1])

    def unnormalized(self, index: int, seed: int | None = None) -> Any:
        """Return an item before the steps that ``normalizer`` applies to the whole batch.

        Args:
            index: Index of the item.
            seed: Seeds the random generators first; None leaves them as they are.
        """
        image = self._image(index, seed)
        normalizer = self.normalizer
        channels = (
            len(normalizer.mean) if normalizer is not None else 3 if self.mode == "RGB" else 1
        )
        if _is_pixels(image) and len(image) != channels:
            # the normalizer would not change it, and the model would get raw bytes
            raise ValueError(
                f"the transform returned a uint8 image of {len(image)} channels, mode "
                f"{self.mode!r} has {channels}; keep the channels, or pass another mode"
            )
        if self.targets is None:
            return image
        target = self.targets[index]
        return image, int(target) if target.dtype == torch.int64 else target

    def _image(self, index: int, seed: int | None) -> Any:
        fast = self._fast
        if seed is not None:
            seed_all(seed)
        if fast is None:
            return self.transform(self._whole(index))
        before = None if fast.has_run else random_state()
        try:
            if fast.head is not None:
                return fast.from_boxes(self._boxes(index))
            return fast.from_image(self._whole(index))
        except (TypeError, AttributeError):
            if before is None:
                raise
            set_random_state(before)  # the transform may expect tensors: see ImageTransform
            self._fast = self.normalizer = None
            return self.transform(self._whole(index))

    def _boxes(self, index: int) -> Boxes:
        if isinstance(self.sources, PackedImages):
            return self.sources.boxes(index, mode=self.mode)
        source = self._source(index)
        name = source if isinstance(source, str) else self.describe(index)
        return WholeImage(decode_pixels(source, mode=self.mode, name=name), self.mode)

    def _whole(self, index: int) -> Image.Image:
        return self._decoded(self._source(index), self.describe(index))

    def _source(self, index: int) -> Any:
        source = self.sources[index]
        if isinstance(source, Tensor):
            source = (source.permute(1, 2, 0) if source.ndim == 3 else source).numpy()
        return source

    def _decoded(self, source: Any, name: str) -> Image.Image:
        if not isinstance(source, str | os.PathLike):
            return decode_image(source, mode=self.mode, name=name)
        # a 500x375 JPEG takes 0.91 ms of CPU, against 1.04 by decode_image (simplejpeg 1.9, Pillow
        # image included, 2 cores, n = 9 rounds of 24 files)
        pixels = decode_pixels(source, mode=self.mode, name=name)
        return Image.fromarray(pixels if self.mode == "RGB" else pixels[:, :, 0])

    def check_unchanged(self) -> None:
        """Refuse a transform that was changed in place after it was split.

        Raises:
            RuntimeError: As :meth:`FastTransform.check_unchanged`.
        """
        if self._fast is not None:
            self._fast.check_unchanged()

    @property
    def uses_thread_rng(self) -> bool:
        """Whether no draw needs the function mode of a worker thread."""
        return self._fast is not None and self._fast.passes_generators

    def thread_unsafe_step(self) -> str | None:
        """The step that keeps the images from worker threads, or None."""
        return thread_unsafe_step(self.transform.transform)

    def placeholder(self) -> Any:
        """A sample of the shape that the transform makes, of an empty image."""
        blank = Image.new(self.mode, (256, 256))
        image = self.transform(blank) if self._fast is None else self._fast.from_image(blank)
        return image if self.targets is None else (image, 0)

    def describe(self, index: int) -> str:
        """Return the path of an image, or its number if it has none."""
        source = getattr(self.sources, "names", self.sources)[index]
        return source if isinstance(source, str) else _numbered(index, self.keys, self.part)


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
        return _numbered(index, self.keys, self.part)

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


def _is_pixels(image: Any) -> bool:
    return isinstance(image, Tensor) and image.dtype == torch.uint8 and image.ndim == 3


def _numbered(index: int, keys: npt.NDArray[np.int64] | None, part: str) -> str:
    return f"{part} image {index if keys is None else keys[index]}".lstrip()
