"""Other libraries that decode and transform images with their own code: DALI, SPDL, FFCV."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from . import stock
from .peers import Peer, as_it_is
from .photos import files_of

MEAN = [255 * level for level in stock.MEAN]
STD = [255 * level for level in stock.STD]


def dali_batches(root: Path, *, train: bool, batch_size: int, workers: int) -> Iterator[Any]:
    """Load with NVIDIA DALI on the CPU; its decoder reads only the crop."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

    files = files_of(root)

    def pipeline() -> tuple[Any, Any]:
        content, label = fn.readers.file(
            files=[str(file) for file, _ in files],
            labels=[label for _, label in files],
            random_shuffle=train,
            name="files",
        )
        linear: dict[str, Any] = {"interp_type": types.INTERP_LINEAR, "antialias": True}
        if train:
            area, ratio = [0.08, 1.0], [3 / 4, 4 / 3]
            pixels = fn.decoders.image_random_crop(
                content, random_area=area, random_aspect_ratio=ratio
            )
            pixels = fn.resize(pixels, size=[224, 224], **linear)
        else:
            pixels = fn.resize(fn.decoders.image(content), resize_shorter=256, **linear)
        finished = fn.crop_mirror_normalize(
            pixels,
            crop=(224, 224),
            dtype=types.FLOAT,
            output_layout="CHW",
            mean=MEAN,
            std=STD,
            mirror=fn.random.coin_flip() if train else 0,
        )
        return finished, label

    sizes = {"batch_size": batch_size, "num_threads": max(1, workers)}
    made = pipeline_def(pipeline)(**sizes, device_id=None, seed=0)
    policy = LastBatchPolicy.PARTIAL
    names = ["image", "label"]
    batches = DALIGenericIterator(
        [made], names, reader_name="files", last_batch_policy=policy, auto_reset=False
    )
    return ((batch[0]["image"], batch[0]["label"].flatten()) for batch in batches)


def spdl_batches(root: Path, *, train: bool, batch_size: int, workers: int) -> Iterator[Any]:
    """Load with SPDL: FFmpeg decodes, crops and resizes in the threads of its pipeline."""
    from spdl.io import convert_frames, decode_packets, demux_image, to_torch
    from spdl.pipeline import PipelineBuilder

    crop = v2.RandomResizedCrop(224)
    nothing = torch.empty(1, dtype=torch.uint8)
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    files = files_of(root)
    if train:
        random.shuffle(files)

    def decoded(item: tuple[Path, int]) -> tuple[Any, int]:
        packets = demux_image(str(item[0]))
        high, wide = packets.codec.height, packets.codec.width
        if train:
            box = crop.make_params([nothing.expand(3, high, wide)])
            chain = f"crop={box['width']}:{box['height']}:{box['left']}:{box['top']}"
            chain += ",scale=224:224:flags=bilinear"
            chain += ",hflip" if torch.rand(1) < 0.5 else ""
        else:
            short = 256 / min(high, wide)
            size = f"{int(short * wide + 1e-6)}:{int(short * high + 1e-6)}"
            chain = f"scale={size}:flags=bilinear,crop=224:224"
        return decode_packets(packets, filter_desc=f"{chain},format=rgb24"), item[1]

    def finished(items: list[tuple[Any, int]]) -> tuple[Tensor, Tensor]:
        frames, labels = zip(*items, strict=True)
        pixels = to_torch(convert_frames(list(frames))).permute(0, 3, 1, 2)
        return pixels.float().sub_(mean).div_(std), torch.tensor(labels)

    threads = max(1, workers)
    built = (
        PipelineBuilder()
        .add_source(files)
        .pipe(decoded, concurrency=threads, output_order="input")
        .aggregate(batch_size)
        .pipe(finished)
        .add_sink(2)
        .build(num_threads=threads, max_failures=0)
    )
    with built.auto_stop():
        yield from built.get_iterator()


class Photos:
    """Images and labels by index, for FFCV's writer.

    Args:
        root: Class folders of JPEGs.
        short_side: Resize to it first; None: no resizing.
    """

    def __init__(self, root: Path, short_side: int | None = None) -> None:
        self.files, self.short_side = files_of(root), short_side

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        file, label = self.files[index]
        image = Image.open(file).convert("RGB")
        if self.short_side is not None:
            resized: Image.Image = v2.functional.resize(image, [self.short_side])
            image = resized
        return image, label


def write_beton(root: Path, folder: Path) -> Path:
    """Write a file of FFCV: JPEGs of quality 90 at their own size."""
    return _write_beton(Photos(root), folder / "jpeg.beton", "jpg")


def write_raw_beton(root: Path, folder: Path) -> Path:
    """Write a file of FFCV: raw pixels, resized to a short side of 256."""
    return _write_beton(Photos(root, 256), folder / "raw.beton", "raw")


def _write_beton(photos: Photos, file: Path, mode: str) -> Path:
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    field = RGBImageField(write_mode=mode, jpeg_quality=90)
    writer = DatasetWriter(str(file), {"image": field, "label": IntField()}, num_workers=1)
    writer.from_indexed_dataset(photos)
    return file


def ffcv_batches(file: Path, *, train: bool, batch_size: int, workers: int) -> Iterable[Any]:
    """Load with FFCV; for evaluation the middle 224 of 256, in one resizing."""
    loader: Iterable[Any] = _ffcv_loader(file, train=train, batch_size=batch_size, workers=workers)
    return loader


@cache  # compiling a loader takes seconds: once for all rounds, in the untimed one
def _ffcv_loader(file: Path, *, train: bool, batch_size: int, workers: int) -> Any:
    from ffcv.fields.decoders import (
        CenterCropRGBImageDecoder,
        IntDecoder,
        RandomResizedCropRGBImageDecoder,
    )
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor
    from ffcv.transforms import ToTorchImage as ChannelsFirst

    size = (224, 224)
    image: list[Any] = [RandomResizedCropRGBImageDecoder(size), RandomHorizontalFlip()]
    if not train:
        image = [CenterCropRGBImageDecoder(size, 224 / 256)]
    image += [NormalizeImage(np.array(MEAN), np.array(STD), np.dtype("float32"))]
    image += [ToTensor(), ChannelsFirst(channels_last=False)]
    return Loader(
        str(file),
        batch_size=batch_size,
        num_workers=max(1, workers),
        order=OrderOption.RANDOM if train else OrderOption.SEQUENTIAL,
        drop_last=False,
        pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]},
    )


NATIVE = (
    Peer("DALI", "nvidia.dali", as_it_is, dali_batches),
    Peer("SPDL", "spdl", as_it_is, spdl_batches),
    Peer("FFCV", "ffcv", write_beton, ffcv_batches),
    Peer("FFCV raw 256", "ffcv", write_raw_beton, ffcv_batches),
)
