"""Whole epochs under a Trainer: what loading and padding cost a training run."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
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
    """Cross entropy and Adam; counts the real rows or tokens.

    Args:
        net: Called as ``net(*inputs)``.
        count: Returns the number of real rows or tokens of a batch.
    """

    def __init__(self, net: nn.Module, count: Callable[[Batch], int]) -> None:
        super().__init__()
        self.net, self.count, self.seen = net, count, 0

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the loss."""
        self.seen += self.count(batch)
        return nn.functional.cross_entropy(self.net(*batch.inputs), batch.target)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam."""
        return torch.optim.Adam(self.parameters(), 1e-3)


class Batches:
    """A loader with a length, from any iterable of batches.

    Args:
        steps: Number of batches.
        batches: Called at the start of each epoch.
    """

    def __init__(self, steps: int, batches: Callable[[], Iterable[Batch]]) -> None:
        self.steps, self.batches = steps, batches

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches())


def table_rows(data: DataModule, rounds: int) -> list[Row]:
    """Compare an epoch of a small MLP with the same epoch on one batch that is never loaded."""
    loader = data.train_dataloader()
    batch, steps = next(iter(loader)), len(loader)
    constant = Batches(steps, lambda: (batch for _ in range(steps)))

    def fit(loader: Any) -> int:
        return _fit(TabularMLP(30, 2, [50] * 8), loader, lambda batch: len(batch.target))

    variants = [
        Variant("one constant batch", lambda: fit(constant)),
        Variant("plain", lambda: fit(data.train_dataloader())),
    ]
    return compare("tabular epoch", variants, rounds=rounds)


def text_rows(shuffled: DataModule, buckets: DataModule, vocabulary: int, rounds: int) -> list[Row]:
    """Compare an epoch of a small encoder with random padding, length buckets, and no padding.

    A sample is a real token here. Without padding every token of the buckets' batches is real: the
    same rectangles are computed, so it is the most that buckets could reach.
    """

    def fit(loader: Any) -> int:
        return _fit(TextTransformer(vocabulary, 2, dim=32, depth=1, heads=2), loader, real_tokens)

    def no_padding() -> Batches:
        loader = buckets.train_dataloader()
        return Batches(len(loader), lambda: map(without_padding, loader))

    variants = [
        Variant("random padding", lambda: fit(shuffled.train_dataloader())),
        Variant("plain", lambda: fit(buckets.train_dataloader())),
        Variant("no padding", lambda: fit(no_padding())),
    ]
    return compare("text epoch", variants, rounds=rounds)


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


def real_tokens(batch: Batch) -> int:
    """Count the tokens that are not padding."""
    return int(batch.inputs.attention_mask.sum())


def without_padding(batch: Batch) -> Batch:
    """Replace padding by real tokens."""
    ids, mask = batch.inputs
    return Batch(TextInputs(ids.clamp(min=2), torch.ones_like(mask)), batch.target)
