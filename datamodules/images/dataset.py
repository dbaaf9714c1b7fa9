"""Datasets of images: from files one by one, and from memory a batch at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
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
from datamodules.readers.folders import check_folder, contents
from datamodules.readers.path_list import PathList
from datamodules.seeding.random_state import random_state, seed_all, set_random_state
from datamodules.seeding.sample_seeds import Seeds, below
from datamodules.seeding.thread_rng import drawn_elsewhere

from .listing import list_images, report_skipped
from .regions import Boxes, WholeImage
from .sources import PackedImages
from .transforms import ImageTransform

WORTH_COMPILING = 256  # images: loading the compiled loops takes the time of a few thousand


class ImageDataset(Dataset[Any]):
    """Items are ``(image, target)``, or bare images where there are no targets.

    Args:
        sources: N paths, PIL images, arrays (H, W, C) or tensors (C, H, W).
        targets: (N,) int64 or (N, K) float32.
        transform: What is done to each image; see :class:`ImageTransform`.
        mode: ``"RGB"`` or ``"L"``: 3 channels or 1.
        keys: (N,) int64, numbers that tell images without a path apart; None: 0 to N - 1.
        part: What the numbers count, for errors: ``"train"`` gives ``train image 7``.
        fast: Take the short ways that the transform allows, see
            :class:`~datamodules.images.fast.fast_transform.FastTransform`.

    Attributes:
        normalizer: Normalizes a batch of :meth:`unnormalized` samples; None if the transform
            does it itself.
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
        """An item before the end of the transform that ``finish`` does for the whole batch.

        Args:
            index: Which.
            seed: What the random generators are to be seeded by; None leaves them as they are.
        """
        image = self._image(index, seed)
        normalizer = self.normalizer
        channels = (
            len(normalizer.mean) if normalizer is not None else 3 if self.mode == "RGB" else 1
        )
        if _is_pixels(image) and len(image) != channels:
            # the finishing step would leave it as it is, and the net would get raw bytes
            raise ValueError(
                f"the transform made a uint8 image of {len(image)} channels, {self.mode!r} has "
                f"{channels}; keep the channels, or choose the mode to fit"
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
            set_random_state(before)  # the transform may want tensors: see ImageTransform
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
        """Refuse a transform that was changed in place since its short ways were found.

        Raises:
            RuntimeError: As :meth:`FastTransform.check_unchanged`.
        """
        if self._fast is not None:
            self._fast.check_unchanged()

    @property
    def draws_alone(self) -> bool:
        """Whether no draw needs the function mode of a worker thread."""
        return self._fast is not None and self._fast.passes_generators

    def drawn_elsewhere(self) -> str | None:
        """The step that keeps the images from worker threads, or None."""
        return drawn_elsewhere(self.transform.transform)

    def blank(self) -> Any:
        """A sample of the shape that the transform makes, of an empty image."""
        blank = Image.new(self.mode, (256, 256))
        image = self.transform(blank) if self._fast is None else self._fast.from_image(blank)
        return image if self.targets is None else (image, 0)

    def describe(self, index: int) -> str:
        """Path of an image, or its number where it came as pixels."""
        source = getattr(self.sources, "names", self.sources)[index]  # packed ones have names
        return source if isinstance(source, str) else _numbered(index, self.keys, self.part)


class PixelDataset(Dataset[Any]):
    """Images in memory: a batch is one gather, shifted and flipped as a whole.

    A random shift is a window of the padded image, so that cropping costs no more than reading;
    its draws come from each sample's own seed.

    Args:
        pixels: (N, C, H, W) uint8.
        targets: (N,) int64.
        padding: Zeros put around each image for the random shift; 0: none.
        flip: Whether half of the images are flipped left to right.
        keys: As in :class:`ImageDataset`.
        part: As in :class:`ImageDataset`.
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
        self.pixels = padded.contiguous()  # windows are cut by their place in memory
        self.size = tuple(pixels.shape[2:])
        self.draws = bool(padding or flip)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"image {index} of {len(self)}")
        batch = self.get_batch(np.array([index % len(self)]), None)
        return batch.inputs[0], int(batch.target[0])

    def describe(self, index: int) -> str:
        """Number of an image in the files."""
        return _numbered(index, self.keys, self.part)

    def get_batch(self, indices: npt.NDArray[np.int64], seeds: Seeds | None) -> Batch:
        """One batch.

        Args:
            indices: (N,) int64.
            seeds: (N,) uint64; None: no shift and no flip.

        Returns:
            ``inputs`` (N, C, H, W) uint8, ``target`` (N,) int64.
        """
        # checks the indices too: a window has none of its own to run into
        target = self.targets.index_select(0, torch.from_numpy(indices))
        image = self._windows(indices, seeds)
        if self.flip and seeds is not None:
            flipped = np.flatnonzero(below(seeds, 2, stream=2).numpy())
            # torch mirrors a byte image in a third of NumPy's time
            image[flipped] = torch.from_numpy(image.take(flipped, 0)).flip(-1).numpy()
        return Batch(torch.from_numpy(image), target)

    def _windows(
        self, indices: npt.NDArray[np.int64], seeds: Seeds | None
    ) -> npt.NDArray[np.uint8]:
        """(N, C, H, W) copies of the images, or of windows of them at random places."""
        whole = self.pixels.numpy()
        if not self.padding or not len(indices):
            cut: npt.NDArray[np.uint8] = whole.take(indices, 0)
            return cut if len(indices) else cut[:, :, : self.size[0], : self.size[1]]
        (channels, high, wide), (height, width) = whole.shape[1:], self.size
        top: Any = self.padding
        left: Any = self.padding
        if seeds is not None:
            side = 2 * self.padding + 1
            top, left = np.divmod(below(seeds, side**2, stream=1).numpy(), side)
        # A line of a window is one opaque cell that may begin at any byte: 128 windows of
        # 3 x 32 x 32 are cut in 190 us, against 490 byte by byte in torch (2 cores, torch 2.14).
        lines = np.ndarray((whole.size - width + 1,), f"V{width}", whole.data, strides=(1,))
        first = indices * (channels * high * wide) + top * wide + left
        within = np.arange(channels)[:, None] * (high * wide) + np.arange(height) * wide
        found: npt.NDArray[np.uint8] = lines[first[:, None] + within.ravel()].view(np.uint8)
        return found.reshape(len(indices), channels, height, width)


def predict_sources(path: str | Path | Sequence[Any] | None) -> Sequence[Any]:
    """What a user gives as ``predict_path``: a folder, a file, or a list of paths or images.

    Raises:
        FileNotFoundError: If a folder does not exist.
        ValueError: If nothing was given, the folder holds no image, or a single array was given.
    """
    if path is None:
        raise ValueError("pass predict_path=, a folder, or a list of paths or images")
    if isinstance(path, str | Path):
        if Path(path).expanduser().is_file():
            return PathList([str(Path(path).expanduser())])
        folder = check_folder(path, "predict_path")
        found, skipped = list_images(folder)
        if not found:
            raise ValueError(f"predict_path={str(path)!r} holds no images; {contents(folder)}")
        report_skipped(skipped)
        return PathList(found)
    if isinstance(path, Image.Image):
        return [path]
    if isinstance(path, np.ndarray | Tensor) and path.ndim < 4:
        raise ValueError(
            f"predict_path is one array {tuple(path.shape)}; give a list of images: [array]"
        )
    items = [os.fspath(item) if isinstance(item, str | Path) else item for item in path]
    if not items:
        raise ValueError("predict_path is an empty list; give paths or images")
    return PathList(items) if all(isinstance(item, str) for item in items) else items


def _is_pixels(image: Any) -> bool:
    return isinstance(image, Tensor) and image.dtype == torch.uint8 and image.ndim == 3


def _numbered(index: int, keys: npt.NDArray[np.int64] | None, part: str) -> str:
    return f"{part} image {index if keys is None else keys[index]}".lstrip()
