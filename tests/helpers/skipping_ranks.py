"""Fit two epochs over a folder with damaged files; each rank prints what it saw as JSON.

Run as a program: ``python skipping_ranks.py ROOT DEVICES WORKERS``.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import lightning as L
import torch
from torchvision.transforms import v2
from trainers import quiet_trainer

from datamodules import ImageFolderDataModule


class Recorder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.train_rows, self.steps = [[], []], 0

    def training_step(self, batch, index):
        self.steps += 1
        rows = (batch.inputs[:, 0, 0, 0] * 255).round().int().tolist()
        self.train_rows[self.current_epoch] += rows
        return self.layer(batch.inputs.flatten(1)[:, :1]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def main():
    root, devices, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    plain = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    dm = ImageFolderDataModule(
        root,
        mode="L",
        on_error="skip",
        train_transform=plain,
        eval_transform=plain,
        batch_size=3,
        num_workers=workers,
        sampler="sequential",
    )
    model = Recorder()
    trainer = quiet_trainer(devices, max_epochs=2, limit_val_batches=0)
    trainer.fit(model, dm)
    bad = [Path(path).name for path in dm.bad_files]
    seen = {"train": model.train_rows, "steps": model.steps, "bad": bad}
    # one write each, so that the ranks' lines do not mix
    sys.stdout.write(f"\nSEEN {json.dumps(seen)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
