"""Small images in memory, in the form of CIFAR-10: crop and flip."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from datamodules import CIFAR10DataModule
from datamodules.batches.normalize import Normalizer

from . import stock
from .in_memory import gather, random_batches
from .rounds import Variant, add_sizes, compare, consume
from .tables import Result


def add_options(parser: argparse._ArgumentGroup) -> None:
    """Add sizes and rounds."""
    add_sizes(parser, samples=20000, batch_size=128)


class RandomImages:
    """10 classes of random pixels, with the interface of torchvision's CIFAR10."""

    classes = tuple("abcdefghij")
    count = 0

    def __init__(self, root: str, *, train: bool, download: bool) -> None:
        n = self.count if train else 100
        draws = np.random.default_rng(0)
        self.data = draws.integers(0, 256, (n, 32, 32, 3), np.uint8)
        self.targets = (np.arange(n) % 10).tolist()


def measure(options: argparse.Namespace) -> Result:
    """Measure crop with a margin of 4, flip, normalize."""
    size = options.batch_size

    class Sized(RandomImages):
        count = options.samples

    data = CIFAR10DataModule(dataset_class=Sized, val_split=0, batch_size=size, seed=0)
    data.setup()
    source = Sized("", train=True, download=False)
    pixels = torch.from_numpy(source.data).permute(0, 3, 1, 2).contiguous()
    images = stock.Images(source.data, source.targets)
    variants = [
        Variant("stock", lambda: consume(stock.shuffled(images, size))),
        Variant("plain", lambda: consume(data.train_dataloader())),
        Variant("crop a batch", lambda: consume(_batch_crops(pixels, size))),
    ]
    limit = Variant("limit: gather alone", lambda: gather([pixels], size))
    rows = compare("cifar", variants, rounds=options.rounds, limit=limit)
    first = next(iter(data.train_dataloader()))
    scale = torch.tensor(stock.CIFAR_STD)[:, None, None]
    levels = (first.inputs * scale + torch.tensor(stock.CIFAR_MEAN)[:, None, None]) * 255
    off = float((levels - levels.round()).abs().max())
    title = f"cifar: {options.samples:,} images of 32 x 32, batch {size}, no workers"
    return Result(title, rows, notes=[f"pixels are whole levels to {off:.4f} of 255"])


def _batch_crops(pixels: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Crop all images of a batch at the same place: less variety, the same amount of copying."""
    normalizer = Normalizer(stock.CIFAR_MEAN, stock.CIFAR_STD)
    padded = torch.nn.functional.pad(pixels, [4] * 4)
    for rows in random_batches(len(pixels), size):
        top, left = torch.randint(0, 9, (2,)).tolist()
        yield normalizer(padded[rows][:, :, top : top + 32, left : left + 32]), rows
