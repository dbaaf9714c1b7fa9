"""From a fresh Python to the first batch: imports, listing, split, workers."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from . import photos
from .rounds import Variant, add_sizes, compare
from .tables import Result

HERE = Path(__file__).resolve().parent.parent
STOCK = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from benchmarks import stock
next(iter(stock.images(Path(sys.argv[1]), train=True, batch_size=16, workers=int(sys.argv[2]))))
"""
PLAIN = """
import sys
sys.path[:0] = sys.argv[3:]
from datamodules import ImageFolderDataModule
data = ImageFolderDataModule(sys.argv[1], batch_size=16, num_workers=int(sys.argv[2]))
next(iter(data.train_dataloader()))
"""


def add_options(parser: argparse._ArgumentGroup) -> None:
    """Add sizes and rounds."""
    add_sizes(parser, samples=200, workers=0)


def measure(options: argparse.Namespace) -> Result:
    """Start a process for each run; one sample is one start."""
    with tempfile.TemporaryDirectory() as folder:
        root = photos.make_photos(Path(folder) / "photos", options.samples)

        def start(program: str) -> int:
            paths = [str(HERE), str(HERE.parent)]
            command = [sys.executable, "-c", program, str(root), str(options.workers), *paths]
            subprocess.run(command, check=True, timeout=300)
            return 1

        variants = [
            Variant("stock", lambda: start(STOCK)),
            Variant("plain", lambda: start(PLAIN)),
            Variant("lightning alone", lambda: start("import lightning")),
        ]
        rows = compare(
            "startup", variants, rounds=options.rounds, workers=options.workers, warm_up=False
        )
    title = f"startup: first batch of {options.samples:,} images; starts a second"
    notes = ["lightning alone: its import, which a stock loader does without and a Trainer needs"]
    return Result(title, rows, notes=notes)
