"""Other libraries that load images with torchvision: timm, webdataset, litdata, streaming."""

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
    """Another library that makes normalized batches of a folder of images.

    Attributes:
        name: Shown in the table.
        package: Must be installed.
        prepare: Converts the folder of images to the library's format, into an empty folder.
        batches: Loads what ``prepare`` returns; takes ``train``, ``batch_size``, ``workers``.
    """

    name: str
    package: str
    prepare: Callable[[Path, Path], Any]
    batches: Callable[..., Iterable[Any]]

    @property
    def installed(self) -> bool:
        """Whether the package is installed."""
        try:
            return find_spec(self.package) is not None
        except ModuleNotFoundError:  # its parent package
            return False


def as_it_is(root: Path, folder: Path) -> Path:
    """Prepare nothing."""
    return root


def timm_batches(root: Path, *, train: bool, batch_size: int, workers: int) -> Iterable[Any]:
    """Load with timm, without its prefetcher for devices."""
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
    """Write the shards of webdataset."""
    import webdataset

    with webdataset.ShardWriter(str(folder / "%05d.tar"), maxcount=per_tar, verbose=0) as sink:
        for i, (file, label) in enumerate(files_of(root)):
            sink.write({"__key__": f"{i:06d}", "jpg": file.read_bytes(), "cls": label})
    return sorted(str(p) for p in folder.glob("*.tar"))


def webdataset_batches(
    tars: list[str], *, train: bool, batch_size: int, workers: int
) -> Iterable[Any]:
    """Load with webdataset; in training shuffled with a buffer of 1,000."""
    import webdataset

    dataset = webdataset.WebDataset(tars, shardshuffle=len(tars) if train else False)
    dataset = (dataset.shuffle(1000) if train else dataset).decode("pil")
    steps = stock.transform(train=train)
    pairs = dataset.to_tuple("jpg", "cls").map_tuple(lambda p: steps(p.convert("RGB")), int)
    return DataLoader(
        pairs.batched(batch_size), batch_size=None, num_workers=min(workers, len(tars))
    )


def write_litdata(root: Path, folder: Path) -> Path:
    """Write the chunks of litdata, with JPEG bytes."""
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(cache_dir=str(folder), chunk_bytes=64 << 20)
    for i, (file, label) in enumerate(files_of(root)):
        writer[i] = {"jpeg": file.read_bytes(), "label": label}
    writer.done()
    writer.merge()
    return folder


def litdata_batches(folder: Path, *, train: bool, batch_size: int, workers: int) -> Iterable[Any]:
    """Load with litdata's streaming dataset and loader."""
    from litdata import StreamingDataLoader, StreamingDataset

    dataset = _transformed(StreamingDataset, train)(str(folder), shuffle=train)
    loader: Iterable[Any] = StreamingDataLoader(dataset, batch_size=batch_size, num_workers=workers)
    return loader


def write_mds(root: Path, folder: Path) -> Path:
    """Write the shards of MosaicML's streaming, with JPEG bytes."""
    from streaming import MDSWriter

    columns = {"jpeg": "bytes", "label": "int"}
    with MDSWriter(out=str(folder / "mds"), columns=columns) as writer:
        for file, label in files_of(root):
            writer.write({"jpeg": file.read_bytes(), "label": label})
    return folder / "mds"


def mds_batches(folder: Path, *, train: bool, batch_size: int, workers: int) -> Iterable[Any]:
    """Load MosaicML's streaming dataset with torch's loader."""
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    dataset_class = _transformed(StreamingDataset, train)
    dataset = dataset_class(local=str(folder), shuffle=train, batch_size=batch_size)
    return DataLoader(dataset, batch_size=batch_size, num_workers=workers)


def _transformed(base: Any, train: bool) -> Any:
    """Derive a dataset that decodes ``jpeg`` and applies torchvision's transform."""
    steps = stock.transform(train=train)

    class Photos(base):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Any:
            sample = super().__getitem__(index)
            image = Image.open(io.BytesIO(sample["jpeg"])).convert("RGB")
            return steps(image), sample["label"]

    return Photos


PEERS = (
    Peer("timm", "timm", as_it_is, timm_batches),
    Peer("webdataset", "webdataset", write_tars, webdataset_batches),
    Peer("litdata", "litdata", write_litdata, litdata_batches),
    Peer("streaming", "streaming", write_mds, mds_batches),
)
