from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch

from datamodules.seeding.random_state import kept_random_state, own_generators, seed_all, seed_own
from datamodules.seeding.sample_seeds import Seen, below, sample_seeds


def test_seeds_are_distinct_over_index_epoch_copy_and_seed():
    index, none = np.arange(1000), np.zeros(1, np.int64)
    drawn = [sample_seeds(s, e, index, none + c) for s in (0, 1) for e in (0, 1) for c in (0, 1)]
    assert len(np.unique(np.concatenate(drawn))) > 7990  # 8,000 draws of 2^32: collisions are rare
    assert max(int(d.max()) for d in drawn) < 2**32


def test_one_seed_by_hand():
    def splitmix(word):
        mask = 2**64 - 1
        word = (word + 0x9E3779B97F4A7C15) & mask
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & mask
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & mask
        return word ^ (word >> 31)

    state = splitmix(splitmix(7) ^ 3)
    expected = splitmix(splitmix(11 ^ state) ^ 2) & 0xFFFFFFFF
    assert sample_seeds(7, 3, np.array([11]), np.array([2])).tolist() == [expected]


def test_below_is_uniform_and_streams_are_apart():
    seeds = sample_seeds(0, 0, np.arange(90_000), np.zeros(1, np.int64))
    draws = below(seeds, 9, stream=1)
    counts = torch.bincount(draws, minlength=9)
    assert counts.min() > 9_600
    assert counts.max() < 10_400
    assert not torch.equal(draws, below(seeds, 9, stream=2))


@pytest.mark.parametrize("cuts", [[0, 5], [0, 2, 3, 5], [2, 4, 5]])
def test_copies_count_earlier_occurrences(cuts):
    seen = Seen(np.array([1, 1, 0, 1, 0]), 3)
    found = [c for part in itertools.pairwise(cuts) for c in seen.copies(*part).tolist()]
    assert found == [0, 1, 0, 2, 1][cuts[0] :]
    assert Seen(np.array([1, 0, 2]), 3).copies(1, 3).tolist() == [0]
    assert Seen(np.empty(0, np.int64), 3).copies(0, 0).tolist() == [0]


def test_all_three_generators_are_seeded_and_put_back():
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    with kept_random_state():
        seed_all(5)
        first = torch.rand(1).item(), np.random.rand(), random.random()
        seed_all(5)
        assert first == (torch.rand(1).item(), np.random.rand(), random.random())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]


def test_generators_that_a_transform_keeps_are_found_and_seeded():
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
