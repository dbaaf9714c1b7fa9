from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from datamodules.core.splits import fingerprint, split_indices


@pytest.mark.parametrize("n", [1, 2, 3, 10, 50, 101])
@pytest.mark.parametrize("val", [0, 0.1, 0.5, 1])
@pytest.mark.parametrize("test", [0.0, 0.2, 0])
@pytest.mark.parametrize("stratified", [False, True])
def test_parts_are_disjoint_complete_and_repeatable(n, val, test, stratified):
    labels = np.arange(n) % 2 if stratified and n > 3 else None
    first = split_indices(n, val=val, test=test, seed=0, labels=labels)
    torch.manual_seed(99)
    np.random.seed(99)
    random.seed(99)
    again = split_indices(n, val=val, test=test, seed=0, labels=labels)
    assert sorted(np.concatenate(list(first.values()))) == list(range(n))
    assert all(np.array_equal(first[part], again[part]) for part in first)
    assert all(part.dtype == np.int64 for part in first.values())


def test_the_users_random_state_is_not_touched():
    before = torch.random.get_rng_state()
    split_indices(100, val=0.2, labels=np.arange(100) % 3)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_seeds_differ_and_zero_is_a_seed():
    zero, one = (split_indices(100, val=0.2, seed=seed)["val"] for seed in (0, 1))
    assert not np.array_equal(zero, one)


def test_split_by_hand():
    parts = split_indices(6, val=2, test=1, seed=0)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0)).tolist()
    assert parts["test"].tolist() == order[:1]
    assert parts["val"].tolist() == sorted(order[1:3])
    assert parts["train"].tolist() == sorted(order[3:])


def test_strata_keep_their_share_by_largest_remainder():
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    parts = split_indices(100, val=0.1, test=0.25, labels=labels)
    assert np.bincount(labels[parts["val"]]).tolist() == [5, 3, 2]
    assert np.bincount(labels[parts["test"]]).tolist() in ([13, 7, 5], [12, 8, 5])


def test_equal_remainders_do_not_always_cost_the_same_class():
    labels = np.repeat([0, 1, 2], 12)
    gains = {
        tuple(np.bincount(labels[split_indices(36, val=0.1, labels=labels, seed=s)["val"]]))
        for s in range(20)
    }
    assert len(gains) == 3


def test_h10_a_class_of_one_stays_in_train_and_is_named():
    labels = np.repeat([0, 1, 2], [20, 9, 1])
    with pytest.warns(UserWarning, match="'C'"):
        parts = split_indices(30, val=0.2, labels=labels, names=["A", "B", "C"])
    counts = np.bincount(labels[parts["val"]], minlength=3).tolist()
    assert counts == [4, 2, 0]
    assert 29 in parts["train"]


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"val": 0.7, "test": 0.5}, "sum to at most 1"),
        ({"val": -0.1}, "at least 0"),
        ({"val": float("nan")}, "at least 0, got nan"),
        ({"test": "0.1"}, "got '0.1'"),
        ({"val": 1.5}, "it must be at most 1; write 2"),
        ({"val": 8, "test": 4}, r"ask for 8 \+ 4 samples, there are 10"),
    ],
)
def test_impossible_shares_are_refused(shares, message):
    with pytest.raises(ValueError, match=message):
        split_indices(10, **shares)


def test_fractions_that_sum_to_one_in_floating_point_leave_nothing_out():
    parts = split_indices(10, val=0.1 + 0.2, test=0.7)
    assert [len(parts[p]) for p in ("train", "val", "test")] == [0, 3, 7]
    halves = split_indices(3, val=0.5, test=0.5)
    assert sum(map(len, halves.values())) == 3


def test_fingerprint_tells_content_and_boundaries_apart():
    assert fingerprint([1, 2], [3]) != fingerprint([1], [2, 3])
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
    assert fingerprint(np.arange(3, dtype=np.int32)) == fingerprint([0, 1, 2])


@pytest.mark.filterwarnings("ignore:val gets 34 of the 66 samples:UserWarning")
@pytest.mark.parametrize("shares", [(0.1, 0.1), (0.33, 0.33), (0.0, 0.5)])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_class_keeps_a_sample_in_train(shares, size):
    labels = np.repeat(np.arange(100), size)
    parts = split_indices(len(labels), val=shares[0], test=shares[1], labels=labels)
    assert set(labels[parts["train"]]) == set(range(100))
    assert len(parts["val"]) == round(len(labels) * shares[0]) or (size, shares[0]) == (2, 0.33)
