"""Fit and evaluate a table on W gloo processes; each rank prints what it saw as JSON.

Run as a program: ``python table_ranks.py WORLD FOLDER EVAL_BATCH_SIZE``.
"""

from __future__ import annotations

import json
import sys

import lightning as L
import torch
from trainers import quiet_trainer

from datamodules.tabular import TabularDataModule


class Seen(L.LightningModule):
    """The column ``row`` is the row's number, unscaled by what was fitted."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.seen = {"train": [], "val": [], "test": [], "predict": []}

    def note(self, split, inputs):
        [row] = [f for f in self.trainer.datamodule.fitted["features"] if f["name"] == "row_"]
        self.seen[split] += (inputs.numeric[:, 0] * row["std"] + row["mean"]).round().int().tolist()

    def forward(self, inputs):
        self.note("predict", inputs)
        return self.layer(inputs.numeric)

    def training_step(self, batch, index):
        self.note("train", batch.inputs)
        logits = self.layer(batch.inputs.numeric)
        return torch.nn.functional.cross_entropy(logits, batch.target)

    def validation_step(self, batch, index):
        if not self.trainer.sanity_checking:
            self.note("val", batch.inputs)

    def test_step(self, batch, index):
        self.note("test", batch.inputs)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def main() -> None:
    world, folder, size = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    dm = TabularDataModule(
        f"{folder}/train.csv",
        "label",
        predict_path=f"{folder}/new.csv",
        batch_size=8 // world,
        eval_batch_size=size,
        val_split=0.2,
        test_split=0.2,
        seed=3,
    )
    model = Seen()
    trainer = quiet_trainer(world, max_epochs=1)
    trainer.fit(model, dm)
    trainer.test(model, dm, verbose=False)
    trainer.predict(model, dm, return_predictions=False)
    said = [trainer.global_rank, model.seen, dm.split_fingerprint(), dm.fitted]
    sys.stdout.write(f"\nSEEN {json.dumps(said)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
