"""Fit each kind of plan on two gloo processes: ``python plan_ranks.py``; each rank prints its rows.

One process start, one fit a kind.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import lightning as L
import numpy as np
import torch
from torch.utils.data import Dataset
from trainers import quiet_trainer

from datamodules import DataModule
from datamodules.sampling.by_class import PByK
from datamodules.sampling.length_buckets import LengthBuckets
from datamodules.sampling.strategies import Weighted

ROWS, EPOCHS, SEED = 61, 2, 7


class Numbered(Dataset):
    """Input is the row's own number; classes of 41, 15 and 5 rows; lengths of 1 to 40."""

    targets = np.repeat([0, 1, 2], [41, 15, 5])
    lengths = 1 + np.arange(ROWS) * 17 % 40

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return torch.tensor([float(row)]), int(self.targets[row])


class Rows(DataModule):
    def __init__(self, **options):
        super().__init__(**options)

    def dataset(self, split):
        return Numbered() if split == "train" else None


def own(generator, world_size):
    """A user's plan: five batches, no multiple of two ranks."""
    return torch.randperm(ROWS, generator=generator)[:60].reshape(5, 12).tolist()


KINDS: dict[str, dict[str, Any]] = {
    "shuffle": {"sampler": "shuffle"},
    "sequential": {"sampler": "sequential"},
    "weighted": {"sampler": Weighted([0.0, 1.0, 3.0], per="class")},
    "balanced": {"sampler": "balanced"},
    "p_by_k": {"sampler": PByK(3, 2)},
    "pairs": {"sampler": "pairs"},
    "views": {"sampler": "views"},
    "stratified": {"sampler": "stratified"},
    "length_buckets": {"sampler": LengthBuckets(80, buckets=4)},
    "own": {"sampler": own},
    "own, dropped": {"sampler": own, "uneven": "drop"},
    "drop_last": {"sampler": "shuffle", "loader_options": {"drop_last": True}},
    "global": {"sampler": "shuffle", "global_batch_size": 16},
    "global balanced": {"sampler": "balanced", "global_batch_size": 16},
}


def module_of(kind: str) -> Rows:
    return Rows(batch_size=8, num_workers=0, seed=SEED, **KINDS[kind])


class Recorder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[list[list[int]]] = []

    def on_train_epoch_start(self):
        self.seen.append([])

    def training_step(self, batch, index):
        self.seen[-1].append(batch.inputs[:, 0].int().tolist())
        return self.layer(batch.inputs / 100).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def main() -> None:
    found = {}
    for kind in KINDS:
        model = Recorder()
        trainer = quiet_trainer(2, strategy="ddp", max_epochs=EPOCHS)
        trainer.fit(model, module_of(kind))
        found[kind] = model.seen
    # one write each, so that the ranks' lines do not mix
    sys.stdout.write(f"\nSEEN {json.dumps([trainer.global_rank, found])}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
