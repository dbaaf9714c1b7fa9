"""Whole epochs under a Trainer: what loading and padding cost a training run."""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from datamodules import DataModule
from datamodules.batches.batch import Batch, TextInputs
from models.tabular_nets import TabularMLP
from models.text_nets import TextTransformer

from .rounds import Variant, compare

Row = dict[str, Any]


class Fit(L.LightningModule):
    """A net, cross entropy and Adam; keeps count of the rows or tokens that were real.

    Args:
        net: Called as ``net(*inputs)``.
        count: Real rows or tokens of a batch.
    """

    def __init__(self, net: nn.Module, count: Callable[[Batch], int]) -> None:
        super().__init__()
        self.net, self.count, self.seen = net, count, 0

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """One step."""
        self.seen += self.count(batch)
        return nn.functional.cross_entropy(self.net(*batch.inputs), batch.target)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), 1e-3)


class Changed:
    """A loader whose batches are changed on the way.

    Args:
        loader: With a length.
        change: Batch to batch.
    """

    def __init__(self, loader: Any, change: Callable[[Batch], Batch]) -> None:
        self.loader, self.change = loader, change

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        return map(self.change, self.loader)


class Constant:
    """The same batch over and over.

    Args:
        batch: The batch.
        steps: How often it comes.
    """

    def __init__(self, batch: Batch, steps: int) -> None:
        self.batch, self.steps = batch, steps

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        return (self.batch for _ in range(self.steps))


def table_rows(data: DataModule, options: argparse.Namespace) -> list[Row]:
    """An epoch of a small MLP, beside the same epoch on one batch that is never loaded."""
    loader = data.train_dataloader()
    constant = Constant(next(iter(loader)), len(loader))

    def net() -> nn.Module:
        return TabularMLP(30, 2, [50] * 8)

    variants = [
        Variant("one constant batch", lambda: _fit(net(), constant, _batch_rows)),
        Variant("plain", lambda: _fit(net(), data.train_dataloader(), _batch_rows)),
    ]
    return compare("tabular epoch", variants, rounds=options.rounds)


def text_rows(
    shuffled: DataModule, buckets: DataModule, vocabulary: int, options: argparse.Namespace
) -> list[Row]:
    """An epoch of a small encoder: batches of any lengths, of like lengths, and without padding.

    A sample is a real token here. Without padding every token of the buckets' batches is real: the
    same rectangles are computed, so it is the most that buckets could reach.
    """

    def net() -> nn.Module:
        return TextTransformer(vocabulary, 2, dim=32, depth=1, heads=2)

    variants = [
        Variant("random padding", lambda: _fit(net(), shuffled.train_dataloader(), _real_tokens)),
        Variant("plain", lambda: _fit(net(), buckets.train_dataloader(), _real_tokens)),
        Variant(
            "no padding",
            lambda: _fit(net(), Changed(buckets.train_dataloader(), _filled), _real_tokens),
        ),
    ]
    return compare("text epoch", variants, rounds=options.rounds)


def _fit(net: nn.Module, loader: Any, count: Callable[[Batch], int]) -> int:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    # Lightning 2.6 asks torch 2.9's tree specs in the old way (pytorch-lightning#21326)
    warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`")
    module = Fit(net, count)
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader)
    return module.seen


def _batch_rows(batch: Batch) -> int:
    return len(batch.target)


def _real_tokens(batch: Batch) -> int:
    return int(batch.inputs.attention_mask.sum())


def _filled(batch: Batch) -> Batch:
    ids, mask = batch.inputs
    return Batch(TextInputs(ids.clamp(min=2), torch.ones_like(mask)), batch.target)
