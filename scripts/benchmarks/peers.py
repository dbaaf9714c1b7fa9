"""Other loaders of images that use torchvision: timm, webdataset, litdata, streaming."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from torch.utils.data import DataLoader

from . import stock
from .photos import files_of


class Peer(NamedTuple):
    """Another project's way to make finished batches of a folder of images.

    Attributes:
        name: As the table shows it.
        package: What must be installed.
        prepare: Writes what it reads from the folder of images into an empty one.
        batches: Batches of what ``prepare`` gave; takes ``train``, ``batch_size``, ``workers``.
    """

    name: str
    package: str
    prepare: Callable[[Path, Path], Any]
    batches: Callable[..., Iterable[Any]]

    @property
    def there(self) -> bool:
        """Whether it is installed."""
        try:
            return find_spec(self.package) is not None
        except ModuleNotFoundError:  # the package above it
            return False


def as_it_is(root: Path, folder: Path) -> Path:
    """Nothing is prepared."""
    return root


def steps_of(train: bool) -> Any:
    """The stock way's transform."""
    return stock.train_steps() if train else stock.eval_steps()


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

    with webdataset.ShardWriter(str(folder / "%05d.tar"), maxcount=per_tar, verbose=0) as sink:
        for i, (file, label) in enumerate(files_of(root)):
            sink.write({"__key__": f"{i:06d}", "jpg": file.read_bytes(), "cls": label})
    return sorted(str(p) for p in folder.glob("*.tar"))


def webdataset_batches(
    tars: list[str], *, train: bool, batch_size: int, workers: int
) -> Iterable[Any]:
    """webdataset, in training shuffled by a buffer of 1,000, with torchvision's transform."""
    import webdataset

    dataset = webdataset.WebDataset(tars, shardshuffle=len(tars) if train else False)
    dataset = (dataset.shuffle(1000) if train else dataset).decode("pil")
    steps = steps_of(train)
    pairs = dataset.to_tuple("jpg", "cls").map_tuple(lambda p: steps(p.convert("RGB")), int)
    return DataLoader(
        pairs.batched(batch_size), batch_size=None, num_workers=min(workers, len(tars))
    )


def write_litdata(root: Path, folder: Path) -> Path:
    """Litdata's chunks of JPEG bytes."""
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(cache_dir=str(folder), chunk_bytes=64 << 20)
    for i, (file, label) in enumerate(files_of(root)):
        writer[i] = {"jpeg": file.read_bytes(), "label": label}
    writer.done()
    writer.merge()
    return folder


def litdata_batches(folder: Path, *, train: bool, batch_size: int, workers: int) -> Iterable[Any]:
    """Litdata's streaming dataset and loader, with torchvision's transform."""
    from litdata import StreamingDataLoader, StreamingDataset

    steps = steps_of(train)

    class Photos(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Any:
            sample = super().__getitem__(index)
            return steps(_opened(sample["jpeg"])), sample["label"]

    loader: Iterable[Any] = StreamingDataLoader(
        Photos(str(folder), shuffle=train), batch_size=batch_size, num_workers=workers
    )
    return loader


def write_mds(root: Path, folder: Path) -> Path:
    """The shards of MosaicML's streaming, JPEG bytes as they are."""
    from streaming import MDSWriter

    columns = {"jpeg": "bytes", "label": "int"}
    with MDSWriter(out=str(folder / "mds"), columns=columns) as writer:
        for file, label in files_of(root):
            writer.write({"jpeg": file.read_bytes(), "label": label})
    return folder / "mds"


def mds_batches(folder: Path, *, train: bool, batch_size: int, workers: int) -> Iterable[Any]:
    """MosaicML's streaming dataset under torch's loader, with torchvision's transform."""
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    steps = steps_of(train)

    class Photos(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, at: Any) -> Any:
            sample = super().__getitem__(at)
            return steps(_opened(sample["jpeg"])), sample["label"]

    dataset = Photos(local=str(folder), shuffle=train, batch_size=batch_size)
    return DataLoader(dataset, batch_size=batch_size, num_workers=workers)


def _opened(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content)).convert("RGB")


PEERS = (
    Peer("timm", "timm", as_it_is, timm_batches),
    Peer("webdataset", "webdataset", write_tars, webdataset_batches),
    Peer("litdata", "litdata", write_litdata, litdata_batches),
    Peer("streaming", "streaming", write_mds, mds_batches),
)
