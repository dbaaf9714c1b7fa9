"""Fit and predict an image folder on two gloo processes that are seeded differently.

Run as a program: ``python folders_on_two_ranks.py ROOT FLAT``. The images of ROOT are of one grey
level each, and so are those of FLAT. Each rank prints what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import random
import sys

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import BasePredictionWriter
from torchvision.transforms import v2
from trainers import quiet_trainer

from datamodules import ImageFolderDataModule


class Recorder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = {"train": [], "val": [], "predict": []}

    def forward(self, image):
        return levels(image)

    def training_step(self, batch, index):
        self.seen["train"] += levels(batch.inputs)
        return self.layer(batch.inputs.flatten(1)[:, :1]).mean()

    def validation_step(self, batch, index):
        self.seen["val"] += levels(batch.inputs)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


class Writer(BasePredictionWriter):
    def write_on_epoch_end(self, trainer, module, predictions, batch_indices):
        rows = [row for batch in batch_indices[0] for row in batch]
        greys = [grey for batch in predictions for grey in batch]
        keys = trainer.datamodule.predict_keys
        module.seen["predict"] = [(keys[row], grey) for row, grey in zip(rows, greys, strict=True)]


def levels(image):
    return (image[:, 0, 0, 0] * 255).round().int().tolist()


def main():
    root, flat = sys.argv[1:3]
    rank = int(os.environ.get("LOCAL_RANK", 0))
    torch.manual_seed(rank)
    random.seed(rank)
    np.random.seed(rank)
    plain = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    dm = ImageFolderDataModule(
        root,
        mode="L",
        val_split=0.2,
        test_split=0.1,
        train_transform=plain,
        eval_transform=plain,
        predict_path=flat,
        batch_size=8,
        eval_batch_size=3,
        num_workers=0,
    )
    model = Recorder()
    trainer = quiet_trainer(
        2, strategy="ddp", max_epochs=1, num_sanity_val_steps=0, callbacks=[Writer("epoch")]
    )
    trainer.fit(model, dm)
    trainer.predict(model, dm, return_predictions=False)
    ids = {s: list(getattr(dm, f"{s}_dataset").sources) for s in ("train", "val", "test")}
    # one write each, so that the ranks' lines do not mix
    sys.stdout.write(f"\nSEEN {json.dumps([trainer.global_rank, ids, model.seen])}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
