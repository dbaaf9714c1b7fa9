"""Small images on disk, and a small Trainer to run over them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from pathlib import Path

import lightning as L
import numpy as np
import torch
from PIL import Image
from torchmetrics.classification import MulticlassAccuracy

HUES = {
    "ash": (230, 20, 20),
    "birch": (20, 230, 20),
    "cedar": (20, 20, 230),
    "damson": (230, 230, 20),
}
# the server imports these once, and its workers start in a moment
multiprocessing.set_forkserver_preload(["lightning.pytorch", "torchvision", "datamodules"])


def solid(path: Path, colour: tuple[int, int, int] | int, size: tuple[int, int] = (12, 10)) -> Path:
    """Write an image of one colour, width and height ``size``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB" if isinstance(colour, tuple) else "L", size, colour).save(path)
    return path


def noise(path: Path, seed: int, size: tuple[int, int] = (8, 8)) -> Path:
    """Write an image of random pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def class_folders(root: Path, counts: Mapping[str, int]) -> Path:
    """Write ``counts[name]`` different images into each ``root/name``."""
    for k, (name, count) in enumerate(counts.items()):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            noise(root / name / f"{i}.png", 1000 * k + i)
    return root


class Net(L.LightningModule):
    """A linear layer of the flattened image; keeps what it was given."""

    def __init__(self, norm: bool = False):
        super().__init__()
        self.layer, self.norm = None, norm
        self.accuracy = None
        self.train_sizes, self.eval_targets = [], []

    def configure_model(self):
        if self.layer is None:
            dm = self.trainer.datamodule
            features = int(np.prod(dm.input_sizes["input_shape"]))
            head = [torch.nn.BatchNorm1d(features)] if self.norm else []
            classes = max(2, dm.num_classes)  # torchmetrics knows no single class
            self.layer = torch.nn.Sequential(*head, torch.nn.Linear(features, classes))
            self.accuracy = MulticlassAccuracy(classes, average="micro")

    def forward(self, image):
        return self.layer(image.flatten(1))

    def training_step(self, batch, index):
        image, target = batch
        self.train_sizes.append(len(target))
        return torch.nn.functional.cross_entropy(self(image), target)

    def validation_step(self, batch, index):
        image, target = batch
        self.eval_targets += target.tolist()
        self.accuracy(self(image), target)
        self.log("accuracy", self.accuracy)

    test_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def quiet_trainer(folder: Path, **flags) -> L.Trainer:
    """A Trainer on the CPU that prints nothing."""
    chosen = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "max_epochs": 1,
        "num_sanity_val_steps": 0,
        "default_root_dir": folder,
    }
    return L.Trainer(**{**chosen, **flags})
