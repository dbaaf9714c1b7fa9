"""Evaluate and fine-tune models on W gloo processes; each rank prints what it found as JSON.

Run as a program: ``python model_ranks.py WORLD FOLDER``.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import lightning as L
import torch
from torch import nn
from trainers import quiet_trainer

from datamodules.batches.batch import Batch
from models import Classifier, Regressor

ROWS, FEATURES, CLASSES = 101, 6, 3
SIZES = {"num_numeric": FEATURES, "cardinalities": []}


class Stream:
    """A rank's batches, as a loader that does not tell how many there are."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


class Batches(Stream):
    """A rank's batches, as a loader that tells their number."""

    def __len__(self):
        return len(self.batches)

    # Lightning warns of a resumed loader that has no state; here only the epoch counts
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class Data(L.LightningDataModule):
    """Each batch on one rank alone: by turns, or all of them on rank 0."""

    def __init__(self, batches, by_turns=True):
        super().__init__()
        self.batches, self.by_turns = batches, by_turns

    def loader(self):
        rank, world = self.trainer.global_rank, self.trainer.world_size
        if self.by_turns:
            return Batches(self.batches[rank::world])
        # Lightning leaves out every hook of a rank whose loader says that it is empty
        return Stream([] if rank else self.batches)

    def train_dataloader(self):
        # as many steps on each rank
        world = self.trainer.world_size
        return Batches(self.batches[: 8 // world * world][self.trainer.global_rank :: world])

    def val_dataloader(self):
        return self.loader()

    def test_dataloader(self):
        return self.loader()


def rows(task):
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(ROWS, FEATURES, generator=generator)
    if task == "multiclass":
        target = torch.randint(0, CLASSES, (ROWS,), generator=generator)
    elif task == "multilabel":
        target = torch.randint(0, 2, (ROWS, CLASSES), generator=generator).float()
    else:
        target = torch.randn(ROWS, generator=generator)  # scaled, as a datamodule gives it
    return [Batch(*pair) for pair in zip(inputs.split(10), target.split(10), strict=True)]


def trainer(world, folder, **options):
    return quiet_trainer(world, default_root_dir=folder, **options)


def scores(world, folder):
    """Scores of fixed models, with batches by turns and with a rank that has none."""
    found = {}
    for task in ("multiclass", "multilabel", "regression"):
        for by_turns in (True, False):
            torch.manual_seed(0)
            if task == "regression":
                scale = {"mean": [50_000.0], "std": [1000.0]}
                model = Regressor(num_targets=1, input_sizes=SIZES, target_scale=scale)
            else:
                weights = [1.0, 2.0, 3.0]
                model = Classifier(
                    task=task, num_classes=CLASSES, input_sizes=SIZES, class_weights=weights
                )
            run = trainer(world, folder)
            data = Data(rows(task), by_turns)
            evaluate = run.validate if by_turns else run.test
            [figures] = evaluate(model, data, verbose=False)
            if task != "regression":
                figures["confusion"] = model.confusion_matrix.tolist()
            found[f"{task} {by_turns}"] = figures
    return found


def same_on_all_ranks(value):
    if not torch.distributed.is_initialized():
        return True
    found = [torch.empty_like(value) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(found, value)
    return all(torch.equal(value, other) for other in found)


class FineTuned(Classifier):
    """Notes each epoch whether the backbone moved and trains and whether the ranks agree."""

    saves_at: tuple[int, str] | None = None

    def on_train_start(self):
        super().on_train_start()
        self.notes = []
        self.before = self.net[0].weight.detach().clone()

    def on_train_batch_end(self, *args):
        if self.saves_at is not None and self.trainer.global_step == self.saves_at[0]:
            self.trainer.save_checkpoint(self.saves_at[1])

    def on_train_epoch_end(self):
        weight = self.net[0].weight.detach().clone()
        moved = not torch.equal(weight, self.before)
        self.before = weight
        same = same_on_all_ranks(weight)
        self.notes.append([self.current_epoch, moved, self.net[1].training, same])


def net():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES)
    )


def fine_tune(world, folder):
    """Freeze, unfreeze at epoch 1, and resume from the middle of epoch 2."""
    options = {"num_classes": CLASSES, "freeze_backbone": True, "unfreeze_at_epoch": 1, "lr": 0.05}
    data, middle = Data(rows("multiclass")), str(Path(folder) / "middle.ckpt")
    whole = FineTuned(net(), **options)
    whole.saves_at = 2 * (8 // world) + 1, middle
    trainer(world, folder, max_epochs=3, limit_val_batches=0).fit(whole, data)
    resumed = FineTuned(net(), **options)
    run = trainer(world, folder, max_epochs=3, limit_val_batches=0)
    run.fit(resumed, data, ckpt_path=middle)
    return {
        "whole": whole.notes,
        "resumed": resumed.notes,
        "steps": run.global_step,
        "train_loss": float(run.callback_metrics["train_loss"]),
        "train_accuracy": float(run.callback_metrics["train_accuracy"]),
    }


def main() -> None:
    world, folder = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    # Lightning 2.6 asks torch 2.9's tree specs in the old way (pytorch-lightning#21326)
    warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
    found = {"scores": scores(world, folder), "tuned": fine_tune(world, folder)}
    rank = torch.distributed.get_rank() if world > 1 else 0
    sys.stdout.write(f"\nSEEN {json.dumps([rank, found])}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
