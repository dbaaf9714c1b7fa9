"""A CSV read and fitted, beside pandas; a folder of many files listed, beside torchvision."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from torchvision.datasets import ImageFolder

from datamodules import ImageFolderDataModule, TabularDataModule

from . import stock
from .rounds import Variant, add_sizes, compare, peer
from .tables import Result

NUMBERS, CODES = [f"n{i}" for i in range(12)], [f"c{i}" for i in range(4)]


def add_options(parser: argparse._ArgumentGroup) -> None:
    """Add sizes and rounds."""
    add_sizes(parser, rows=100_000, files=20_000)


def measure(options: argparse.Namespace) -> Result:
    """Measure both and put them in one table."""
    with tempfile.TemporaryDirectory() as folder:
        path, photos = Path(folder) / "table.csv", Path(folder) / "photos"
        _write_csv(path, options.rows)
        for i in range(options.files):
            file = photos / f"class{i % 10}" / f"{i}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        rows = compare("csv", _csv(path, options.rows), rounds=options.rounds)
        rows += compare("listing", _listing(photos, options.files), rounds=options.rounds)
        size = path.stat().st_size
    title = f"ingest: {options.rows:,} rows ({size / 1e6:.0f} MB), {options.files:,} files"
    notes = ["csv, plain: read, split by class, fit on train rows alone, and encode all rows"]
    return Result(title, rows, notes=notes)


def _write_csv(path: Path, rows: int) -> None:
    import polars

    draws = np.random.default_rng(0)
    columns: dict[str, object] = {name: draws.normal(0, 1, rows) for name in NUMBERS}
    for name in CODES:
        columns[name] = np.array([f"v{i}" for i in range(40)])[draws.integers(0, 40, rows)]
    columns["target"] = draws.integers(0, 2, rows)
    polars.DataFrame(columns).write_csv(path)


def _csv(path: Path, rows: int) -> list[Variant]:
    def by_pandas() -> int:
        numbers, _ = stock.fit_table(path, NUMBERS, CODES, rows * 8 // 10)
        return len(numbers)

    def plain() -> int:
        data = TabularDataModule(path, "target", categorical=CODES, num_workers=0)
        data.setup()
        datasets = (data.train_dataset, data.val_dataset, data.test_dataset)
        return sum(len(dataset) for dataset in datasets)

    return [peer("stock", "pandas", by_pandas), Variant("plain", plain)]


def _listing(photos: Path, files: int) -> list[Variant]:
    def by_torchvision() -> int:
        return len(ImageFolder(str(photos)).samples)

    def plain() -> int:
        ImageFolderDataModule(photos).setup()
        return files

    return [Variant("stock", by_torchvision), Variant("plain", plain)]
