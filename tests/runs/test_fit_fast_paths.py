"""A whole run of fit.py on each way of loading that is faster than the plain one."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from made_images import encode
from PIL import Image, JpegImagePlugin
from script_runs import CPU, as_if_alone, fit  # noqa: F401 - a fixture that is there by being known

from datamodules.images.dataset import PixelDataset
from datamodules.images.packs.image_pack import ImagePack
from datamodules.images.packs.jpegtran import jpegtran
from datamodules.images.packs.writer import write_pack
from datamodules.images.ram_cache import RamCache
from datamodules.loading import loader
from datamodules.tables.dataset import RowDataset
from datamodules.texts.dataset import TextDataset

SMALL = """
import numpy as np

class Small:
    classes = ("dark", "light")

    def __init__(self, train):
        n = 40 if train else 20
        self.targets = [k % 2 for k in range(n)]
        draws = np.random.default_rng(0)
        self.data = draws.integers(0, 80, (n, 32, 32, 3), np.uint8)
        self.data[1::2] += 150


def open_small(root, train, download):
    return Small(train)
"""


def photos():
    draws = np.random.default_rng(0)
    for number in range(32):
        level = 60 + 120 * (number % 2)
        pixels = np.clip(draws.normal(level, 8, (48, 64, 3)), 0, 255).astype(np.uint8)
        path = Path("photos") / ("dark", "light")[number % 2] / f"{number:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(Image.fromarray(pixels), "JPEG", quality=90))
    return ["ImageFolderDataModule", "--data.root=photos", "--data.image_size=32"]


def in_threads():
    return [*photos(), "--data.num_workers=2"]


def slice_pack():
    try:
        jpegtran()
    except RuntimeError as error:
        pytest.skip(str(error))
    options = photos()
    write_pack(Path("photos"), Path("p.pack"))
    return [*options, "--data.image_options.pack=p.pack", "--data.num_workers=0"]


def resized_pack():
    options = photos()
    write_pack(Path("photos"), Path("p.pack"), kind="resized-raw", size=40)
    return [*options, "--data.image_options.pack=p.pack", "--data.num_workers=0"]


def in_ram():
    return [
        *photos(),
        "--data.image_options.cache=ram",
        "--data.image_options.cache_bytes=10000000",
        "--data.num_workers=0",
    ]


def drafted():
    return [
        *photos(),
        "--data.image_options.draft=true",
        "--data.image_size=12",
        "--data.num_workers=0",
    ]


def cifar():
    Path("small.py").write_text(SMALL)
    return ["CIFAR10DataModule", "--data.dataset_class=small.open_small", "--data.root=."]


def rows():
    lines = [f"{n % 7},{n * 0.5},{'uv'[n % 2]},{'ab'[n % 2]}" for n in range(40)]
    Path("rows.csv").write_text("x,y,kind,label\n" + "\n".join(lines) + "\n")
    return ["TabularDataModule", "--data.path=rows.csv", "--data.target=label"]


def texts():
    lines = [f"{'good fine nice' if n % 2 else 'bad poor sad'} {n},{n % 2}" for n in range(40)]
    Path("texts.csv").write_text("text,label\n" + "\n".join(lines) + "\n")
    return ["TextDataModule", "--data.path=texts.csv", "--data.sampler=length_buckets"]


PATHS = {  # what writes the data and gives the options, and what must have been asked
    "threads": (in_threads, (loader, "made_by_threads")),
    "slice pack": (slice_pack, (ImagePack, "stored")),
    "resized pack": (resized_pack, (ImagePack, "stored")),
    "RAM": (in_ram, (RamCache, "put")),
    "draft": (drafted, (JpegImagePlugin.JpegImageFile, "draft")),
    "CIFAR-10": (cifar, (PixelDataset, "get_batch")),
    "table": (rows, (RowDataset, "get_batch")),
    "text": (texts, (TextDataset, "get_batch")),
}


@pytest.mark.parametrize("path", PATHS)
def test_a_fit_uses_the_fast_path(path, monkeypatch, capfd):
    make, (owner, name) = PATHS[path]
    asked, stock = [], getattr(owner, name)

    def counted(*arguments, **options):
        asked.append(1)
        return stock(*arguments, **options)

    monkeypatch.setattr(owner, name, counted)
    given = ["--data", *make(), "--data.batch_size=8", "--data.val_split=0.25"]
    code = fit.main([*given, "--data.seed=0", "--max_epochs=1", "--model.lr=0.003", *CPU])
    out, err = capfd.readouterr()
    assert (code, err) == (0, "")
    assert "best checkpoint" in out
    assert asked
    folder = next(Path("runs").iterdir())
    with (folder / "metrics.csv").open() as file:
        losses = [float(row["val_loss"]) for row in csv.DictReader(file) if row["val_loss"]]
    assert len(losses) == 1
    assert all(math.isfinite(loss) for loss in losses)
    if path == "threads":
        assert "num_workers: 2" in (folder / "config.yaml").read_text()
