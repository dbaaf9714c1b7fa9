"""The dataset of images that are decoded one by one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from datamodules.batches.dataset_interface import Sample
from datamodules.batches.inspection_interface import Summary, Trace
from datamodules.batches.kernels import load_kernel
from datamodules.batches.normalize import Normalizer
from datamodules.images.decode.decode import decode_image, decode_pixels
from datamodules.images.decode.pillow_state import warn_of_truncated_images
from datamodules.images.fast.fast_transform import fast_transform
from datamodules.seeding.random_state import (
    kept_random_state,
    random_state,
    seed_all,
    seed_torch,
    set_random_state,
)
from datamodules.seeding.thread_rng import thread_unsafe_step

from .cached import names_of
from .in_memory import numbered
from .regions import Boxes, WholeImage
from .sources import PackedImages, file_paths
from .transform_steps import as_pixels, describe_file, run_steps
from .transforms import ImageTransform, to_row

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
            # NumPy's and Python's generators, which take 10 us, only if a step may use them
            (seed_torch if self.uses_thread_rng else seed_all)(seed)
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
        source = names_of(self.sources)[index]
        return source if isinstance(source, str) else numbered(index, self.keys, self.part)

    def sample(self, index: int) -> Sample:
        """Return the decoded image."""
        plain = ImageDataset(self.sources, None, None, mode=self.mode)
        return Sample(self.describe(index), image=as_pixels(plain[index]))

    def files(self) -> list[str]:
        """Return the path of each image; empty if some are not read from files."""
        return file_paths(self.sources)

    def contents(self) -> Iterator[bytes]:
        """Yield the pixels of each image as decoded."""
        for index in range(len(self)):
            image = self.sample(index).image
            yield b"" if image is None else image.numpy().tobytes()

    @property
    def input_transform(self) -> Any:
        """The transform of each image, or None."""
        return self.transform.transform

    def with_transform_of(self, other: ImageDataset) -> ImageDataset:
        """Return these images with the transform of another dataset."""
        copied = copy(self)
        copied.transform, copied._fast = other.transform, other._fast
        copied.normalizer = other.normalizer
        return copied

    def stages(self, index: int) -> Iterator[str]:
        """Make a sample in stages for a timer: yield ``decode`` and ``transform`` after each."""
        fast = self._fast
        if fast is not None and fast.head is not None:
            boxes = self._boxes(index)
            yield "decode"
            fast.from_boxes(boxes)
        else:
            image = self._whole(index)
            yield "decode"
            (self.transform if fast is None else fast.from_image)(image)
        yield "transform"

    def trace(self, index: int, *, batch_size: int = 1) -> Trace:
        """Yield the file, the decoded image and the image after each step of the transform."""
        source = self.sources[index]
        if isinstance(source, str):
            yield "file", Summary(describe_file(Path(source)))
        elif isinstance(source, bytes):
            yield "packed", Summary(f"{len(source):,} bytes")
        source = self._source(index)
        if isinstance(source, np.ndarray):
            yield "array", source
        image: Any = self._decoded(source, self.describe(index))
        yield "decode", image
        with kept_random_state(), suppress(Exception):  # the steps below raise in their turn
            self.transform(image)  # finds out whether the transform takes tensors
        if self.transform.takes_tensors:
            image = to_row(image)
            yield "to tensor", image
        yield "sample", to_row((yield from run_steps(self.input_transform, image)))


def _is_pixels(image: Any) -> bool:
    return isinstance(image, Tensor) and image.dtype == torch.uint8 and image.ndim == 3
