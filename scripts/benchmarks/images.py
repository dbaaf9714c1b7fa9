"""Training and evaluation pictures from JPEG files and packs, beside the stock way and peers."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from datamodules import ImageFolderDataModule

from . import photos, stock
from .rounds import Variant, compare, consume, peer
from .tables import Result

OTHERS = {"FFCV": "ffcv", "DALI": "nvidia.dali", "SPDL": "spdl", "streaming": "streaming"}
PACKS = {"resized_pack_raw": "resized-raw", "resized_pack_jpeg": "resized-jpeg"}


def add_options(parser: argparse._ArgumentGroup) -> None:
    """Data and rounds."""
    parser.add_argument("--root", type=Path, help="class folders of JPEGs; default: made ones")
    parser.add_argument("--samples", type=int, default=600, help="pictures that are made")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)


def measure(options: argparse.Namespace) -> Result:
    """RandomResizedCrop 224, flip, normalise."""
    return _measure(options, train=True)


def _measure(options: argparse.Namespace, *, train: bool) -> Result:
    work = "images" if train else "eval"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        root = options.root or photos.make_photos(place / "photos", options.samples)
        packs, notes = _packs(root, place, resized=train)
        variants = _variants(root, packs, options, train=train)
        if train:
            variants += _streams(root, place, options)
        limit = Variant("limit: decode alone", lambda: sum(photos.decode_alone(root)))
        rows = compare(work, variants, rounds=options.rounds, workers=options.workers, limit=limit)
        unmeasured = [name for name, package in OTHERS.items() if _has(package)]
        if unmeasured:
            notes.append(f"installed, but this benchmark has no way for: {', '.join(unmeasured)}")
        notes += _pixels(root, packs, options.batch_size)
        count = len(photos.files_of(root))
    title = f"{work}: {count:,} JPEGs, batch {options.batch_size}, {options.workers} workers"
    return Result(title, rows, bars="samples_per_cpu_second", notes=notes)


def _packs(root: Path, place: Path, *, resized: bool) -> tuple[dict[str, Path], list[str]]:
    from datamodules.core.jpeg_recut import jpegtran
    from datamodules.core.pack_writer import write_pack

    packs, notes = {}, []
    try:
        jpegtran()
    except RuntimeError as error:
        notes.append(f"slice_pack is left out: {error}")
    else:
        packs["slice_pack"] = place / "slice.pack"
        write_pack(root, packs["slice_pack"])
    for name, kind in PACKS.items() if resized else ():
        packs[name] = place / f"{kind}.pack"
        made = write_pack(root, packs[name], kind=kind, size=256)
        change = made.report["mean_pixel_change"]
        notes.append(f"{name} changes pixels: {change:.2f} of 255 on average")
    return packs, notes


def _variants(
    root: Path, packs: dict[str, Path], options: argparse.Namespace, *, train: bool
) -> list[Variant]:
    sizes: dict[str, Any] = {"batch_size": options.batch_size, "workers": options.workers}

    def ours(pack: Path | None) -> Callable[[], int]:
        return lambda: consume(our_batches(root, pack, train=train, **sizes))

    variants = [
        Variant("stock", lambda: consume(stock.images(root, train=train, **sizes))),
        Variant("plain", ours(None)),
        *(Variant(name, ours(pack)) for name, pack in packs.items()),
        peer("timm", "timm", lambda: consume(photos.timm_batches(root, train=train, **sizes))),
    ]
    return variants + [Variant(name, None) for name, there in OTHERS.items() if not _has(there)]


def our_batches(
    root: Path, pack: Path | None, *, train: bool, batch_size: int, workers: int, seed: int = 0
) -> Iterable[Any]:
    """All pictures through this project's datamodule, finished."""
    data = ImageFolderDataModule(
        root, pack=pack, val_split=0, test_split=0, batch_size=batch_size, num_workers=workers,
        seed=seed,
    )  # fmt: skip
    if not train:  # all pictures, in order, as evaluation takes them
        data.train_transform, data.sampler = data.eval_transform, "sequential"
    data.setup()
    return data.train_dataloader()


def _streams(root: Path, place: Path, options: argparse.Namespace) -> list[Variant]:
    sizes: dict[str, Any] = {"batch_size": options.batch_size, "workers": options.workers}
    variants = []
    if _has("webdataset"):
        tars = photos.write_tars(root, place / "tars")
        variants.append(
            Variant("webdataset", lambda: consume(photos.webdataset_batches(tars, **sizes)))
        )
    else:
        variants.append(Variant("webdataset", None))
    if _has("litdata"):
        chunks = photos.write_litdata(root, place / "litdata")
        variants.append(
            Variant("litdata", lambda: consume(photos.litdata_batches(chunks, **sizes)))
        )
    else:
        variants.append(Variant("litdata", None))
    return variants


def _has(package: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package above it
        return False


def _pixels(root: Path, packs: dict[str, Path], batch_size: int) -> list[str]:
    """Compare the pixels of a first batch with the stock way's, and a slice pack's with files."""
    sizes: dict[str, Any] = {"batch_size": batch_size, "workers": 0}
    scale = torch.tensor(stock.STD)[:, None, None] * 255
    expected = next(iter(stock.images(root, train=False, **sizes)))[0] * scale
    found = next(iter(our_batches(root, None, train=False, **sizes)))[0] * scale
    difference = float((expected - found).abs().mean())
    notes = [f"evaluation pixels differ from the stock way's by {difference:.4f} of 255 on average"]
    if "slice_pack" in packs:
        plain = next(iter(our_batches(root, None, train=True, **sizes)))[0]
        sliced = next(iter(our_batches(root, packs["slice_pack"], train=True, **sizes)))[0]
        difference = float((plain - sliced).mul(scale).abs().max())
        notes.append(f"slice_pack pixels differ from plain by {difference:g} of 255 at most")
    return notes
