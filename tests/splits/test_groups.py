from __future__ import annotations

import numpy as np
import pytest
import torch

from datamodules.splits.groups import assign_groups, check_disjoint, encode_groups


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("stratified", [False, True])
def test_groups_stay_whole_and_splits_are_near_their_sizes(seed, stratified):
    draws = np.random.default_rng(seed)
    groups = draws.integers(0, 60, 1000)
    groups = np.unique(groups, return_inverse=True)[1]
    labels = (draws.random(1000) < 0.1 + 0.4 * (groups % 3 == 0)).astype(np.int64)
    wanted = [700, 200, 100]
    parts = assign_groups(groups, wanted, generator(seed), labels if stratified else None)
    assert all(len(set(parts[groups == g])) == 1 for g in range(groups.max() + 1))
    assert np.abs(np.bincount(parts, minlength=3) - wanted).max() <= np.bincount(groups).max()
    if stratified:
        shares = [labels[parts == k].mean() for k in range(3)]
        assert max(shares) - min(shares) < 0.06


def test_equal_seeds_give_equal_splits():
    groups = np.repeat(np.arange(20), 5)
    first, again, other = (assign_groups(groups, [60, 40], generator(s)) for s in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()


def test_a_group_larger_than_val_goes_to_train():
    groups = np.array([0] * 80 + [1] * 10 + [2] * 10)
    for seed in range(10):
        parts = assign_groups(groups, [80, 10, 10], generator(seed))
        assert parts[0] == 0
        assert sorted(parts[[80, 90]]) == [1, 2]


def test_no_split_stays_empty():
    groups = np.array([0] * 50 + [1] + [2])
    for seed in range(10):
        assert set(assign_groups(groups, [26, 13, 13], generator(seed))) == {0, 1, 2}


def test_too_few_groups_are_refused():
    with pytest.raises(ValueError, match="2 groups are too few for 3 splits"):
        assign_groups(np.array([0, 1, 1]), [1, 1, 1], generator())


@pytest.mark.parametrize("values", [["a", None, "b"], ["a", "", "b"], [1.0, np.nan, 2.0]])
def test_a_missing_group_is_named(values):
    with pytest.raises(ValueError, match="patient is missing in 1 rows, the first is row 1"):
        encode_groups(np.array(values, object if None in values else None), "patient")


def test_splits_that_share_a_group_are_named():
    check_disjoint({"train": ["a", "b"], "val": ["c"]}, "patient")
    with pytest.raises(ValueError, match="train and test share 1 groups of patient, such as 'b'"):
        check_disjoint({"train": ["a", "b"], "val": ["c"], "test": ["b"]}, "patient")
