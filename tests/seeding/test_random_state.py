from __future__ import annotations

import random

import numpy as np
import torch

from datamodules.seeding.random_state import kept_random_state, own_generators, seed_all, seed_own


def test_all_three_generators_are_seeded_and_restored():
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    with kept_random_state():
        seed_all(5)
        first = torch.rand(1).item(), np.random.rand(), random.random()
        seed_all(5)
        assert first == (torch.rand(1).item(), np.random.rand(), random.random())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]


def test_generators_in_attributes_of_a_transform_are_found_and_seeded():
    class Step:
        def __init__(self, generator):
            self.inner = {"deep": [generator]}

    kinds = [np.random.default_rng(), np.random.RandomState(), random.Random(), torch.Generator()]
    module = torch.nn.Sequential()
    module.steps = [Step(generator) for generator in [*kinds, kinds[0]]]
    found = own_generators(module)
    assert [id(g) for g in found] == [id(g) for g in kinds]

    def draws():
        seed_own(found, 7)
        return [
            kinds[0].random(),
            kinds[1].rand(),
            kinds[2].random(),
            torch.rand(1, generator=kinds[3]).item(),
        ]

    assert draws() == draws()
    assert own_generators(list(range(10**6))) == []
