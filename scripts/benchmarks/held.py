"""Data in memory: CIFAR-10's form, a table, token lists; gathered a batch at a time."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules import CIFAR10DataModule, DataModule, LengthBuckets
from datamodules.batches.normalize import Normalizer
from datamodules.tables.dataset import PackedRows, RowDataset
from datamodules.texts.dataset import FlatRows, TextDataset

from . import epochs, held_peers, stock
from .rounds import Variant, compare, consume, peer
from .tables import Result

VOCABULARY = 30_000


class Held(DataModule):
    """Serves one dataset as train.

    Args:
        held: The dataset.
        **options: Of :class:`DataModule`.
    """

    def __init__(self, held: Any, **options: Any) -> None:
        super().__init__(**options)
        self.held = held

    def dataset(self, split: str) -> Any:
        """The dataset, for train."""
        return self.held if split == "train" else None


class Made:
    """10 classes of made images in CIFAR-10's form."""

    classes = tuple("abcdefghij")
    count = 0

    def __init__(self, root: str, *, train: bool, download: bool) -> None:
        n = self.count if train else 100
        draws = np.random.default_rng(0)
        self.data = draws.integers(0, 256, (n, 32, 32, 3), np.uint8)
        self.targets = (np.arange(n) % 10).tolist()


def cifar(options: argparse.Namespace) -> Result:
    """Crop with a margin of 4, flip, normalise."""
    size = options.batch_size

    class Sized(Made):
        count = options.samples

    data = CIFAR10DataModule(dataset_class=Sized, val_split=0, batch_size=size, seed=0)
    data.setup()
    held = Sized("", train=True, download=False)
    pixels = torch.from_numpy(held.data).permute(0, 3, 1, 2).contiguous()
    images = stock.Images(held.data, held.targets)
    variants = [
        Variant("stock", lambda: consume(stock.shuffled(images, size))),
        Variant("plain", lambda: consume(data.train_dataloader())),
        Variant("crop a batch", lambda: consume(_whole_crops(pixels, size))),
    ]
    limit = Variant("limit: gather alone", lambda: _gather([pixels], size))
    rows = compare("cifar", variants, rounds=options.rounds, limit=limit)
    first = next(iter(data.train_dataloader()))
    scale = torch.tensor(stock.CIFAR_STD)[:, None, None]
    levels = first.inputs * scale + torch.tensor(stock.CIFAR_MEAN)[:, None, None]
    off = float((levels * 255 - (levels * 255).round()).abs().max())
    title = f"cifar: {options.samples:,} images of 32 x 32, batch {size}, no workers"
    note = f"pixels are whole levels to {off:.4f} of 255"
    return Result(title, rows, bars="samples_per_cpu_second", notes=[note])


def _batches(n: int, size: int) -> Iterator[Tensor]:
    order = torch.randperm(n)
    return (order[start : start + size] for start in range(0, n, size))


def _whole_crops(pixels: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """One crop and flip a batch of all images alike: a lower bound on variety, not on work."""
    normalizer = Normalizer(stock.CIFAR_MEAN, stock.CIFAR_STD)
    padded = torch.nn.functional.pad(pixels, [4] * 4)
    for rows in _batches(len(pixels), size):
        top, left = torch.randint(0, 9, (2,)).tolist()
        yield normalizer(padded[rows][:, :, top : top + 32, left : left + 32]), rows


def tabular(options: argparse.Namespace) -> Result:
    """30 numbers, 8 codes and a class a row, shuffled."""
    n, size = options.samples, options.batch_size
    draws = torch.Generator().manual_seed(0)
    numeric = torch.randn(n, 30, generator=draws)
    codes = torch.randint(0, 50, (n, 8), generator=draws)
    target = torch.randint(0, 2, (n,), generator=draws)
    packed = PackedRows(n, numeric=30, codes=8, target="class")
    views = packed.views()
    views.numeric[:], views.codes[:] = numeric.numpy(), codes.numpy()
    views.target[:] = target.numpy()
    data = Held(RowDataset(packed), batch_size=size, num_workers=0, seed=0, sampler="shuffle")
    variants = [
        Variant("stock", lambda: consume(stock.shuffled(stock.Rows(numeric, codes, target), size))),
        Variant("plain", lambda: consume(data.train_dataloader())),
        Variant("FastTensorDataLoader", lambda: consume(_fast([numeric, codes, target], size))),
        held_peers.tabular(numeric, codes, target, size),
    ]
    limit = Variant("limit: gather alone", lambda: _gather([numeric, codes, target], size))
    rows = compare("tabular", variants, rounds=options.rounds, limit=limit)
    some = PackedRows(0, numeric=30, codes=8, target="class")
    some.buffer = packed.buffer[: options.epoch_samples]
    rows += epochs.table_rows(Held(RowDataset(some), batch_size=size, num_workers=0), options)
    order = Held(data.held, batch_size=size, num_workers=0, sampler="sequential")
    batch = next(iter(order.train_dataloader()))
    same = torch.equal(batch.inputs.numeric, numeric[:size]) and torch.equal(
        batch.inputs.categorical, codes[:size]
    )
    title = f"tabular: {n:,} rows of 30 numbers and 8 codes, batch {size}, no workers"
    notes = [
        f"the values of a batch are {'the same' if same else 'NOT the same'}",
        "tabular epoch: a Lightning epoch of a small MLP, beside one that loads nothing",
    ]
    return Result(title, rows, bars="samples_per_cpu_second", notes=notes)


def _fast(columns: list[Tensor], size: int) -> Iterator[tuple[Tensor, ...]]:
    """Index whole tensors by a permutation, a pattern from PyTorch's forum."""
    for rows in _batches(len(columns[0]), size):
        yield tuple(column[rows] for column in columns)


def _gather(columns: list[Tensor], size: int) -> int:
    for rows in _batches(len(columns[0]), size):
        for column in columns:
            column.index_select(0, rows)
    return len(columns[0])


def text(options: argparse.Namespace) -> Result:
    """Token lists of log-normal length, padded; length buckets of a token budget."""
    n, size = options.samples, options.batch_size
    draws = np.random.default_rng(0)
    lengths = np.clip(np.exp(draws.normal(4, 0.8, n)), 4, 512).astype(np.int64)
    flat = draws.integers(2, VOCABULARY, int(lengths.sum())).astype(np.uint16)
    ids = [part.tolist() for part in np.split(flat, np.cumsum(lengths)[:-1])]
    labels = draws.integers(0, 2, n)
    held = TextDataset(
        FlatRows.from_lengths(flat, lengths),
        np.arange(n),
        labels,
        pad_id=0,
        padding_side="right",
        describe=str,
    )
    tokens = stock.Tokens(ids, labels.tolist())
    shuffled = Held(held, batch_size=size, num_workers=0, seed=0)
    budget = LengthBuckets(max_tokens=8192)
    buckets = Held(held, batch_size=size, num_workers=0, seed=0, sampler=budget)
    variants = [
        peer(
            "stock",
            "transformers",
            lambda: consume(stock.shuffled(tokens, size, stock.hugging_face_collate()), _labels),
        ),
        Variant("plain", lambda: consume(buckets.train_dataloader())),
        Variant("plain, no buckets", lambda: consume(shuffled.train_dataloader())),
        Variant(
            "pad_sequence", lambda: consume(stock.shuffled(tokens, size, stock.pad_batch), _labels)
        ),
        held_peers.text(ids, labels, size),
    ]
    limit = Variant("limit: memcpy", lambda: _widened(flat, n))
    rows = compare("text", variants, rounds=options.rounds, limit=limit)
    rows += _text_epochs(held, options)
    order = Held(held, batch_size=size, num_workers=0, sampler="sequential")
    batch = next(iter(order.train_dataloader()))
    expected = stock.pad_batch([tokens[i] for i in range(size)])
    same = torch.equal(batch.inputs.input_ids, expected["input_ids"])
    title = f"text: {n:,} texts, {int(lengths.sum()):,} tokens, batch {size} or 8,192 tokens"
    notes = [
        f"the tokens of a batch are {'the same' if same else 'NOT the same'}",
        "stock is Hugging Face's DataCollatorWithPadding",
        "text epoch: a Lightning epoch of a small encoder; its samples are real tokens",
    ]
    return Result(title, rows, bars="samples_per_cpu_second", notes=notes)


def _text_epochs(held: TextDataset, options: argparse.Namespace) -> list[dict[str, Any]]:
    some = TextDataset(
        held.tokens,
        held.rows.numpy()[: options.epoch_samples],
        held.targets[: options.epoch_samples] if held.targets is not None else None,
        pad_id=0,
        padding_side="right",
        describe=str,
    )
    shuffled = Held(some, batch_size=options.batch_size, num_workers=0, seed=0)
    budget = LengthBuckets(max_tokens=2048)
    buckets = Held(some, batch_size=options.batch_size, num_workers=0, seed=0, sampler=budget)
    return epochs.text_rows(shuffled, buckets, VOCABULARY, options)


def _widened(tokens: np.ndarray[Any, Any], texts: int) -> int:
    """Write each token and its mask as int64, which no batch can do without."""
    wide = tokens.astype(np.int64)
    np.ones_like(wide)
    return texts


def _labels(batch: Any) -> int:
    return len(batch["labels"])
