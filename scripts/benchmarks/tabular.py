"""Rows of a table in memory, shuffled."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from datamodules.tables.dataset import PackedRows, RowDataset

from . import epochs, stock
from .in_memory import InMemory, gather, random_batches
from .rounds import Variant, add_sizes, compare, consume, peer
from .tables import Result


def add_options(parser: argparse._ArgumentGroup) -> None:
    """Add sizes and rounds."""
    add_sizes(parser, samples=200000, batch_size=1024, epoch_samples=200000)


def measure(options: argparse.Namespace) -> Result:
    """Measure 30 numbers, 8 category indices and a class per row."""
    n, size = options.samples, options.batch_size
    draws = torch.Generator().manual_seed(0)
    numeric = torch.randn(n, 30, generator=draws)
    codes = torch.randint(0, 50, (n, 8), generator=draws)
    target = torch.randint(0, 2, (n,), generator=draws)
    columns = [numeric, codes, target]
    packed = PackedRows(n, numeric=30, codes=8, target="class")
    views = packed.views()
    views.numeric[:], views.codes[:] = numeric.numpy(), codes.numpy()
    views.target[:] = target.numpy()
    data = InMemory(RowDataset(packed), batch_size=size, seed=0, sampler="shuffle")
    variants = [
        Variant("stock", lambda: consume(stock.shuffled(TensorDataset(*columns), size))),
        Variant("plain", lambda: consume(data.train_dataloader())),
        Variant("FastTensorDataLoader", lambda: consume(_index_tensors(columns, size))),
        _pytorch_tabular(numeric, codes, target, size),
    ]
    limit = Variant("limit: gather alone", lambda: gather(columns, size))
    rows = compare("tabular", variants, rounds=options.rounds, limit=limit)
    some = PackedRows(0, numeric=30, codes=8, target="class")
    some.buffer = packed.buffer[: options.epoch_samples]
    rows += epochs.table_rows(InMemory(RowDataset(some), batch_size=size), options.rounds)
    ordered = InMemory(data.rows, batch_size=size, sampler="sequential")
    batch = next(iter(ordered.train_dataloader())).inputs
    found, expected = (batch.numeric, batch.categorical), (numeric[:size], codes[:size])
    same = all(map(torch.equal, found, expected))
    title = f"tabular: {n:,} rows of 30 numbers and 8 codes, batch {size}, no workers"
    notes = [
        f"the values of a batch are {'the same' if same else 'NOT the same'}",
        "tabular epoch: a Lightning epoch of a small MLP, beside one that loads nothing",
    ]
    return Result(title, rows, notes=notes)


def _index_tensors(columns: list[Tensor], size: int) -> Iterator[tuple[Tensor, ...]]:
    """Index whole tensors by a permutation, a pattern from PyTorch's forum."""
    for rows in random_batches(len(columns[0]), size):
        yield tuple(column[rows] for column in columns)


def _pytorch_tabular(numeric: Tensor, codes: Tensor, target: Tensor, size: int) -> Variant:
    """Use pytorch-tabular's dataset under torch's loader, as its datamodule builds it."""

    @cache
    def dataset() -> Any:
        import pandas as pd
        from pytorch_tabular.tabular_datamodule import TabularDataset

        numbers = [f"x{k}" for k in range(numeric.shape[1])]
        categories = [f"c{k}" for k in range(codes.shape[1])]
        frame = pd.DataFrame(numeric.numpy(), columns=numbers)
        frame[categories] = codes.numpy()
        frame["y"] = target.numpy()
        return TabularDataset(frame, "classification", numbers, categories, ["y"])

    def run() -> int:
        loader = DataLoader(dataset(), size, shuffle=True)
        return consume(loader, lambda batch: len(batch["target"]))

    return peer("pytorch-tabular", "pytorch_tabular", run)
