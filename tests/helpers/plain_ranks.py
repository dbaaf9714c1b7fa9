"""Two processes without a Trainer: ``python plain_ranks.py fabric`` or by torchrun ``torch``.

Each rank prints the rows it got.
"""

from __future__ import annotations

import json
import os
import sys

import lightning as L
import torch
from two_ranks import Rows


def rows(loader, epochs: int = 2) -> list[list[int]]:
    found = []
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        found.append([int(x) for batch in loader for x in batch.inputs[:, 0]])
    return found


def report(rank: int, found: object) -> None:
    sys.stdout.write(f"\nSEEN {json.dumps([rank, found])}\n")
    sys.stdout.flush()


def by_fabric(fabric: L.Fabric, train: object, val: object) -> None:
    # the loaders were built before there were two processes
    train, val = fabric.setup_dataloaders(train, val)
    report(fabric.global_rank, [rows(train), rows(val, 1)])


def main() -> None:
    dm = Rows(101, batch_size=8, num_workers=0, seed=5)
    train, val = dm.train_dataloader(), dm.val_dataloader()
    if sys.argv[1] == "fabric":
        fabric = L.Fabric(accelerator="cpu", devices=2, strategy="ddp")
        fabric.launch()
        by_fabric(fabric, train, val)
    else:
        torch.distributed.init_process_group("gloo")
        report(int(os.environ["RANK"]), [rows(train), rows(val, 1)])
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
