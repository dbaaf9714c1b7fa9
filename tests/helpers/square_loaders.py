"""Loaders over ten numbers and their squares."""

from __future__ import annotations

import torch
from torch.utils.data import Dataset

from datamodules.batches.collate import collate
from datamodules.loading.iterable import StreamBatches
from datamodules.loading.make_loader import make_loader
from datamodules.sampling.plan import ShuffledPlan
from datamodules.sampling.sharded_sampler import ShardedBatchSampler


class Squares(Dataset):
    """Pairs of a number and its square; uses no random numbers, so that threads may read it."""

    transform = None

    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return torch.tensor([index]), index**2

    def thread_unsafe_step(self):
        return None


class InMemory(Squares):
    def get_batch(self, indices, seeds):
        return torch.from_numpy(indices)


def square_loader(dataset=None, *, batch_size=4, ranks=1, split="train", **options):
    dataset = Squares() if dataset is None else dataset
    sampler = ShardedBatchSampler(
        ShuffledPlan(len(dataset), batch_size),
        len(dataset),
        num_replicas=ranks,
        rank=ranks - 1,
        seed=0,
        seeded=split != "predict",
    )
    options = {"collate_fn": collate, "num_workers": 0, "worker_type": "process", **options}
    return make_loader(dataset, sampler, batch_size=batch_size, split=split, **options)


def square_stream():
    pairs = [(torch.tensor([i]), i) for i in range(6)]
    return StreamBatches(pairs, batch_size=4, transform=tuple, collate_fn=collate)


class Calls:
    """Takes the place of SkippedFiles and of Mix; records the calls in order."""

    def __init__(self):
        self.calls = []

    def take(self, batch):
        self.calls.append("take")
        return batch.target

    def say(self):
        self.calls.append("say")

    def drawn(self, batch, seed):
        self.calls.append(seed)
        return batch.target
