"""Balanced training and exact evaluation on W gloo processes: ``python exact_ranks.py WORLD``."""

from __future__ import annotations

import json
import sys

import torch
from torch.utils.data import TensorDataset
from trainers import quiet_trainer

from datamodules import DatasetDataModule
from models import Classifier


class WrongOnRowZero(torch.nn.Module):
    """Input (N, 2) is the row's number and its class; answers right on every row but 0."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        answer = torch.where(x[:, 0] == 0, 1 - x[:, 1], x[:, 1]).long()
        return torch.nn.functional.one_hot(answer, 2) * 4.0 * self.weight + x[:, :1] / 10


class Recorded(Classifier):
    def on_train_batch_start(self, batch, index):
        self.seen[-1].append(batch.inputs[:, 0].int().tolist())

    def on_train_epoch_start(self):
        self.seen = [*getattr(self, "seen", []), []]


def rows(labels: list[int]) -> TensorDataset:
    y = torch.tensor(labels)
    return TensorDataset(torch.stack([torch.arange(len(y)), y], 1).float(), y)


def main() -> None:
    world = int(sys.argv[1])
    dm = DatasetDataModule(
        train=rows([0] * 90 + [1] * 10),
        val=rows([1, 0, 1, 0, 1]),
        test=rows([1]),
        sampler="balanced",
        batch_size=10,
        eval_batch_size=2,
        num_workers=0,
        seed=4,
    )
    model = Recorded(WrongOnRowZero(), num_classes=2, lr=0.0)
    trainer = quiet_trainer(world, max_epochs=2, num_sanity_val_steps=0)
    trainer.fit(model, dm)
    val = trainer.validate(model, dm, verbose=False)[0]
    confusion = model.confusion_matrix.tolist()
    test = trainer.test(model, dm, verbose=False)[0]  # one row: the second rank has none
    found = {"train": model.seen, "val": val, "confusion": confusion, "test": test}
    sys.stdout.write(f"\nSEEN {json.dumps([trainer.global_rank, found])}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
