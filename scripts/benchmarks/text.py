"""Token lists in memory, padded and in length buckets."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from datamodules import LengthBuckets
from datamodules.texts.dataset import FlatRows, TextDataset

from . import epochs, stock
from .in_memory import InMemory
from .rounds import Variant, add_sizes, compare, consume, peer
from .tables import Result

VOCABULARY = 30_000


def add_options(parser: argparse._ArgumentGroup) -> None:
    """Add sizes and rounds."""
    add_sizes(parser, samples=20000, batch_size=32, epoch_samples=5000)


def measure(options: argparse.Namespace) -> Result:
    """Measure token lists of log-normal length."""
    n, size = options.samples, options.batch_size
    draws = np.random.default_rng(0)
    lengths = np.clip(np.exp(draws.normal(4, 0.8, n)), 4, 512).astype(np.int64)
    flat = draws.integers(2, VOCABULARY, int(lengths.sum())).astype(np.uint16)
    ids = [part.tolist() for part in np.split(flat, np.cumsum(lengths)[:-1])]
    labels = draws.integers(0, 2, n)

    def texts(count: int) -> TextDataset:
        rows = FlatRows.from_lengths(flat, lengths), np.arange(count), labels[:count]
        return TextDataset(*rows, pad_id=0, padding_side="right", describe=str)

    tokens = stock.Tokens(ids, labels.tolist())
    shuffled = InMemory(texts(n), batch_size=size, seed=0)
    buckets = InMemory(texts(n), batch_size=size, seed=0, sampler=LengthBuckets(max_tokens=8192))
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
        _hugging_face_datasets(ids, labels, size),
    ]
    limit = Variant("limit: memcpy", lambda: _widen(flat, n))
    rows = compare("text", variants, rounds=options.rounds, limit=limit)
    some, budget = texts(min(n, options.epoch_samples)), LengthBuckets(max_tokens=2048)
    rows += epochs.text_rows(
        InMemory(some, batch_size=size, seed=0),
        InMemory(some, batch_size=size, seed=0, sampler=budget),
        VOCABULARY,
        options.rounds,
    )
    ordered = InMemory(texts(n), batch_size=size, sampler="sequential")
    batch = next(iter(ordered.train_dataloader()))
    expected = stock.pad_batch([tokens[i] for i in range(size)])
    same = torch.equal(batch.inputs.input_ids, expected["input_ids"])
    title = f"text: {n:,} texts, {int(lengths.sum()):,} tokens, batch {size} or 8,192 tokens"
    notes = [
        f"the tokens of a batch are {'the same' if same else 'NOT the same'}",
        "stock is Hugging Face's DataCollatorWithPadding",
        "text epoch: a Lightning epoch of a small encoder; its samples are real tokens",
    ]
    return Result(title, rows, notes=notes)


def _hugging_face_datasets(
    ids: Sequence[Sequence[int]], labels: np.ndarray[Any, Any], size: int
) -> Variant:
    """Use Hugging Face's Arrow dataset and collator under torch's loader."""

    @cache
    def dataset() -> Any:
        import datasets

        masks = [[1] * len(row) for row in ids]
        columns = {"input_ids": ids, "attention_mask": masks, "label": labels.tolist()}
        return datasets.Dataset.from_dict(columns)

    def run() -> int:
        collate = stock.hugging_face_collate()
        return consume(DataLoader(dataset(), size, shuffle=True, collate_fn=collate), _labels)

    return peer("datasets and collator", "datasets", run)


def _widen(tokens: np.ndarray[Any, Any], texts: int) -> int:
    """Write each token and its mask as int64, which every batch needs; return ``texts``."""
    wide = tokens.astype(np.int64)
    np.ones_like(wide)
    return texts


def _labels(batch: Any) -> int:
    return len(batch["labels"])
