"""Hash the first steps of image training: ``python batch_hashes.py FOLDER CASES``.

CASES is JSON, a list of loader settings. Each rank prints a hash a step and case.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from typing import Any

import torch
from torchvision.transforms import v2


def transform() -> v2.Compose:
    """Draws from torch's generator; module level parts, so that it can be sent to workers."""
    return v2.Compose([v2.RandomCrop(16), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4)])


def hashes(folder: str, case: dict[str, Any], steps: int = 2) -> list[str]:
    """A hash of each of the first steps of epoch 1."""
    # here, so that a spawned worker, which reads this file anew, need not import Lightning
    from datamodules import ImageFolderDataModule

    case = dict(case)
    context = case.pop("multiprocessing_context", None)
    dm = ImageFolderDataModule(
        folder,
        train_transform=transform(),
        batch_size=8 // int(os.environ.get("WORLD_SIZE", 1)),
        val_split=0,
        seed=3,
        loader_options={"multiprocessing_context": context} if context else {},
        **case,
    )
    dm.prepare_data()
    dm.setup("fit")
    loader = dm.train_dataloader()
    loader.sampler.set_epoch(1)
    found = []
    for step, batch in enumerate(loader):
        if step < steps:
            found.append(batch_hash(batch.inputs, batch.target))
    return found


def batch_hash(*tensors: torch.Tensor) -> str:
    """Of the whole world's batch: rank 0's rows, then rank 1's."""
    digest = hashlib.sha256()
    for tensor in tensors:
        parts = [tensor]
        if torch.distributed.is_initialized():
            parts = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size())]
            torch.distributed.all_gather(parts, tensor.contiguous())
        whole = torch.cat(parts)
        digest.update(f"{whole.dtype} {tuple(whole.shape)}".encode() + whole.numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    folder, cases = sys.argv[1], json.loads(sys.argv[2])
    # torch advises against more workers than cores, which small machines have
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    if rank := os.environ.get("LOCAL_RANK"):
        torch.distributed.init_process_group("gloo", rank=int(rank))
    found = [hashes(folder, case) for case in cases]
    sys.stdout.write(f"\nSEEN {json.dumps(found)}\n")
    sys.stdout.flush()
    if rank:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
