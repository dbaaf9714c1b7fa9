"""Training and evaluation images from JPEG files and packs, beside the stock way and peers."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch

from datamodules import ImageFolderDataModule
from datamodules.images.options import ImageOptions

from . import photos, stock
from .native_peers import NATIVE
from .peers import PEERS
from .rounds import Variant, compare, consume
from .tables import Result
from .worker_memory import after_an_epoch

SETTLED = 48  # batches after which the number of threads was found
SCALE = 255 * torch.tensor(stock.STD)[:, None, None]
PACKS = {"resized_pack_raw": "resized-raw", "resized_pack_jpeg": "resized-jpeg"}


def add_options(parser: argparse._ArgumentGroup) -> None:
    """Data and rounds."""
    parser.add_argument("--root", type=Path, help="class folders of JPEGs; default: made ones")
    parser.add_argument("--samples", type=int, default=600, help="images that are made")
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
        others, said = _peers(root, place, options, train=train)
        variants, notes = variants + others, notes + said
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
    return Result(title, rows, bars="samples_per_cpu_second", notes=notes)


def _packs(root: Path, place: Path, *, resized: bool) -> tuple[dict[str, Path], list[str]]:
    from datamodules.images.packs.jpegtran import jpegtran
    from datamodules.images.packs.writer import write_pack

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

    def ours(pack: Path | None = None, **more: Any) -> Callable[[], int]:
        @cache
        def loader() -> Iterable[Any]:
            """One from round to round, as a fit has: its memory for batches is used again."""
            # else the CPU time of worker processes would be counted when they end, rounds later
            more["loader_options"] = {"persistent_workers": False}
            made = our_batches(root, pack, train=train, **{**sizes, **more})
            seen = 0
            while more.get("workers") == "auto" and seen < SETTLED:
                seen += sum(1 for _ in made)
            return made

        return lambda: consume(loader())

    return [
        Variant("stock", lambda: consume(stock.images(root, train=train, **sizes))),
        Variant("plain", ours()),
        *([Variant("auto_workers", ours(workers="auto"))] if train else []),
        Variant("cache_ram", ours(image_options={"cache": "ram"})),
        *(Variant(name, ours(pack)) for name, pack in packs.items()),
    ]


def our_batches(
    root: Path,
    pack: Path | None,
    *,
    train: bool,
    batch_size: int,
    workers: int | Literal["auto"],
    seed: int = 0,
    image_options: ImageOptions | None = None,
    **more: Any,
) -> Iterable[Any]:
    """All images through this project's datamodule, finished."""
    data = ImageFolderDataModule(
        root, val_split=0, test_split=0, batch_size=batch_size, num_workers=workers, seed=seed,
        image_options={"pack": pack, **(image_options or {})}, **more,
    )  # fmt: skip
    if not train:  # all images, in order, as evaluation takes them
        data.train_transform, data.sampler = data.eval_transform, "sequential"
    data.setup()
    return data.train_dataloader()


def _peers(
    root: Path, place: Path, options: argparse.Namespace, *, train: bool
) -> tuple[list[Variant], list[str]]:
    """Each installed peer with what it reads, and how its evaluation pixels compare."""
    sizes: dict[str, Any] = {"batch_size": options.batch_size, "workers": options.workers}
    variants, notes = [], []
    expected = next(iter(stock.images(root, train=False, batch_size=8, workers=0)))[0]
    for one in (*PEERS, *NATIVE):
        if not one.there:
            variants.append(Variant(one.name, None))
            continue
        folder = place / one.name.replace(" ", "-")
        folder.mkdir()
        try:
            data = one.prepare(root, folder)
            if not train:
                found = next(iter(one.batches(data, train=False, batch_size=8, workers=0)))[0]
                off = float((expected - found).mul(SCALE).abs().mean())
                notes.append(f"{one.name}: pixels differ from stock by {off:.3f} of 255 on average")
        except (ImportError, OSError, RuntimeError) as error:  # a library of the system is absent
            notes.append(f"{one.name} is left out: {str(error).splitlines()[0][:200]}")
            variants.append(Variant(one.name, None))
            continue
        run = partial(one.batches, data, train=train, **sizes)
        variants.append(Variant(one.name, lambda run=run: consume(run())))  # type: ignore[misc]
    return variants, notes


def _memory(root: Path, options: argparse.Namespace) -> list[str]:
    """What a worker process holds when an epoch ends."""
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
                f"a worker process of {name} holds {found.own:.0f} MiB of its own after an epoch "
                f"and {found.shared:.0f} MiB shared"
            )
    return notes


def _pixels(root: Path, packs: dict[str, Path], batch_size: int) -> list[str]:
    """Compare the pixels of a first batch with the stock way's, and a slice pack's with files."""
    sizes: dict[str, Any] = {"batch_size": batch_size, "workers": 0}
    expected = next(iter(stock.images(root, train=False, **sizes)))[0] * SCALE
    found = next(iter(our_batches(root, None, train=False, **sizes)))[0] * SCALE
    difference = float((expected - found).abs().mean())
    notes = [f"evaluation pixels differ from the stock way's by {difference:.4f} of 255 on average"]
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
