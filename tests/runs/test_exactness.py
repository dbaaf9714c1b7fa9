"""Figures and draws on one process and on two."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from warm_start import run_warm

from datamodules import DatasetDataModule

PROGRAM = Path(__file__).parents[1] / "helpers" / "exact_ranks.py"


def ranks(world):
    output = run_warm(PROGRAM, str(world), ranks=world, timeout=200)
    lines = [line for line in output.splitlines() if line.startswith("SEEN ")]
    return [found for _, found in sorted(json.loads(line[5:]) for line in lines)]


@pytest.fixture(scope="module")
def on_two():
    return ranks(2)


@pytest.fixture(scope="module")
def on_one():
    return ranks(1)[0]


@pytest.mark.timeout(500)
def test_h16_validation_is_the_same_on_one_and_two_processes(on_one, on_two):
    assert on_one["val"]["val_accuracy"] == pytest.approx(0.8, abs=1e-6)
    for found in on_two:
        for name, value in on_one["val"].items():
            assert found["val"][name] == pytest.approx(value, rel=1e-5), name
        assert found["confusion"] == on_one["confusion"]
        assert sum(map(sum, found["confusion"])) == 5


@pytest.mark.timeout(500)
def test_fewer_rows_than_processes_are_evaluated_once(on_one, on_two):
    assert on_one["test"]["test_accuracy"] == 0.0
    for found in on_two:
        assert found["test"] == pytest.approx(on_one["test"], rel=1e-5)


@pytest.mark.timeout(500)
def test_h14_balanced_sampling_holds_on_two_processes(on_two):
    first, second = (found["train"] for found in on_two)
    for epochs in (first, second):
        assert [len(epoch) for epoch in epochs] == [5, 5]
        assert epochs[0] != epochs[1]
        for epoch in epochs:
            rows = np.concatenate(epoch)
            assert len(rows) == 50
            assert 0.3 <= (rows >= 90).mean() <= 0.7
    assert first != second
    dm = DatasetDataModule(
        train=[(torch.zeros(1), int(i >= 90)) for i in range(100)],
        sampler="balanced",
        batch_size=10,
        val_split=0,
        seed=4,
    )
    sampler = dm.train_dataloader().sampler
    for rank, epochs in enumerate((first, second)):
        sampler._world = (2, rank)
        for epoch in (0, 1):
            sampler.set_epoch(epoch)
            assert [keys.indices.tolist() for keys in sampler] == epochs[epoch], "repeats"


class Own:
    """A transform with a generator of its own, as users write them."""

    def __init__(self):
        self.generator = np.random.default_rng(0)

    def __call__(self, x):
        return torch.tensor([self.generator.random()])


def by_numpy(x):
    return torch.tensor([np.random.rand()])


def by_random(x):
    return torch.tensor([random.random()])


def by_torch(x):
    return torch.rand(1)


# torch advises against more workers than cores, which small machines have
@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("transform", [by_numpy, by_random, by_torch, Own()])
def test_h17_sixteen_draws_are_sixteen_values(transform, persistent):
    def draws(workers):
        dm = DatasetDataModule(
            train=[(torch.zeros(1), 0)] * 8,
            train_transform=transform,
            batch_size=1,
            num_workers=workers,
            val_split=0,
            seed=1,
            loader_options={"persistent_workers": persistent},
        )
        loader = dm.train_dataloader()
        found = []
        for epoch in (0, 1):
            loader.sampler.set_epoch(epoch)
            found += [float(batch.inputs) for batch in loader]
        return found

    values = draws(4)
    assert len(set(values)) == 16
    assert values == draws(4) == draws(0)
