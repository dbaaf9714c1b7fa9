"""A small CSV file of texts and classes, and a datamodule for it."""

from __future__ import annotations

import numpy as np
import polars as pl

from datamodules.text import TextDataModule

NOUNS = {"animal": ["fox", "bird", "horse", "cow"], "plant": ["tree", "fern", "moss", "rose"]}


def make_rows(n=60, seed=0):
    random = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        label = ("animal", "plant")[i % 2]
        words = random.choice([*NOUNS[label], "the", "old", "a"], random.integers(1, 9))
        rows.append((f"{i} {' '.join(words)}", label))
    return rows


def write(path, rows=None):
    frame = pl.DataFrame(make_rows() if rows is None else rows, ["text", "label"], orient="row")
    frame.write_csv(path)
    return path


def make(path, **options):
    return TextDataModule(path, **{"vocab_size": 320, "batch_size": 8, **options})
