from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from datamodules.seeding.sample_seeds import CopyCounter, draw_integers, sample_seeds


def test_seeds_are_distinct_over_index_epoch_copy_and_seed():
    index, none = np.arange(1000), np.zeros(1, np.int64)
    drawn = [sample_seeds(s, e, index, none + c) for s in (0, 1) for e in (0, 1) for c in (0, 1)]
    assert len(np.unique(np.concatenate(drawn))) > 7990  # 8,000 draws of 2^32: collisions are rare
    assert max(int(d.max()) for d in drawn) < 2**32


def test_a_seed_equals_splitmix64_written_out():
    def splitmix(word):
        mask = 2**64 - 1
        word = (word + 0x9E3779B97F4A7C15) & mask
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & mask
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & mask
        return word ^ (word >> 31)

    state = splitmix(splitmix(7) ^ 3)
    expected = splitmix(splitmix(11 ^ state) ^ 2) & 0xFFFFFFFF
    assert sample_seeds(7, 3, np.array([11]), np.array([2])).tolist() == [expected]


def test_drawn_integers_are_uniform_and_streams_differ():
    seeds = sample_seeds(0, 0, np.arange(90_000), np.zeros(1, np.int64))
    draws = draw_integers(seeds, 9, stream=1)
    counts = torch.bincount(draws, minlength=9)
    assert counts.min() > 9_600
    assert counts.max() < 10_400
    assert not torch.equal(draws, draw_integers(seeds, 9, stream=2))


@pytest.mark.parametrize("cuts", [[0, 5], [0, 2, 3, 5], [2, 4, 5]])
def test_copies_count_earlier_occurrences(cuts):
    counter = CopyCounter(np.array([1, 1, 0, 1, 0]), 3)
    found = [c for part in itertools.pairwise(cuts) for c in counter.copies(*part).tolist()]
    assert found == [0, 1, 0, 2, 1][cuts[0] :]
    assert CopyCounter(np.array([1, 0, 2]), 3).copies(1, 3).tolist() == [0]
    assert CopyCounter(np.empty(0, np.int64), 3).copies(0, 0).tolist() == [0]
