"""One fit that records every training row and its augmented value; may be stopped and resumed.

As a program: ``python resume_run.py SETTINGS.json`` runs one fit on one or two processes and
appends what each rank saw to ``OUT.RANK`` line by line, so that a killed run leaves its record.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from trainers import quiet_trainer

from datamodules import DatasetDataModule

DEFAULTS: dict[str, Any] = {
    "rows": 22,
    "batch_size": 4,
    "workers": 0,
    "persistent": True,
    "devices": 1,
    "flags": {},
    "scheduled": False,
    "stop": None,
    "how": "interrupt",
    "sampler": "shuffle",
    "every": 1,
}


def noise(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, torch.rand(1)])


class Recorder(L.LightningModule):
    def __init__(self, settings: dict[str, Any], out: Path) -> None:
        super().__init__()
        self.settings, self.out = settings, out
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, index):
        rows = [(int(i), round(float(v), 6)) for i, v in batch.inputs.tolist()]
        with Path(f"{self.out}.{self.global_rank}").open("a") as file:
            file.write(json.dumps([self.global_step, rows]) + "\n")
        if self.settings.get("slow"):
            time.sleep(self.settings["slow"])
        return self.layer(batch.inputs / 100).square().mean()

    def validation_step(self, batch, index):
        self.layer(batch.inputs[:, :1].repeat(1, 2))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.01)
        if not self.settings["scheduled"]:
            return optimizer
        steps = self.trainer.estimated_stepping_batches  # builds the train loader early
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=int(steps))
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Stop(L.Callback):
    """Ends the run after batch ``stop``, once its checkpoint is written."""

    def __init__(self, stop: int, how: str, path: Path) -> None:
        self.stop, self.how, self.path, self.count = stop, how, path, 0

    def on_train_batch_end(self, trainer, module, *args):
        self.count += 1
        if self.count == self.stop and self.how != "epoch":
            self.end(trainer)

    def on_train_epoch_end(self, trainer, module):
        if self.how == "epoch" and self.count >= self.stop:
            self.end(trainer)

    def end(self, trainer) -> None:
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "term":
            os.kill(os.getpid(), signal.SIGTERM)
            return  # Lightning takes note, and ends the run after this batch
        trainer.save_checkpoint(self.path)
        raise KeyboardInterrupt


def run(settings: dict[str, Any], folder: Path, out: Path, ckpt: str | None = None) -> None:
    """Fit to the end, or to where the settings stop it."""
    s = {**DEFAULTS, **settings}
    rows = torch.arange(s["rows"], dtype=torch.float32)[:, None]
    data = torch.utils.data.TensorDataset(rows, torch.zeros(s["rows"], dtype=torch.int64))
    dm = DatasetDataModule(
        train=data,
        val=torch.utils.data.TensorDataset(rows[:5], torch.zeros(5, dtype=torch.int64)),
        train_transform=noise,
        batch_size=s["batch_size"],
        num_workers=s["workers"],
        seed=3,
        sampler=s["sampler"],
        loader_options={"persistent_workers": s["persistent"]},
    )
    saver = ModelCheckpoint(
        folder, every_n_train_steps=s["every"], save_top_k=-1, filename="{step}"
    )
    callbacks: list[Any] = [saver]
    if s["stop"] is not None and ckpt is None:
        callbacks.append(Stop(s["stop"], s["how"], folder / "stop.ckpt"))
    trainer = quiet_trainer(
        s["devices"],
        enable_checkpointing=True,
        **{"max_epochs": 3, **s["flags"], **(s.get("more", {}) if ckpt else {})},
        callbacks=callbacks,
        default_root_dir=folder,
    )
    trainer.fit(Recorder(s, out), dm, ckpt_path=ckpt, weights_only=None if ckpt is None else True)


def seen(out: Path, rank: int = 0) -> list[Any]:
    """Batches of one rank in order: ``[[row, value], ...]`` each."""
    lines = Path(f"{out}.{rank}").read_text().splitlines()
    return [json.loads(line)[1] for line in lines]


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text())
    run(given["settings"], Path(given["folder"]), Path(given["out"]), given.get("ckpt"))
