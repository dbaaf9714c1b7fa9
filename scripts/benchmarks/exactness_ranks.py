"""Fit every case on W processes: ``python exactness_ranks.py W``; each rank prints its rows."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import lightning as L
import torch

from benchmarks.exactness_cases import CASES, SEED, Case, Rows


class Recorder(L.LightningModule):
    """Records the rows of each step, by epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: dict[str, list[list[list[int]]]] = {"train": [], "val": []}

    def on_train_epoch_start(self) -> None:
        """Start an epoch."""
        self.seen["train"].append([])

    def on_validation_epoch_start(self) -> None:
        """Start an evaluation."""
        self.seen["val"].append([])

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """Record the rows and return any loss."""
        self.seen["train"][-1].append(batch[0][:, 0].int().tolist())
        loss: torch.Tensor = self.layer(batch[0] / 100).mean()
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        """Record the rows."""
        self.seen["val"][-1].append(batch[0][:, 0].int().tolist())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return any optimizer."""
        return torch.optim.SGD(self.parameters(), 0.01)


def fit(case: Case, side: str, world: int) -> Any:
    """Fit one case; return the rows of this rank, or the error's type if Lightning refused."""
    L.seed_everything(SEED, verbose=False)
    model = Recorder()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=world,
        strategy="ddp" if world > 1 else "auto",
        max_epochs=2,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    try:
        if side == "ours":
            trainer.fit(model, Rows(case.rows, case.evaluated, **case.ours))
        elif case.evaluated:
            trainer.fit(model, case.stock(), case.stock())
        else:
            trainer.fit(model, case.stock())
    except (TypeError, RuntimeError) as error:  # what Lightning raises for a sampler
        if side == "ours":
            raise
        return type(error).__name__
    return model.seen["val" if case.evaluated else "train"]


def main() -> None:
    """Fit all cases, stock and ours, and print the rows."""
    world = int(sys.argv[1])
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")  # of the stock loaders
    found = {
        f"{side}: {name}": fit(case, side, world)
        for name, case in CASES.items()
        for side in ("stock", "ours")
    }
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    # one write each, so that the ranks' lines do not mix
    sys.stdout.write(f"\nSEEN {json.dumps([rank, found])}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
