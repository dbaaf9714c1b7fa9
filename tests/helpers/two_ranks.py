"""Fit, validate, test and predict on W gloo processes; each rank prints what it saw as JSON.

Run as a program: ``python two_ranks.py WORLD CASE...``, each case four numbers with commas between:
ROWS,BATCH_SIZE,EVAL_BATCH_SIZE,WORKERS.
"""

from __future__ import annotations

import json
import os
import sys

import lightning as L
import torch
from lightning.pytorch.callbacks import BasePredictionWriter
from torch.utils.data import TensorDataset
from trainers import quiet_trainer

from datamodules import DataModule


class Rows(DataModule):
    """``rows`` samples whose input is their own number."""

    def __init__(self, rows: int = 20, **options):
        super().__init__(**options)

    def read(self):
        self.parts = self.split_samples(self.hparams["rows"])

    def split_fingerprint(self):
        return str({k: v.tolist() for k, v in self.parts.items()})

    def dataset(self, split):
        x = torch.arange(self.hparams["rows"], dtype=torch.float32)[:, None]
        if split == "predict":
            return x
        return Part(x, self.parts[split])


class Part(TensorDataset):
    def __init__(self, x, rows):
        super().__init__(x[rows], x[rows, 0])


class Recorder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = {"train": [], "val": [], "test": [], "predict": []}

    def forward(self, x):
        return self.layer(x)

    def training_step(self, batch, index):
        self.seen["train"].append((self.current_epoch, batch.inputs[:, 0].int().tolist()))
        return self.layer(batch.inputs / 100).mean()

    def validation_step(self, batch, index):
        if not self.trainer.sanity_checking:
            self.seen["val"].append((self.current_epoch, batch.inputs[:, 0].int().tolist()))

    def test_step(self, batch, index):
        self.seen["test"].append((0, batch.inputs[:, 0].int().tolist()))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


class Writer(BasePredictionWriter):
    def __init__(self):
        super().__init__("epoch")

    def write_on_epoch_end(self, trainer, module, predictions, batch_indices):
        module.seen["predict"] = [(0, batch) for batch in batch_indices[0]]


def seen(world: int, case: str) -> dict[str, list]:
    """What this rank saw: ``{split: [(epoch, rows), ...]}``."""
    rows, size, eval_size, workers = map(int, case.split(","))
    dm = Rows(rows, batch_size=size, eval_batch_size=eval_size, num_workers=workers, seed=5)
    model = Recorder()
    trainer = quiet_trainer(world, max_epochs=2, callbacks=[Writer()])
    trainer.fit(model, dm)
    trainer.test(model, dm, verbose=False)
    trainer.predict(model, dm, return_predictions=False)
    return model.seen


def main() -> None:
    world, *cases = sys.argv[1:]
    found = {case: seen(int(world), case) for case in cases}
    # one write each, so that the ranks' lines do not mix
    sys.stdout.write(f"\nSEEN {json.dumps([os.environ.get('LOCAL_RANK', '0'), found])}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
