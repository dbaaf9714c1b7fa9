"""Run the scripts' ``main`` in this process, on small images or on the user's own classes."""

from __future__ import annotations

import csv
import logging
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.append(str(SCRIPTS))  # as `python scripts/fit.py` has it

import fit  # noqa: E402
import predict  # noqa: E402
import predictions  # noqa: E402
import results  # noqa: E402
import run_folder  # noqa: E402

__all__ = ["fit", "predict", "predictions", "results", "run_folder"]
CPU = ("--accelerator", "cpu")

OWN = '''
import os
import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset
from datamodules import DataModule


class Rows(TensorDataset):
    def __init__(self, x, y, fails=""):
        super().__init__(x, y)
        self.fails = fails

    def __getitem__(self, i):
        if self.fails == f"rank {os.environ.get('LOCAL_RANK', '0')}" and i > 20:
            raise ValueError("the value 'x' is no number")
        return super().__getitem__(i)


class Points(DataModule):
    """60 points; the class is the sign of the first number."""

    task = "multiclass"

    def __init__(self, fails: str = "", predict_path: str | None = None, **options):
        super().__init__(**options)

    def read(self):
        self.parts = self.split_samples(60)

    def fit(self):
        return {"classes": ["minus", "plus"], "class_counts": [30, 30],
                "input_sizes": {"num_numeric": 3, "cardinalities": []}}

    def target(self, x):
        return (x[:, 0] > 0).long()

    def dataset(self, split):
        x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        if split == "predict":
            return Bare(x[:5])
        rows = self.parts[split]
        return Rows(x[rows], self.target(x[rows]), self.hparams["fails"])


class Numbers(Points):
    """The same points; the target is their sum."""

    task = "regression"
    num_targets = 1
    target_scale = None

    def target(self, x):
        return x.sum(1)


class Bare(TensorDataset):
    def __getitem__(self, i):
        return super().__getitem__(i)[0]


def points(**options) -> Points:
    return Points(**options)


class OwnModel(L.LightningModule):
    """Logs nothing but val_loss, and carries a num_classes of its own."""

    def __init__(self, num_classes: int = 2, lr: float = 0.1):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(3, num_classes)

    def training_step(self, batch, index):
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, index):
        self.log("val_loss", self.training_step(batch, index))

    def predict_step(self, batch, index):
        return self.layer(batch[0] if isinstance(batch, list) else batch).softmax(1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.lr)


class Interrupt(L.Callback):
    """Ctrl-C when the third epoch begins."""

    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 2:
            raise KeyboardInterrupt


class Plain(L.LightningDataModule):
    """Of no base of this project."""

    def __init__(self, num_classes: int = 3):
        super().__init__()
        self.save_hyperparameters()

    def train_dataloader(self):
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
        return DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), 4)

    val_dataloader = train_dataloader

    def predict_dataloader(self):
        return DataLoader(torch.zeros(5, 3), batch_size=2)
'''


def write_images(folder: Path, *, each: int = 16) -> Path:
    """Write three classes of 8 x 8 grey images that any model separates."""
    draw = np.random.default_rng(0)
    for name, level in (("dark", 20), ("grey", 128), ("light", 235)):
        (folder / name).mkdir(parents=True)
        for number in range(each):
            pixels = np.clip(draw.normal(level, 8, (8, 8)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number:02d}.png")
    return folder


def write_photos(folder: Path) -> None:
    """Write ``photos``: train, val and test folders of two classes of RGB images."""
    random = np.random.default_rng(0)
    for split, count in (("train", 6), ("val", 3), ("test", 3)):
        for label, colour in (("ash", 60), ("birch", 190)):
            to = folder / "photos" / split / label
            to.mkdir(parents=True)
            for i in range(count):
                pixels = random.integers(colour - 50, colour + 50, (40, 48, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(to / f"{i}.png")


def on_images(folder: Path) -> list[str]:
    """Return the options for such a folder."""
    options = {"root": folder, "image_size": 8, "mode": "L", "flip": "false", "num_workers": 0}
    options |= {"batch_size": 17, "val_split": 0.25, "test_split": 0.25}
    named = [f"--data.{name}={value}" for name, value in options.items()]
    return ["--data", "ImageFolderDataModule", *named, "--model.lr=0.003", *CPU]


@pytest.fixture(autouse=True)
def as_if_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Use an empty working directory, and undo what a script changes in its process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATAMODULES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS", "DATAMODULES_FIRST_ERROR"):
        monkeypatch.setenv(name, "0")  # so that what stood there before comes back
    loggers = [logging.getLogger(n) for n in ("lightning", "lightning.pytorch", "lightning.fabric")]
    levels, threads = [logger.level for logger in loggers], torch.get_num_threads()
    interrupt = signal.getsignal(signal.SIGINT)
    torch.set_num_threads(1)  # two that wait for each other on busy cores take 20 times as long
    yield tmp_path
    torch.set_num_threads(threads)
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    logging.getLogger("datamodules").handlers.clear()
    logging.getLogger("datamodules").setLevel(logging.NOTSET)
    signal.signal(signal.SIGINT, interrupt)  # Lightning leaves it ignored after Ctrl-C
    sys.modules.pop("own", None)


def metrics(folder: Path) -> dict[str, list[float]]:
    """Return the logged values of each metric of a run."""
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    timed = ("train_data_wait", "train_samples_per_second")  # no two runs take the same time
    names = [name for name in rows[0] if name not in timed]
    return {name: [float(r[name]) for r in rows if r[name]] for name in names}


def best_epoch(folder: Path) -> int:
    """Return the epoch of the best checkpoint."""
    return torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["epoch"]
