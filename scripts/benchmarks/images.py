"""Training and evaluation images from JPEG files and packs, beside the stock way and peers."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from datamodules import ImageFolderDataModule
from datamodules.images.options import ImageOptions

from . import photos, stock
from .native_peers import NATIVE
from .peers import PEERS
from .rounds import Variant, add_sizes, compare, consume
from .tables import Result
from .worker_memory import after_an_epoch

SCALE = 255 * torch.tensor(stock.STD)[:, None, None]
PACKS = {"resized_pack_raw": "resized-raw", "resized_pack_jpeg": "resized-jpeg"}


def add_options(parser: argparse._ArgumentGroup) -> None:
    """Add data, sizes and rounds."""
    parser.add_argument("--root", type=Path, help="class folders of JPEGs; default: made ones")
    add_sizes(parser, samples=600, batch_size=64, workers=2)


def measure(options: argparse.Namespace) -> Result:
    """Measure RandomResizedCrop 224, flip, normalize."""
    return measure_images(options, train=True)


def measure_images(options: argparse.Namespace, *, train: bool) -> Result:
    """Measure all variants on one folder of images."""
    work = "images" if train else "eval"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        root = options.root or photos.make_photos(place / "photos", options.samples)
        packs, notes = _packs(root, place, resized=train)
        variants = _variants(root, packs, options, train=train)
        others, peer_notes = _peers(root, place, options, train=train)
        variants, notes = variants + others, notes + peer_notes
        limit = Variant("limit: decode alone", lambda: sum(photos.decode_alone(root)))
        rows = compare(work, variants, rounds=options.rounds, workers=options.workers, limit=limit)
        notes += _pixels(root, packs, options.batch_size)
        notes += _memory(root, options) if train else []
        notes += [
            f"{name} is not installed, this project is slower without it; see the extra 'fast'"
            for name in ("simplejpeg", "numba")
            if find_spec(name) is None
        ]
        count = len(photos.files_of(root))
    title = f"{work}: {count:,} JPEGs, batch {options.batch_size}, {options.workers} workers"
    return Result(title, rows, notes=notes)


def _packs(root: Path, place: Path, *, resized: bool) -> tuple[dict[str, Path], list[str]]:
    from datamodules.images.packs.jpegtran import jpegtran
    from datamodules.images.packs.writer import write_pack

    packs, notes = {}, []
    try:
        jpegtran()
    except RuntimeError as error:
        notes.append(f"slice_pack is skipped: {error}")
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

    def ours(pack: Path | None = None, **more: Any) -> Callable[[], int]:
        @cache
        def loader() -> Iterable[Any]:
            """Return the same loader in every round, as in a fit: it reuses its batch memory."""
            # else the CPU time of worker processes would be counted when they end, rounds later
            more["loader_options"] = {"persistent_workers": False}
            return our_batches(root, pack, train=train, **{**sizes, **more})

        return lambda: consume(loader())

    return [
        Variant("stock", lambda: consume(stock.images(root, train=train, **sizes))),
        Variant("plain", ours()),
        Variant("cache_ram", ours(image_options={"cache": "ram"})),
        *(Variant(name, ours(pack)) for name, pack in packs.items()),
    ]


def our_batches(
    root: Path,
    pack: Path | None,
    *,
    train: bool,
    batch_size: int,
    workers: int,
    seed: int = 0,
    image_options: ImageOptions | None = None,
    **more: Any,
) -> Iterable[Any]:
    """Return a loader of all images, with this project's datamodule."""
    data = ImageFolderDataModule(
        root, val_split=0, test_split=0, batch_size=batch_size, num_workers=workers, seed=seed,
        image_options={"pack": pack, **(image_options or {})}, **more,
    )  # fmt: skip
    if not train:  # all images in order, as in evaluation
        data.train_transform, data.sampler = data.eval_transform, "sequential"
    data.setup()
    return data.train_dataloader()


def _peers(
    root: Path, place: Path, options: argparse.Namespace, *, train: bool
) -> tuple[list[Variant], list[str]]:
    """Prepare each installed library, and compare its evaluation pixels with stock."""
    sizes: dict[str, Any] = {"batch_size": options.batch_size, "workers": options.workers}
    variants, notes = [], []
    expected = next(iter(stock.images(root, train=False, batch_size=8, workers=0)))[0]
    for library in (*PEERS, *NATIVE):
        name = library.name
        if not library.installed:
            variants.append(Variant(name, None))
            continue
        folder = place / name.replace(" ", "-")
        folder.mkdir()
        try:
            data = library.prepare(root, folder)
            if not train:
                found = next(iter(library.batches(data, train=False, batch_size=8, workers=0)))[0]
                off = float((expected - found).mul(SCALE).abs().mean())
                notes.append(f"{name}: pixels differ from stock by {off:.3f} of 255 on average")
        except (ImportError, OSError, RuntimeError) as error:  # a system library is missing
            notes.append(f"{name} is skipped: {str(error).splitlines()[0][:200]}")
            variants.append(Variant(name, None))
            continue
        run = partial(library.batches, data, train=train, **sizes)
        variants.append(Variant(name, lambda run=run: consume(run())))  # type: ignore[misc]
    return variants, notes


def _memory(root: Path, options: argparse.Namespace) -> list[str]:
    """Report the memory of a worker process at the end of an epoch."""
    if not options.workers:
        return []
    sizes: dict[str, Any] = {"batch_size": options.batch_size, "workers": options.workers}
    loaders = {
        "stock": stock.images(root, train=True, **sizes),
        "plain": our_batches(root, None, train=True, worker_type="process", **sizes),
    }
    notes = []
    for name, loader in loaders.items():
        found = after_an_epoch(loader)
        if found is not None:
            notes.append(
                f"a worker process of {name} has {found.own:.0f} MiB of private memory after an "
                f"epoch and {found.shared:.0f} MiB shared"
            )
    return notes


def _pixels(root: Path, packs: dict[str, Path], batch_size: int) -> list[str]:
    """Compare the pixels of a first batch with stock, and those of a slice pack with files."""
    sizes: dict[str, Any] = {"batch_size": batch_size, "workers": 0}
    expected = next(iter(stock.images(root, train=False, **sizes)))[0] * SCALE
    found = next(iter(our_batches(root, None, train=False, **sizes)))[0] * SCALE
    difference = float((expected - found).abs().mean())
    notes = [f"evaluation pixels differ from stock by {difference:.4f} of 255 on average"]
    plain = next(iter(our_batches(root, None, train=True, **sizes)))[0]
    by_pillow = next(
        iter(our_batches(root, None, train=True, image_options={"fast_transforms": False}, **sizes))
    )[0]
    difference = float((plain - by_pillow).mul(SCALE).abs().mean())
    notes.append(
        f"training pixels differ from fast_transforms=False by {difference:.4f} of 255 on average, "
        "the random numbers are the same"
    )
    if "slice_pack" in packs:
        sliced = next(iter(our_batches(root, packs["slice_pack"], train=True, **sizes)))[0]
        difference = float((plain - sliced).mul(SCALE).abs().max())
        notes.append(f"slice_pack pixels differ from plain by {difference:g} of 255 at most")
    return notes
