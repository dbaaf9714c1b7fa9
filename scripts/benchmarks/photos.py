"""Pictures of the size of ImageNet's, made or the user's own, and what peers make of them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader

from . import stock

CLASSES = 4


def make_photos(root: Path, count: int) -> Path:
    """Class folders of JPEGs, 500 x 375, 4:2:0, quality 90: smooth shapes under a grain.

    About 90 kB each, as ImageNet's are.
    """
    draws = np.random.default_rng(0)
    for i in range(count):
        coarse = Image.fromarray(draws.integers(0, 256, (12, 16, 3), np.uint8))
        smooth = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC), np.int16)
        grain = draws.normal(0, 9, smooth.shape)
        path = root / f"class{i % CLASSES}" / f"{i:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = (smooth + grain).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(path, quality=90, subsampling=2)
    return root


def files_of(root: Path) -> list[tuple[Path, int]]:
    """Each JPEG and its class, the folders in order."""
    folders = sorted(p for p in root.iterdir() if p.is_dir())
    return [(file, k) for k, f in enumerate(folders) for file in sorted(f.rglob("*.jp*g"))]


def timm_batches(root: Path, *, train: bool, batch_size: int, workers: int) -> Iterable[Any]:
    """Timm's loader, its prefetcher for devices aside."""
    from timm.data import ImageDataset, create_loader

    loader: Iterable[Any] = create_loader(
        ImageDataset(str(root)),
        input_size=(3, 224, 224),
        batch_size=batch_size,
        is_training=train,
        use_prefetcher=False,
        no_aug=not train,
        color_jitter=None,
        interpolation="bilinear",
        mean=tuple(stock.MEAN),
        std=tuple(stock.STD),
        num_workers=workers,
        crop_pct=0.875,
        persistent_workers=False,
    )
    return loader


def write_tars(root: Path, folder: Path, *, per_tar: int = 100) -> list[str]:
    """Webdataset's shards."""
    import webdataset

    folder.mkdir()
    with webdataset.ShardWriter(str(folder / "%05d.tar"), maxcount=per_tar, verbose=0) as sink:
        for i, (file, label) in enumerate(files_of(root)):
            sink.write({"__key__": f"{i:06d}", "jpg": file.read_bytes(), "cls": label})
    return sorted(str(p) for p in folder.glob("*.tar"))


def webdataset_batches(tars: list[str], *, batch_size: int, workers: int) -> Iterable[Any]:
    """webdataset, shuffled by a buffer of 1,000, with torchvision's transform."""
    import webdataset

    dataset = webdataset.WebDataset(tars, shardshuffle=len(tars)).shuffle(1000).decode("pil")
    steps = stock.train_steps()
    pairs = dataset.to_tuple("jpg", "cls").map_tuple(lambda p: steps(p.convert("RGB")), int)
    return DataLoader(
        pairs.batched(batch_size), batch_size=None, num_workers=min(workers, len(tars))
    )


def write_litdata(root: Path, folder: Path) -> Path:
    """Litdata's chunks of JPEG bytes."""
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(cache_dir=str(folder), chunk_bytes=64 << 20)
    folder.mkdir(exist_ok=True)
    for i, (file, label) in enumerate(files_of(root)):
        writer[i] = {"jpeg": file.read_bytes(), "label": label}
    writer.done()
    writer.merge()
    return folder


def litdata_batches(folder: Path, *, batch_size: int, workers: int) -> Iterable[Any]:
    """Litdata's streaming dataset and loader, with torchvision's transform."""
    from litdata import StreamingDataLoader, StreamingDataset

    steps = stock.train_steps()

    class Photos(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Any:
            sample = super().__getitem__(index)
            picture = Image.open(io.BytesIO(sample["jpeg"])).convert("RGB")
            return steps(picture), sample["label"]

    loader: Iterable[Any] = StreamingDataLoader(
        Photos(str(folder), shuffle=True), batch_size=batch_size, num_workers=workers
    )
    return loader


def decode_alone(root: Path) -> Iterator[int]:
    """Decode every file and nothing else: what no loader of these files can leave out."""
    for file, _ in files_of(root):
        content = file.read_bytes()
        try:
            from simplejpeg import decode_jpeg
        except ImportError:
            Image.open(io.BytesIO(content)).load()
        else:
            decode_jpeg(content, colorspace="RGB")
        yield 1
